"""The operations beside the six: a runner's key, direct tokens, and moving a virtual cluster."""

from typing import Any

import jwt
import pytest

from fairlead.authn.direct_tokens import AUDIENCE
from tests.specification.api import PREFIX, VERSION, Api, Body, body, fresh, virtual_clusters

TOKENS = "directclusterendpointtokens"


def test_a_runners_key_is_read_below_the_runner_and_works_as_the_runner(api: Api) -> None:
    name = fresh("runner")
    api.make("runners", body("Runner", name))
    told = api.get(f"runners/{name}/accesskey")
    assert (told["kind"], told["apiVersion"], told["metadata"]) == (
        "RunnerAccessKey",
        VERSION,
        {"creationTimestamp": None},
    )
    with api.holding(told["accessKey"]) as runner:
        assert runner.get(f"runners/{name}")["metadata"]["name"] == name
        assert runner.send("GET", "projects/none").status_code == 403


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
def test_a_runners_key_can_only_be_read(api: Api, method: str) -> None:
    name = fresh("runner")
    api.make("runners", body("Runner", name))
    assert api.send(method, f"runners/{name}/accesskey", "{}", "application/json").status_code == 405
    assert api.send("GET", f"runners/{fresh('missing')}/accesskey").status_code == 404


def claims(api: Api, token: str) -> dict[str, Any]:
    with api.server.client(None) as stranger:
        where = stranger.get("/.well-known/openid-configuration").json()
        keys = jwt.PyJWKSet.from_dict(stranger.get(where["jwks_uri"]).json())
    key = keys[jwt.get_unverified_header(token)["kid"]]
    return jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=where["issuer"])


def test_a_direct_token_is_made_from_an_empty_spec(api: Api) -> None:
    text = f"kind: DirectClusterEndpointToken\napiVersion: {VERSION}\nmetadata:\n  creationTimestamp: null\n"
    made = api.make(TOKENS, f"{text}spec: {{}}\nstatus: {{}}\n")
    assert made["kind"] == "DirectClusterEndpointToken"
    assert claims(api, made["status"]["token"])["sub"] == "admin"


def test_a_direct_token_lives_for_its_ttl_and_is_no_key_for_this_server(api: Api) -> None:
    made = api.make(TOKENS, body("DirectClusterEndpointToken", "", {"ttl": 300}))
    told = claims(api, made["status"]["token"])
    assert (made["spec"]["ttl"], told["exp"] - told["iat"]) == (300, 300)
    with api.holding(made["status"]["token"]) as holder:
        assert holder.send("GET", "apps").status_code == 401


def request(name: str, project: str) -> Body:
    source = {"name": name, "namespace": f"{PREFIX}{project}"}
    kind = "ProjectMigrateVirtualClusterInstance"
    return {
        "kind": kind,
        "apiVersion": VERSION,
        "metadata": {"creationTimestamp": None},
        "sourceVirtualClusterInstance": source,
    }


def test_a_virtual_cluster_moves_into_the_project_of_the_path(api: Api) -> None:
    here, there, name = api.project(), api.project(), fresh("vc")
    api.make(virtual_clusters(here), body("VirtualClusterInstance", name, {"displayName": "V"}))
    answer = api.make(f"projects/{there}/migratevirtualclusterinstance", request(name, here))
    assert answer["kind"] == "ProjectMigrateVirtualClusterInstance"
    assert answer["sourceVirtualClusterInstance"] == {"name": name, "namespace": f"{PREFIX}{here}"}
    assert not {"spec", "status"} & set(answer)
    assert api.send("GET", f"{virtual_clusters(here)}/{name}").status_code == 404
    assert api.get(f"{virtual_clusters(there)}/{name}")["spec"]["displayName"] == "V"


@pytest.mark.parametrize("field", ["sourceVirtualClusterInstance", "name", "namespace"])
def test_a_migration_says_which_instance_and_where_it_is(api: Api, field: str) -> None:
    asked = request("one", "somewhere")
    if field in asked:
        del asked[field]
    else:
        del asked["sourceVirtualClusterInstance"][field]
    refused = api.send("POST", f"projects/{api.project()}/migratevirtualclusterinstance", asked)
    assert (refused.status_code, field in refused.json()["message"]) == (422, True)


def test_every_request_takes_a_key_whatever_it_asks_for(api: Api) -> None:
    with api.server.client(None) as client:
        stranger = Api(api.server, client)
        asked = [("GET", "apps"), ("POST", TOKENS), ("GET", "runners/x/accesskey"), ("GET", "ownedaccesskeys")]
        asked += [("POST", "projects/x/migratevirtualclusterinstance"), ("DELETE", "apps/x")]
        assert {stranger.send(method, path).status_code for method, path in asked} == {401}


def test_who_has_no_rights_is_refused_every_operation(api: Api) -> None:
    user = fresh("user")
    api.make("users", body("User", user))
    with api.holding(api.key(user=user)["spec"]["key"]) as nobody:
        asked = [("GET", "apps/x"), ("PUT", "apps/x"), ("PATCH", "apps/x"), ("DELETE", "apps/x"), ("POST", "apps")]
        asked += [("GET", "runners/x/accesskey"), ("POST", "projects/x/migratevirtualclusterinstance")]
        assert {nobody.send(method, path).status_code for method, path in asked} == {403}
