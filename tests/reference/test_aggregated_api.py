"""Fairlead as an APIService of a real kube-apiserver: kubectl, identities, controllers, rotation and failures."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.certificates import create_authority
from tests.harness.eventually import seconds_until, wait_until
from tests.harness.server_process import MANAGEMENT, running_server
from tests.reference.aggregating_cluster import (
    API_SERVICE,
    CLIENT_AUTH,
    GROUP,
    PROXY_NAME,
    Aggregated,
    Host,
    app,
    create_own,
    exists_own,
    host_objects,
    proxy_client,
    running_behind,
    running_host,
    shared_secret,
)
from tests.reference.control_plane import ALICE_TOKEN, free_port

APPS = f"/apis/{GROUP}/v1/apps"
ROOT_HEADERS = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
CONFIG_MAP = ("configmap", "extension-apiserver-authentication", "-n", "kube-system")
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def host(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Its controllers have identities of their own, as with kubeadm."""
    folder = tmp_path_factory.mktemp("host")
    with running_host(binaries, folder, ["--use-service-account-credentials=true"]) as running:
        yield running


@pytest.fixture(scope="module")
def aggregated(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aggregated]:
    with running_behind(host, tmp_path_factory.mktemp("own")) as running:
        yield running


def test_kubectl_gets_applies_watches_explains_and_deletes(aggregated: Aggregated) -> None:
    kubectl = aggregated.host.kubectl()
    assert f"apps.{GROUP}" in kubectl("api-resources", f"--api-group={GROUP}", "-o", "name").split()
    with kubectl.watching("get", "apps", "-w", "-o", "name") as watch:
        assert kubectl("apply", "-f", "-", body=json.dumps(app("one"))) == f"app.{GROUP}/one created\n"
        assert watch.stdout is not None and watch.stdout.readline().strip() == f"app.{GROUP}/one"
    changed = json.dumps(app("one", "Two"))
    assert "configured" in kubectl("apply", "-f", "-", body=changed)
    assert "serverside-applied" in kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", body=changed)
    assert kubectl("get", "app", "one", "-o", "jsonpath={.spec.displayName}") == "Two"
    assert "displayName" in kubectl("explain", "apps.spec")
    assert "strict decoding error" in kubectl.expect_failure(
        "apply", "-f", "-", body=json.dumps({**app("two"), "spec": {"displayNam": "x"}})
    )
    assert "deleted" in kubectl("delete", "app", "one")
    assert kubectl.get_names("apps") == []


def test_discovery_and_openapi_of_the_host_have_both(aggregated: Aggregated) -> None:
    kubectl = aggregated.host.kubectl()
    paths = json.loads(kubectl("get", "--raw", "/openapi/v3"))["paths"]
    assert {"api/v1", "apis/apps/v1", f"apis/{GROUP}/v1"} <= set(paths)
    pods = json.loads(kubectl("get", "--raw", "/openapi/v3/api/v1"))["paths"]
    assert "/api/v1/namespaces/{namespace}/pods" in pods
    found = wait_until(lambda: APPS in json.loads(kubectl("get", "--raw", "/openapi/v2"))["paths"], 90)
    assert found, "OpenAPI v2 is downloaded every minute"
    groups = json.loads(kubectl("get", "--raw", "/apis"))["groups"]
    assert {"apps", GROUP} <= {each["name"] for each in groups}


def test_the_user_needs_the_permission_of_both(aggregated: Aggregated) -> None:
    """The host authorizes a request before it forwards it."""
    host, server = aggregated.host, aggregated.server
    alice, log = host.kubectl(ALICE_TOKEN), server.log.parent / "data" / "audit.log"
    assert 'User "alice" cannot list resource "apps"' in alice.expect_failure("get", "apps")
    assert '"alice"' not in log.read_text()
    grant(host, "list")
    wait_until(lambda: alice.run("get", "apps").returncode != 0 and '"alice"' in log.read_text())
    events = [json.loads(line) for line in log.read_text().splitlines()]
    user = next(each["user"] for each in events if each["user"].get("username") == "alice")
    assert user["uid"] == "alice-uid" and {"devs", "system:authenticated"} <= set(user["groups"])
    create_own(server, BINDINGS, bind_own("devs"))
    assert alice.get_names("apps") == []
    with server.client() as admin:
        assert admin.delete(f"{MANAGEMENT}{BINDINGS}/devs").status_code == 200
    assert "cannot list" in alice.expect_failure("get", "apps")
    revoke(host)


