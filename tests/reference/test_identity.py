"""Identities of users at a real kube-apiserver: through a gateway, while impersonating, and with a direct token.

The kube-apiserver has the AuthenticationConfiguration of docs/direct-tokens.md, once with the prefix of
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
from tests.reference.connected_cluster import CLUSTER, ConnectedCluster, find_condition, run_agent
from tests.reference.control_plane import ControlPlane

PROJECT, SPACE = "identity", "own"
SPACES = f"namespaces/service-p-{PROJECT}/spaceinstances"
AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


@dataclass(frozen=True, slots=True)
class PrefixedCluster:
    """A cluster where names have the prefix. Ada can use the cluster and owns a space in it."""

    connected: ConnectedCluster
    prefix: str
    namespace: str
    keys: dict[str, str]
    other_issuer: str
    """The URL of another issuer that the cluster trusts."""

    def create_token(self, user: str) -> str:
        with self.connected.server.client(self.keys[user]) as client:
            created = post_object(client, f"{M}/directclusterendpointtokens", {"spec": {"ttl": 600}})
        token: str = created["status"]["token"]
        return token

    def kubectl_with_token(self, token: str, name: str) -> Kubectl:
        return build_kubectl(
            self.connected.program, self.connected.folder / f"token-{name}", self.connected.plane.kubeconfig(token)
        )

    def gateway_kubectl(self, user: str) -> Kubectl:
        return self.connected.gateway_kubectl(self.keys[user], user)


def build_configuration(prefix: str, *issuers: tuple[str, str]) -> str:
    """The documented configuration, for issuers at these URLs with these authorities."""
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
    """Makes the fake cluster an issuer whose signing key the tests have."""
    keys = f"{issuer.url}/keys"
    discovery = {"issuer": issuer.url, "jwks_uri": keys, "id_token_signing_alg_values_supported": ["RS256"]}
    issuer.set_response("/.well-known/openid-configuration", build_json_response(discovery))
    issuer.set_response("/keys", build_json_response(jwks(signing_key(0))))


@pytest.fixture(scope="module", params=["fairlead:", ""], ids=["prefix", "no-prefix"])
def prefixed(
    request: pytest.FixtureRequest, binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrefixedCluster]:
    prefix, folder = str(request.param), tmp_path_factory.mktemp("identity")
    (folder / "policy.yaml").write_text(yaml.safe_dump(AUDIT_POLICY))
    with (
        running_server(folder / "data", cluster_identity_prefix=prefix or "off") as server,
        FakeCluster() as other_issuer,
    ):
        serve_keys(other_issuer)
        trusted = (server.url, Path(server.ca_file).read_text()), (other_issuer.url, other_issuer.ca_pem)
        (folder / "authentication.yaml").write_text(build_configuration(prefix, *trusted))
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
            connected = ConnectedCluster(server, plane, binaries / "kubectl", folder)
            yield PrefixedCluster(
                connected, prefix, create_space(admin), {**keys, "admin": server.key}, other_issuer.url
            )


def create_space(admin: Any) -> str:
    """Creates Ada's space and returns its namespace."""
    create_resource(admin, "projects", "Project", PROJECT, owner={"user": "admin"})
    spec = {"clusterRef": {"cluster": CLUSTER}, "owner": {"user": "ada"}}
    create_resource(admin, SPACES, "SpaceInstance", SPACE, **spec)
    wait_until(
        lambda: find_condition(admin.get(f"{M}/{SPACES}/{SPACE}").json(), "SpaceSynced").get("status") == "True", 60
    )
    namespace: str = admin.get(f"{M}/{SPACES}/{SPACE}").json()["spec"]["clusterRef"]["namespace"]
    return namespace


def get_user_info(kubectl: Kubectl, *flags: str) -> Object:
    """The user info of the cluster, with sorted groups."""
    found: Object = json.loads(kubectl("auth", "whoami", "-o", "json", *flags))["status"]["userInfo"]
    return {**found, "groups": sorted(found["groups"])}


def wait_until_accepted(kubectl: Kubectl) -> Kubectl:
    """Waits until the kube-apiserver accepts the token: it loads the issuer in the background."""
    wait_until(lambda: kubectl.run("auth", "whoami").returncode == 0, 60)
    return kubectl


@pytest.mark.parametrize("user", ["ada", "boss", "admin"])
def test_a_direct_token_has_the_same_identity_as_the_gateway(prefixed: PrefixedCluster, user: str) -> None:
    by_gateway = get_user_info(prefixed.gateway_kubectl(user))
    by_token = get_user_info(wait_until_accepted(prefixed.kubectl_with_token(prefixed.create_token(user), user)))
    by_token.get("extra", {}).pop("authentication.kubernetes.io/credential-id", None)
    assert {key: value for key, value in by_token.items() if value} == by_gateway
    assert by_gateway["username"] == f"{prefixed.prefix}{user}"
    assert (f"{prefixed.prefix}service:admins" in by_gateway["groups"]) is (user != "ada")
    assert "system:masters" not in by_gateway["groups"]


