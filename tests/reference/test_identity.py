"""Who people are at a real kube-apiserver: through a gateway, while impersonating, and with a direct token.

The kube-apiserver is configured with the AuthenticationConfiguration of docs/direct-tokens.md, once with the prefix of
the page and once with none.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml

from fairlead.authn.direct_tokens import AUDIENCE
from fairlead.core.crypto.signing import sign
from fairlead.core.objects import Object
from tests.fake_cluster.exchange import build_json_response
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    bind_role,
    build_kubectl,
    cluster_rule,
    connect_cluster,
    create_key,
    create_resource,
    is_online,
    post_object,
)
from tests.harness.jwt_configuration import read_jwt_configuration
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import running_server
from tests.harness.signing_keys import jwks, signing_key
from tests.reference.connected_cluster import CLUSTER, World, agent_beside, condition
from tests.reference.control_plane import ControlPlane

PROJECT, SPACE = "identity", "own"
SPACES = f"namespaces/service-p-{PROJECT}/spaceinstances"
AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


@dataclass(frozen=True, slots=True)
class Named:
    """A world whose names have the prefix at the cluster. Ada may use the cluster, and owns a space in it."""

    world: World
    prefix: str
    namespace: str
    keys: dict[str, str]
    forger: str
    """The address of another issuer that the cluster trusts in the same way."""

    def token_of(self, user: str) -> str:
        with self.world.server.client(self.keys[user]) as client:
            made = post_object(client, f"{M}/directclusterendpointtokens", {"spec": {"ttl": 600}})
        token: str = made["status"]["token"]
        return token

    def with_token(self, token: str, name: str) -> Kubectl:
        return build_kubectl(
            self.world.program, self.world.folder / f"token-{name}", self.world.plane.kubeconfig(token)
        )

    def through_gateway(self, user: str) -> Kubectl:
        return self.world.through_gateway(self.keys[user], user)


def configuration(prefix: str, *issuers: tuple[str, str]) -> str:
    """What the page says, for issuers at these addresses with these authorities."""
    trusted = []
    for url, authority in issuers:
        issuer = read_jwt_configuration()
        # The uid of the Cluster is known only when the control plane has started with this.
        issuer["issuer"] |= {"url": url, "certificateAuthority": authority, "audiences": [AUDIENCE]}
        for part in ("username", "groups"):
            issuer["claimMappings"][part]["prefix"] = prefix
        trusted.append(issuer)
    return yaml.safe_dump(
        {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": trusted}
    )


def serve_keys(issuer: FakeCluster) -> None:
    """Makes the far side an issuer whose signing key the tests hold."""
    keys = f"{issuer.url}/keys"
    told = {"issuer": issuer.url, "jwks_uri": keys, "id_token_signing_alg_values_supported": ["RS256"]}
    issuer.set_response("/.well-known/openid-configuration", build_json_response(told))
    issuer.set_response("/keys", build_json_response(jwks(signing_key(0))))


@pytest.fixture(scope="module", params=["fairlead:", ""], ids=["prefix", "no-prefix"])
def named(request: pytest.FixtureRequest, binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
    prefix, folder = str(request.param), tmp_path_factory.mktemp("identity")
    (folder / "policy.yaml").write_text(yaml.safe_dump(AUDIT_POLICY))
    with running_server(folder / "data", cluster_identity_prefix=prefix or "off") as server, FakeCluster() as forger:
        serve_keys(forger)
        trusted = (server.url, Path(server.ca_file).read_text()), (forger.url, forger.ca_pem)
        (folder / "authentication.yaml").write_text(configuration(prefix, *trusted))
        flags = (
            f"--authentication-config={folder / 'authentication.yaml'}",
            f"--audit-policy-file={folder / 'policy.yaml'}",
            f"--audit-log-path={folder / 'cluster-audit.log'}",
        )
        with ControlPlane(binaries, folder / "plane", flags) as plane, server.client() as admin:
            connect_cluster(admin, CLUSTER, plane.kubeconfig().encode())
            wait_until(lambda: is_online(admin, CLUSTER), 30)
            for name, groups in (("ada", []), ("boss", ["system:masters"])):
                create_resource(admin, "users", "User", name, username=name, groups=groups)
            keys = {name: create_key(admin, name, f"{name}s") for name in ("ada", "boss")}
            bind_role(admin, "ada", "ada", [cluster_rule(CLUSTER, "use")])
            world = World(server, plane, binaries / "kubectl", folder)
            yield Named(world, prefix, make_space(admin), {**keys, "admin": server.key}, forger.url)


def make_space(admin: Any) -> str:
    """The namespace of Ada's space."""
    create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
    spec = {"clusterRef": {"cluster": CLUSTER}, "owner": {"user": "ada"}}
    create_resource(admin, SPACES, "SpaceInstance", SPACE, **spec)
    wait_until(lambda: condition(admin.get(f"{M}/{SPACES}/{SPACE}").json(), "SpaceSynced").get("status") == "True", 60)
    namespace: str = admin.get(f"{M}/{SPACES}/{SPACE}").json()["spec"]["clusterRef"]["namespace"]
    return namespace