def bind_in(namespace: str, subject: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Role with all rights in a namespace, and its binding. As objects of the host, or of this server."""
    meta = {"name": f"all-{subject['kind'].lower()}", "namespace": namespace}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    return (
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            **{"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "subjects": [subject]},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": meta["name"]},
        },
    )


def create_twin(aggregated: Aggregated, name: str) -> None:
    """A namespace of the host, and one of this server with the same name and an object."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    aggregated.host.apply(namespace)
    create_own(aggregated.server, "/api/v1/namespaces", namespace)
    path = f"/apis/{GROUP}/v1/namespaces/{name}/sharedsecrets"
    create_own(aggregated.server, path, shared_secret("mine", name))


def test_service_accounts_of_the_host_are_not_those_of_this_server(aggregated: Aggregated) -> None:
    host, server = aggregated.host, aggregated.server
    create_twin(aggregated, "accounts")
    account = {"kind": "ServiceAccount", "name": "ci", "namespace": "accounts"}
    meta = {"name": "ci", "namespace": "accounts"}
    host.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}, *bind_in("accounts", account))
    path = f"/apis/{RBAC}/v1/namespaces/accounts"

    def bind(subject: dict[str, str]) -> None:
        role, binding = bind_in("accounts", subject)
        create_own(server, f"{path}/roles", role)
        create_own(server, f"{path}/rolebindings", binding)

    bind(account)
    kubectl = host.kubectl(host.kubectl()("create", "token", "ci", "-n", "accounts").strip())
    listing = "get", "sharedsecrets", "-n", "accounts"
    assert 'User "host:system:serviceaccount:accounts:ci" cannot list' in kubectl.expect_failure(*listing)
    bind({"apiGroup": RBAC, "kind": "User", "name": "host:system:serviceaccount:accounts:ci"})
    assert "mine" in kubectl(*listing)


# --- who is a front proxy ---------------------------------------------------------------------------------------------


def test_only_the_proxy_certificate_of_the_host_may_name_users(aggregated: Aggregated) -> None:
    with proxy_client(aggregated, PROXY_NAME) as proxy:
        assert proxy.get(APPS, headers=ROOT_HEADERS).status_code == 200
    with proxy_client(aggregated, "someone-else") as other:
        assert other.get(APPS, headers=ROOT_HEADERS).status_code == 401
    with proxy_client(aggregated, None) as plain, pytest.raises(httpx.TransportError):
        plain.get(APPS, headers=ROOT_HEADERS)
    with aggregated.server.client(None) as main:
        assert main.get(f"{MANAGEMENT}{APPS}", headers=ROOT_HEADERS).status_code == 401
        assert main.get(APPS, headers=ROOT_HEADERS).status_code in (401, 404)


def test_changes_of_the_config_map_apply_without_a_restart(aggregated: Aggregated) -> None:
    """kube-apiserver adds its own values to what is in the ConfigMap, and never removes those of others."""
    kubectl, key = aggregated.host.kubectl(), "requestheader-allowed-names"

    def set_names(*names: str) -> None:
        kubectl("patch", *CONFIG_MAP, "-p", json.dumps({"data": {key: json.dumps(names)}}))

    def status_of(name: str) -> int:
        with proxy_client(aggregated, name) as client:
            return client.get(APPS, headers=ROOT_HEADERS).status_code

    assert status_of("second-proxy") == 401
    set_names(PROXY_NAME, "second-proxy")
    wait_until(lambda: status_of("second-proxy") == 200)
    set_names(PROXY_NAME)
    wait_until(lambda: status_of("second-proxy") == 401)
    kubectl("patch", *CONFIG_MAP, "-p", json.dumps({"data": {key: "not a list"}}))
    wait_until(lambda: f"{key} is not a JSON list" in aggregated.server.log.read_text())
    assert status_of(PROXY_NAME) == 200, "what is not usable changes nothing"
    set_names(PROXY_NAME)  # kube-apiserver does not repair it either


def test_the_ca_of_the_host_is_rotated(aggregated: Aggregated, tmp_path: Path) -> None:
    """kube-apiserver reads the CA and its client certificate again, and publishes the old and the new CA."""
    host, kubectl = aggregated.host, aggregated.host.kubectl()
    renewed = create_authority(tmp_path / "renewed", "Renewed front proxies")
    with proxy_client(aggregated, PROXY_NAME, renewed) as early, pytest.raises(httpx.TransportError):
        early.get(APPS, headers=ROOT_HEADERS)
    host.proxies.file.write_bytes(host.proxies.file.read_bytes() + renewed.file.read_bytes())

    def is_accepted() -> bool:
        try:
            with proxy_client(aggregated, PROXY_NAME, renewed) as client:
                return client.get(APPS, headers=ROOT_HEADERS).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(is_accepted, 120)
    cert, private_key = renewed.issue("proxy-client", PROXY_NAME, (), CLIENT_AUTH)
    for source, name in ((private_key, "proxy-client.key"), (cert, "proxy-client.crt")):
        (host.proxies.folder / name).write_bytes(source.read_bytes())
    assert kubectl.get_names("apps") == []