def test_the_owner_of_a_space_has_permissions_by_gateway_and_token(prefixed: PrefixedCluster) -> None:
    token = wait_until_accepted(prefixed.kubectl_with_token(prefixed.create_token("ada"), "ada"))
    for kubectl in (prefixed.gateway_kubectl("ada"), token):
        assert kubectl("auth", "can-i", "create", "configmaps", "-n", prefixed.namespace).strip() == "yes"
        assert kubectl.expect_diff("auth", "can-i", "create", "configmaps", "-n", "default").strip() == "no"
    token("create", "configmap", "by-token", "-n", prefixed.namespace)


@pytest.mark.parametrize("user", ["boss", "admin"])
def test_administrators_have_all_permissions_by_gateway_and_token(prefixed: PrefixedCluster, user: str) -> None:
    token = wait_until_accepted(prefixed.kubectl_with_token(prefixed.create_token(user), user))
    for kubectl in (prefixed.gateway_kubectl(user), token):
        assert kubectl("auth", "can-i", "*", "*").strip() == "yes"


def build_forged_kubectl(prefixed: PrefixedCluster, **changes: Any) -> Kubectl:
    """kubectl with a token that this server would never issue."""
    claims = jwt.decode(prefixed.create_token("ada"), options={"verify_signature": False})
    token = sign(signing_key(0), {**claims, "iss": prefixed.other_issuer, **changes})
    return prefixed.kubectl_with_token(token, "forged")


@pytest.mark.parametrize("changes", [{"sub": "system:admin"}, {"groups": ["system:masters"]}], ids=["name", "group"])
def test_system_names_in_a_token_give_no_permissions(prefixed: PrefixedCluster, changes: Object) -> None:
    assert get_user_info(wait_until_accepted(build_forged_kubectl(prefixed)))["username"] == f"{prefixed.prefix}ada"
    kubectl = build_forged_kubectl(prefixed, **changes)
    if prefixed.prefix:
        found = get_user_info(kubectl)
        assert "system:masters" not in found["groups"] and not found["username"].startswith("system:")
        assert kubectl.expect_diff("auth", "can-i", "list", "secrets", "-A").strip() == "no"
    else:
        assert "Unauthorized" in kubectl.expect_failure("get", "--raw", "/api")


def test_tokens_with_a_scope_are_rejected(prefixed: PrefixedCluster) -> None:
    """A kube-apiserver does not support scopes."""
    with prefixed.connected.server.client(prefixed.keys["ada"]) as client:
        body = {"spec": {"ttl": 600, "scope": {"clusters": [{"cluster": CLUSTER}]}}}
        token = post_object(client, f"{M}/directclusterendpointtokens", body)["status"]["token"]
    assert "Unauthorized" in prefixed.kubectl_with_token(token, "scoped").expect_failure("get", "--raw", "/api")


def test_impersonation_works_as_in_kubernetes_and_is_in_both_audit_logs(prefixed: PrefixedCluster) -> None:
    admin_kubectl = prefixed.gateway_kubectl("admin")
    extra = {"service.sh/impersonator": [f"{prefixed.prefix}admin"], "acme.com/why": ["support"]}
    found = get_user_info(admin_kubectl, "--as", "ada", "--as-user-extra", "acme.com/why=support")
    assert found["username"] == f"{prefixed.prefix}ada" and found["extra"] == extra
    assert f"{prefixed.prefix}service:admins" not in found["groups"]
    assert admin_kubectl("auth", "can-i", "create", "pods", "-n", prefixed.namespace, "--as", "ada").strip() == "yes"
    assert admin_kubectl.expect_diff("auth", "can-i", "get", "secrets", "-n", "default", "--as", "ada").strip() == "no"
    assert 'User "nobody" cannot use' in admin_kubectl.expect_failure(
        "get", "--raw", "/api/v1/namespaces", "--as", "nobody"
    )
    admin_kubectl("get", "configmaps", "-n", prefixed.namespace, "--as", "ada")
    event = read_last_event(prefixed, "configmaps")
    assert event["impersonatedUser"]["username"] == f"{prefixed.prefix}ada"
    assert event["impersonatedUser"]["extra"] == {"service.sh/impersonator": [f"{prefixed.prefix}admin"]}
    log = prefixed.connected.folder / "data" / "audit.log"
    wait_until(lambda: f'"auditID":"{event["auditID"]}"' in log.read_text())
    (event_of_server,) = [json.loads(line) for line in log.read_text().splitlines() if event["auditID"] in line]
    assert (event_of_server["user"]["username"], event_of_server["impersonatedUser"]["username"]) == ("admin", "ada")