def who(kubectl: Kubectl, *flags: str) -> Object:
    """As the cluster says it, with groups in order."""
    found: Object = json.loads(kubectl("auth", "whoami", "-o", "json", *flags))["status"]["userInfo"]
    return {**found, "groups": sorted(found["groups"])}


def accepted(kubectl: Kubectl) -> Kubectl:
    """Until the kube-apiserver has found the issuer, which it looks for in the background, it takes no token."""
    wait_until(lambda: kubectl.run("auth", "whoami").returncode == 0, 60)
    return kubectl


@pytest.mark.parametrize("user", ["ada", "boss", "admin"])
def test_a_direct_token_is_the_same_identity_as_through_the_gateway(named: Named, user: str) -> None:
    by_gateway = who(named.through_gateway(user))
    by_token = who(accepted(named.with_token(named.token_of(user), user)))
    by_token.get("extra", {}).pop("authentication.kubernetes.io/credential-id", None)
    assert {key: value for key, value in by_token.items() if value} == by_gateway
    assert by_gateway["username"] == f"{named.prefix}{user}"
    assert (f"{named.prefix}service:admins" in by_gateway["groups"]) is (user != "ada")
    assert "system:masters" not in by_gateway["groups"]


def test_the_owner_of_a_space_has_its_rights_both_ways(named: Named) -> None:
    token = accepted(named.with_token(named.token_of("ada"), "ada"))
    for kubectl in (named.through_gateway("ada"), token):
        assert kubectl("auth", "can-i", "create", "configmaps", "-n", named.namespace).strip() == "yes"
        assert kubectl.expect_diff("auth", "can-i", "create", "configmaps", "-n", "default").strip() == "no"
    token("create", "configmap", "by-token", "-n", named.namespace)


@pytest.mark.parametrize("user", ["boss", "admin"])
def test_administrators_have_all_rights_both_ways(named: Named, user: str) -> None:
    token = accepted(named.with_token(named.token_of(user), user))
    for kubectl in (named.through_gateway(user), token):
        assert kubectl("auth", "can-i", "*", "*").strip() == "yes"


def forged(named: Named, **changes: Any) -> Kubectl:
    """With a token that this server would never make."""
    claims = jwt.decode(named.token_of("ada"), options={"verify_signature": False})
    token = sign(signing_key(0), {**claims, "iss": named.forger, **changes})
    return named.with_token(token, "forged")


@pytest.mark.parametrize("changes", [{"sub": "system:admin"}, {"groups": ["system:masters"]}], ids=["name", "group"])
def test_names_of_kubernetes_itself_give_no_rights_even_if_a_token_has_them(named: Named, changes: Object) -> None:
    assert who(accepted(forged(named)))["username"] == f"{named.prefix}ada"
    kubectl = forged(named, **changes)
    if named.prefix:
        found = who(kubectl)
        assert "system:masters" not in found["groups"] and not found["username"].startswith("system:")
        assert kubectl.expect_diff("auth", "can-i", "list", "secrets", "-A").strip() == "no"
    else:
        assert "Unauthorized" in kubectl.expect_failure("get", "--raw", "/api")


def test_tokens_with_a_scope_are_not_taken(named: Named) -> None:
    """A kube-apiserver knows nothing of scopes."""
    with named.world.server.client(named.keys["ada"]) as client:
        body = {"spec": {"ttl": 600, "scope": {"clusters": [{"cluster": CLUSTER}]}}}
        token = post_object(client, f"{M}/directclusterendpointtokens", body)["status"]["token"]
    assert "Unauthorized" in named.with_token(token, "scoped").expect_failure("get", "--raw", "/api")


def test_impersonation_has_kubernetes_meaning_and_is_in_both_audit_logs(named: Named) -> None:
    ruling = named.through_gateway("admin")
    extra = {"service.sh/impersonator": [f"{named.prefix}admin"], "acme.com/why": ["support"]}
    found = who(ruling, "--as", "ada", "--as-user-extra", "acme.com/why=support")
    assert found["username"] == f"{named.prefix}ada" and found["extra"] == extra
    assert f"{named.prefix}service:admins" not in found["groups"]
    assert ruling("auth", "can-i", "create", "pods", "-n", named.namespace, "--as", "ada").strip() == "yes"
    assert ruling.expect_diff("auth", "can-i", "get", "secrets", "-n", "default", "--as", "ada").strip() == "no"
    assert 'User "nobody" cannot use' in ruling.expect_failure("get", "--raw", "/api/v1/namespaces", "--as", "nobody")
    ruling("get", "configmaps", "-n", named.namespace, "--as", "ada")
    event = last_event(named, "configmaps")
    assert event["impersonatedUser"]["username"] == f"{named.prefix}ada"
    assert event["impersonatedUser"]["extra"] == {"service.sh/impersonator": [f"{named.prefix}admin"]}
    log = named.world.folder / "data" / "audit.log"
    wait_until(lambda: f'"auditID":"{event["auditID"]}"' in log.read_text())
    (same,) = [json.loads(line) for line in log.read_text().splitlines() if event["auditID"] in line]
    assert (same["user"]["username"], same["impersonatedUser"]["username"]) == ("admin", "ada")