# --- controllers of the host ------------------------------------------------------------------------------------------


def test_a_namespace_of_the_host_can_be_deleted_and_objects_here_stay(
    aggregated: Aggregated, record_figure: Callable[[str], None]
) -> None:
    host, server = aggregated.host, aggregated.server
    kubectl, path = host.kubectl(), f"/apis/{GROUP}/v1/namespaces/twin/sharedsecrets"
    create_own(server, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "twin"}})
    create_own(server, path, shared_secret("mine", "twin"))
    for name in ("twin", "unknown-here"):
        kubectl("create", "namespace", name)
        seconds = seconds_until(lambda name=name: kubectl("delete", "namespace", name, "--timeout=60s"))  # type: ignore[misc]
        record_figure(f"{name} deleted in {seconds:.1f} s")
    assert exists_own(server, f"{path}/mine")


def test_the_garbage_collector_of_the_host_works_and_leaves_objects_here_alone(aggregated: Aggregated) -> None:
    host, server = aggregated.host, aggregated.server
    kubectl, secrets = host.kubectl(), f"/apis/{GROUP}/v1/namespaces/default/sharedsecrets"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": "default"}}
    created = create_own(server, "/api/v1/namespaces/default/configmaps", owner)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": created["metadata"]["uid"]}
    create_own(server, secrets, shared_secret("owned-here", "default", ownerReferences=[reference]))
    kubectl("apply", "-f", "-", body=json.dumps(app("owner")))
    uid = kubectl("get", "app", "owner", "-o", "jsonpath={.metadata.uid}")
    dependent = {"apiVersion": f"{GROUP}/v1", "kind": "App", "name": "owner", "uid": uid}
    meta = {"name": "dependent", "namespace": "default", "ownerReferences": [dependent]}
    host.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    kubectl("delete", "app", "owner")
    wait_until(lambda: kubectl.run("get", "configmap", "dependent").returncode != 0, 120, "it is collected")
    assert exists_own(server, f"{secrets}/owned-here")
    assert "owned-here" not in host.controller_log()


def test_controllers_without_identities_of_their_own(binaries: Path, tmp_path: Path) -> None:
    """They act as an administrator, and are recognized by their user agent."""
    with running_host(binaries, tmp_path / "host") as host, running_behind(host, tmp_path / "fairlead") as aggregated:
        path = f"/apis/{GROUP}/v1/namespaces/twin/sharedsecrets"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "twin"}}
        create_own(aggregated.server, "/api/v1/namespaces", namespace)
        create_own(aggregated.server, path, shared_secret("mine", "twin"))
        host.kubectl()("create", "namespace", "twin")
        host.kubectl()("delete", "namespace", "twin", "--timeout=60s")
        assert exists_own(aggregated.server, f"{path}/mine")


# --- authorization by the host ----------------------------------------------------------------------------------------


BINDINGS = f"/apis/{RBAC}/v1/clusterrolebindings"


def bind_own(group: str) -> dict[str, Any]:
    """A binding of this server that makes a group administrators."""
    return {
        **{"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": group}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}],
    }


def grant(host: Host, *verbs: str) -> None:
    rules = [{"apiGroups": [GROUP], "resources": ["apps"], "verbs": list(verbs)}]
    host.apply(
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "apps"}, "rules": rules},
        {
            **{"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "apps"}},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "apps"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "alice"}],
        },
    )


def revoke(host: Host) -> None:
    host.kubectl()("delete", "clusterrolebinding", "apps", "--ignore-not-found")


def test_the_host_decides_with_access_reviews(host: Host, tmp_path: Path, record_figure: Callable[[str], None]) -> None:
    """Directly at the port for front proxies: kube-apiserver would not forward what it denies."""
    revoke(host)
    headers = {"X-Remote-User": "alice", "X-Remote-Group": "devs"}
    with running_behind(host, tmp_path, aggregated_api_authorization="host") as behind:
        create_own(behind.server, BINDINGS, bind_own("devs"))
        with proxy_client(behind, PROXY_NAME) as proxy:

            def status_of(method: str, path: str = APPS, **options: Any) -> int:
                return proxy.request(
                    method, path, headers={**headers, **options.pop("headers", {})}, **options
                ).status_code

            assert status_of("GET") == 403, "what this server allows does not count"
            grant(host, "get", "list", "watch", "patch")
            record_figure(f"granted after {seconds_until(lambda: status_of('GET') == 200):.1f} s")
            apply: dict[str, Any] = {
                "params": {"fieldManager": "test"},
                "content": json.dumps(app("granted")),
                "headers": {"Content-Type": "application/apply-patch+yaml"},
            }
            assert status_of("PATCH", f"{APPS}/granted", **apply) == 403, "applying creates"
            grant(host, "get", "list", "watch", "patch", "create")
            wait_until(lambda: status_of("PATCH", f"{APPS}/granted", **apply) == 201)
            assert status_of("DELETE", f"{APPS}/granted") == 403
            configmaps = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps"
            assert status_of("GET", configmaps) == 200, "this is no business of the host"
            with proxy.stream("GET", APPS, headers=headers, params={"watch": "1", "timeoutSeconds": "60"}) as watch:
                lines = watch.iter_lines()
                assert json.loads(next(lines))["object"]["metadata"]["name"] == "granted"
                revoke(host)
                last = [json.loads(line) for line in lines][-1]
                assert (last["type"], last["object"]["code"]) == ("ERROR", 403)
            assert status_of("GET") == 403
        host.kubectl()("delete", "app", "granted")
        host.kubectl()("create", "namespace", "reviewed")
        host.kubectl()("delete", "namespace", "reviewed", "--timeout=60s")


