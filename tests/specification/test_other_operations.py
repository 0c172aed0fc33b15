"""Operations besides the standard ones: a runner's key, direct tokens, and migrating a virtual cluster."""

from typing import Any

import jwt
import pytest

from fairlead.authn.direct_tokens import AUDIENCE
from tests.specification.api import PREFIX, VERSION, Api, Object, build_object, unique_name, virtual_clusters_path

TOKENS = "directclusterendpointtokens"


def test_a_runners_key_is_a_subresource_and_authenticates_as_the_runner(api: Api) -> None:
    name = unique_name("runner")
    api.create("runners", build_object("Runner", name))
    result = api.get(f"runners/{name}/accesskey")
    assert (result["kind"], result["apiVersion"], result["metadata"]) == (
        "RunnerAccessKey",
        VERSION,
        {"creationTimestamp": None},
    )
    with api.use_key(result["accessKey"]) as runner:
        assert runner.get(f"runners/{name}")["metadata"]["name"] == name
        assert runner.send("GET", "projects/none").status_code == 403


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
def test_a_runners_key_can_only_be_read(api: Api, method: str) -> None:
    name = unique_name("runner")
    api.create("runners", build_object("Runner", name))
    assert api.send(method, f"runners/{name}/accesskey", "{}", "application/json").status_code == 405
    assert api.send("GET", f"runners/{unique_name('missing')}/accesskey").status_code == 404


def read_claims(api: Api, token: str) -> dict[str, Any]:
    with api.server.client(None) as anonymous:
        where = anonymous.get("/.well-known/openid-configuration").json()
        keys = jwt.PyJWKSet.from_dict(anonymous.get(where["jwks_uri"]).json())
    key = keys[jwt.get_unverified_header(token)["kid"]]
    return jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=where["issuer"])


def test_a_direct_token_is_created_from_an_empty_spec(api: Api) -> None:
    text = f"kind: DirectClusterEndpointToken\napiVersion: {VERSION}\nmetadata:\n  creationTimestamp: null\n"
    created = api.create(TOKENS, f"{text}spec: {{}}\nstatus: {{}}\n")
    assert created["kind"] == "DirectClusterEndpointToken"
    assert read_claims(api, created["status"]["token"])["sub"] == "admin"


def test_a_direct_token_has_its_ttl_and_is_not_accepted_by_this_server(api: Api) -> None:
    created = api.create(TOKENS, build_object("DirectClusterEndpointToken", "", {"ttl": 300}))
    result = read_claims(api, created["status"]["token"])
    assert (created["spec"]["ttl"], result["exp"] - result["iat"]) == (300, 300)
    with api.use_key(created["status"]["token"]) as client:
        assert client.send("GET", "apps").status_code == 401


def build_request(name: str, project: str) -> Object:
    source = {"name": name, "namespace": f"{PREFIX}{project}"}
    kind = "ProjectMigrateVirtualClusterInstance"
    return {
        "kind": kind,
        "apiVersion": VERSION,
        "metadata": {"creationTimestamp": None},
        "sourceVirtualClusterInstance": source,
    }


def test_a_virtual_cluster_is_migrated_to_the_project_of_the_path(api: Api) -> None:
    here, there, name = api.create_project(), api.create_project(), unique_name("vc")
    api.create(virtual_clusters_path(here), build_object("VirtualClusterInstance", name, {"displayName": "V"}))
    response = api.create(f"projects/{there}/migratevirtualclusterinstance", build_request(name, here))
    assert response["kind"] == "ProjectMigrateVirtualClusterInstance"
    assert response["sourceVirtualClusterInstance"] == {"name": name, "namespace": f"{PREFIX}{here}"}
    assert not {"spec", "status"} & set(response)
    assert api.send("GET", f"{virtual_clusters_path(here)}/{name}").status_code == 404
    assert api.get(f"{virtual_clusters_path(there)}/{name}")["spec"]["displayName"] == "V"


@pytest.mark.parametrize("field", ["sourceVirtualClusterInstance", "name", "namespace"])
def test_a_migration_needs_the_name_and_namespace_of_the_instance(api: Api, field: str) -> None:
    requests = build_request("one", "somewhere")
    if field in requests:
        del requests[field]
    else:
        del requests["sourceVirtualClusterInstance"][field]
    response = api.send("POST", f"projects/{api.create_project()}/migratevirtualclusterinstance", requests)
    assert (response.status_code, field in response.json()["message"]) == (422, True)


def test_every_request_needs_a_key(api: Api) -> None:
    with api.server.client(None) as client:
        anonymous = Api(api.server, client)
        requests = [("GET", "apps"), ("POST", TOKENS), ("GET", "runners/x/accesskey"), ("GET", "ownedaccesskeys")]
        requests += [("POST", "projects/x/migratevirtualclusterinstance"), ("DELETE", "apps/x")]
        assert {anonymous.send(method, path).status_code for method, path in requests} == {401}


def test_a_user_without_permissions_gets_403_for_every_operation(api: Api) -> None:
    user = unique_name("user")
    api.create("users", build_object("User", user))
    with api.use_key(api.create_key(user=user)["spec"]["key"]) as unprivileged:
        requests = [("GET", "apps/x"), ("PUT", "apps/x"), ("PATCH", "apps/x"), ("DELETE", "apps/x"), ("POST", "apps")]
        requests += [("GET", "runners/x/accesskey"), ("POST", "projects/x/migratevirtualclusterinstance")]
        assert {unprivileged.send(method, path).status_code for method, path in requests} == {403}