def read_last_event(prefixed: PrefixedCluster, resource: str) -> Object:
    """The last impersonated request for the resource in the cluster's audit log."""
    found: list[Object] = []
    start = time.monotonic()
    while not found and time.monotonic() - start < 10:
        lines = (prefixed.connected.folder / "cluster-audit.log").read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}") and f'"resource":"{resource}"' in line]
        found = [each for each in events if "impersonatedUser" in each and each["stage"] == "ResponseComplete"]
    return found[-1]


def test_a_key_with_rules_works_with_kubectl_within_its_rules(prefixed: PrefixedCluster) -> None:
    rule = {"cluster": CLUSTER, "verbs": ["get", "list"], "namespaces": [prefixed.namespace]}
    with prefixed.connected.server.client() as admin:
        key = create_key(admin, "ada", "adas-rules", scope={"rules": [rule]})
    kubectl = prefixed.connected.gateway_kubectl(key, "rules")
    assert "default" not in kubectl("get", "configmaps", "-n", prefixed.namespace, "-o", "name").split()
    assert kubectl("auth", "can-i", "create", "configmaps", "-n", prefixed.namespace).strip() == "yes"
    assert "FIELDS" in kubectl("explain", "pod")
    refused = kubectl.expect_failure("delete", "configmap", "kube-root-ca.crt", "-n", prefixed.namespace)
    discovery = f'does not allow "delete" on "configmaps" in namespace "{prefixed.namespace}" of cluster "{CLUSTER}"'
    assert discovery in refused


def test_an_agent_sends_the_same_names(prefixed: PrefixedCluster, tmp_path: Path) -> None:
    with run_agent(prefixed.connected, tmp_path / "agent") as kubectl:
        assert get_user_info(kubectl) == get_user_info(prefixed.gateway_kubectl("admin"))
        assert kubectl("auth", "can-i", "*", "*").strip() == "yes"
        assert "cannot authorize impersonation" in kubectl.expect_failure("get", "--raw", "/api", "--as", "ada")


def test_with_another_prefix_our_bindings_change_and_those_of_others_stay(binaries: Path, tmp_path: Path) -> None:
    """As in an upgrade from names without a prefix. In the shared cluster other tests have bound administrators."""
    with ControlPlane(binaries, tmp_path / "plane") as plane:
        change_prefix(plane, tmp_path)


def change_prefix(plane: ControlPlane, tmp_path: Path) -> None:
    direct = build_kubectl(plane.binaries / "kubectl", tmp_path / "direct", plane.kubeconfig())
    direct("create", "clusterrolebinding", "by-hand", "--clusterrole=view", "--user=ada")
    with running_server(tmp_path / "data", cluster_identity_prefix="off") as server, server.client() as admin:
        connect_cluster(admin, CLUSTER, plane.kubeconfig().encode())
        wait_until(lambda: is_online(admin, CLUSTER), 30)
        create_resource(admin, "users", "User", "ada", username="ada")
        namespace = create_space(admin)
        wait_until(lambda: list_subjects(direct, "clusterrolebinding", "service.sh:admins") == {"service:admins"}, 30)
    binding = ("rolebinding", "service.sh:admin", "-n", namespace)
    assert {"ada", "service:user:ada"} <= list_subjects(direct, *binding)
    with running_server(tmp_path / "data") as server:
        wait_until(
            lambda: list_subjects(direct, "clusterrolebinding", "service.sh:admins") == {"fairlead:service:admins"}, 30
        )
        wait_until(lambda: {"fairlead:ada", "fairlead:service:user:ada"} <= list_subjects(direct, *binding), 30)
        assert not {"ada", "service:user:ada"} & list_subjects(direct, *binding)
        assert list_subjects(direct, "clusterrolebinding", "by-hand") == {"ada"}
        connected = ConnectedCluster(server, plane, plane.binaries / "kubectl", tmp_path)
        assert connected.gateway_kubectl()("auth", "can-i", "*", "*").strip() == "yes"
        connected.management_kubectl()("delete", "spaceinstance", SPACE, "-n", f"service-p-{PROJECT}")
        connected.management_kubectl()("delete", "cluster", CLUSTER)
    direct("delete", "clusterrolebinding", "by-hand")


def list_subjects(kubectl: Kubectl, *binding: str) -> set[str]:
    found = kubectl.run("get", *binding, "-o", "json")
    return {each["name"] for each in json.loads(found.stdout)["subjects"]} if found.returncode == 0 else set()