def test_rights_in_a_namespace_of_the_host_are_none_here(host: Host, tmp_path: Path) -> None:
    subject = {"apiGroup": RBAC, "kind": "User", "name": "alice"}
    with running_behind(host, tmp_path, aggregated_api_authorization="host") as behind:
        create_twin(behind, "reviews")
        host.apply(*bind_in("reviews", subject))
        alice = host.kubectl(ALICE_TOKEN)
        assert alice("auth", "can-i", "get", "pods", "-n", "reviews").strip() == "yes"
        error = alice.expect_failure("get", "sharedsecrets", "-n", "reviews")
        assert 'User "alice" cannot list resource "sharedsecrets"' in error and "at the cluster scope" in error


def test_without_the_right_to_review_only_administrators_are_allowed(host: Host, tmp_path: Path) -> None:
    kubectl = host.kubectl()
    grant(host, "list")
    with running_behind(host, tmp_path, aggregated_api_authorization="host") as behind:
        kubectl("delete", "clusterrolebinding", "fairlead")
        try:
            assert kubectl.get_names("apps") == []
            error = wait_until(lambda: host.kubectl(ALICE_TOKEN).run("get", "apps").stderr)
            assert "cannot review the access of users" in error
            assert "bind the ClusterRole system:auth-delegator" in behind.server.log.read_text()
        finally:
            host.apply(*_delegation())


def _delegation() -> list[dict[str, Any]]:
    return [each for each in host_objects() if each["kind"] == "ClusterRoleBinding"]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_stopped_server_does_not_block_namespaces_once_the_apiservice_is_gone(
    host: Host, tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    kubectl = host.kubectl()
    with running_behind(host, tmp_path) as behind:
        behind.server.stop()
        wait_until(lambda: host.availability()["status"] == "False", 90, "it is unavailable")
        kubectl("create", "namespace", "stuck")
        kubectl("delete", "namespace", "stuck", "--wait=false")
        condition = wait_until(
            lambda: [
                each
                for each in kubectl.get_json("namespace", "stuck")["status"].get("conditions", ())
                if each["type"] == "NamespaceDeletionDiscoveryFailure" and each["status"] == "True"
            ],
            60,
        )[0]
        assert GROUP in condition["message"]
        kubectl("delete", "apiservice", API_SERVICE)
        seconds = seconds_until(lambda: kubectl.run("get", "namespace", "stuck").returncode != 0, 120)
        record_figure(f"deleted {seconds:.1f} s after the APIService")


def test_the_server_starts_before_the_host_and_waits_for_its_rights(
    host: Host, tmp_path: Path, record_figure: Callable[[str], None]
) -> None:
    host.kubectl()("delete", "rolebinding", "fairlead", "-n", "kube-system")
    port = free_port()
    settings: dict[str, str | int] = {
        **{"aggregated_api": "host", "host_kubeconfig": str(host.account_kubeconfig()), "requestheader_port": port},
        "tls_names": "fairlead.fairlead.svc",
    }
    with running_server(tmp_path / "data", **settings) as server:
        wait_until(lambda: "extension-apiserver-authentication-reader" in server.log.read_text())
        with server.client() as admin:
            assert admin.get(f"{MANAGEMENT}{APPS}").status_code == 200
        # The port is reserved, but accepts no connection before it knows whose certificates to trust.
        with proxy_client(Aggregated(host, server, port), PROXY_NAME) as proxy, pytest.raises(httpx.ConnectTimeout):
            proxy.get(APPS, headers=ROOT_HEADERS, timeout=2)
        host.apply(*host_objects())
        host.register(server, port)
        record_figure(f"available after {host.wait_available():.1f} s")
        assert host.kubectl().get_names("apps") == []
        host.unregister()