def last_event(named: Named, resource: str) -> Object:
    """The cluster's own record of the last impersonated request for it."""
    found: list[Object] = []
    began = time.monotonic()
    while not found and time.monotonic() - began < 10:
        lines = (named.world.folder / "cluster-audit.log").read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}") and f'"resource":"{resource}"' in line]
        found = [each for each in events if "impersonatedUser" in each and each["stage"] == "ResponseComplete"]
    return found[-1]


def test_a_key_with_rules_works_with_kubectl_and_is_held_to_them(named: Named) -> None:
    rule = {"cluster": CLUSTER, "verbs": ["get", "list"], "namespaces": [named.namespace]}
    with named.world.server.client() as admin:
        key = create_key(admin, "ada", "adas-rules", scope={"rules": [rule]})
    kubectl = named.world.through_gateway(key, "rules")
    assert "default" not in kubectl("get", "configmaps", "-n", named.namespace, "-o", "name").split()
    assert kubectl("auth", "can-i", "create", "configmaps", "-n", named.namespace).strip() == "yes"
    assert "FIELDS" in kubectl("explain", "pod")
    refused = kubectl.expect_failure("delete", "configmap", "kube-root-ca.crt", "-n", named.namespace)
    told = f'does not allow "delete" on "configmaps" in namespace "{named.namespace}" of cluster "{CLUSTER}"'
    assert told in refused


def test_an_agent_sends_the_same_names(named: Named, tmp_path: Path) -> None:
    with agent_beside(named.world, tmp_path / "agent") as kubectl:
        assert who(kubectl) == who(named.through_gateway("admin"))
        assert kubectl("auth", "can-i", "*", "*").strip() == "yes"
        assert "cannot authorize impersonation" in kubectl.expect_failure("get", "--raw", "/api", "--as", "ada")


def test_with_another_prefix_our_own_bindings_follow_and_those_of_others_stay(binaries: Path, tmp_path: Path) -> None:
    """As with an upgrade: before, names had no prefix. In the shared cluster others have bound administrators."""
    with ControlPlane(binaries, tmp_path / "plane") as plane:
        change_prefix(plane, tmp_path)


def change_prefix(plane: ControlPlane, tmp_path: Path) -> None:
    direct = build_kubectl(plane.binaries / "kubectl", tmp_path / "direct", plane.kubeconfig())
    direct("create", "clusterrolebinding", "by-hand", "--clusterrole=view", "--user=ada")
    with running_server(tmp_path / "data", cluster_identity_prefix="off") as server, server.client() as admin:
        connect_cluster(admin, CLUSTER, plane.kubeconfig().encode())
        wait_until(lambda: is_online(admin, CLUSTER), 30)
        create_resource(admin, "users", "User", "ada", username="ada")
        namespace = make_space(admin)
        wait_until(lambda: subjects(direct, "clusterrolebinding", "service.sh:admins") == {"service:admins"}, 30)
    where = ("rolebinding", "service.sh:admin", "-n", namespace)
    assert {"ada", "service:user:ada"} <= subjects(direct, *where)
    with running_server(tmp_path / "data") as server:
        wait_until(
            lambda: subjects(direct, "clusterrolebinding", "service.sh:admins") == {"fairlead:service:admins"}, 30
        )
        wait_until(lambda: {"fairlead:ada", "fairlead:service:user:ada"} <= subjects(direct, *where), 30)
        assert not {"ada", "service:user:ada"} & subjects(direct, *where)
        assert subjects(direct, "clusterrolebinding", "by-hand") == {"ada"}
        world = World(server, plane, plane.binaries / "kubectl", tmp_path)
        assert world.through_gateway()("auth", "can-i", "*", "*").strip() == "yes"
        world.management()("delete", "spaceinstance", SPACE, "-n", f"service-p-{PROJECT}")
        world.management()("delete", "cluster", CLUSTER)
    direct("delete", "clusterrolebinding", "by-hand")


def subjects(kubectl: Kubectl, *binding: str) -> set[str]:
    found = kubectl.run("get", *binding, "-o", "json")
    return {each["name"] for each in json.loads(found.stdout)["subjects"]} if found.returncode == 0 else set()
