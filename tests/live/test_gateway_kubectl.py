"""kubectl through a gateway, with a key that may only use one cluster.

The cluster of the first half is another Fairlead process, added with `fairlead cluster add`; that of the second half
has a pod for exec, attach, port-forward and logs.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.fake_cluster.pods import LOG_TEXT, POD_PATH, serve_pod
from tests.fake_cluster.server import FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import (
    M,
    bind_role,
    build_kubectl,
    connect_cluster,
    create_key,
    create_user,
    gateway_kubeconfig,
    gateway_path,
    is_online,
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import (
    MANAGEMENT,
    ROOT,
    TIMEOUT_SECONDS,
    Server,
    configmap,
    running_server,
    server_environment,
)

CONFIGMAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}


@dataclass(frozen=True, slots=True)
class GatewayFixture:
    """A server, a second one that is its cluster `berlin`, and its cluster `oslo`, which has a pod."""

    server: Server
    remote: Server
    pods: FakeCluster
    program: Path
    folder: Path

    def kubectl(self, cluster: str, key: str, name: str) -> Kubectl:
        return build_kubectl(
            self.program, self.folder / name, gateway_kubeconfig(self.server, gateway_path(cluster), key)
        )


@pytest.fixture(scope="module")
def gateway(component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayFixture]:
    folder, program = tmp_path_factory.mktemp("gateway"), component("kubectl")
    with (
        running_server(folder / "server") as server,
        running_server(folder / "remote") as remote,
        FakeCluster() as pods,
    ):
        serve_pod(pods)
        yield GatewayFixture(server, remote, pods, program, folder)


def run_fairlead(folder: Path, *arguments: str) -> str:
    """Runs the command-line tool with the logins in the folder."""
    variables = server_environment() | {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "COLUMNS": "200",
    }
    result = subprocess.run(
        [sys.executable, "-m", "fairlead", *arguments],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def ada_key(gateway: GatewayFixture) -> str:
    """Adds the second server as a cluster; returns a key of ada, who may use it and write ConfigMaps in it."""
    admin_home = gateway.folder / "admin"
    admin_home.mkdir()
    (admin_home / "remote").write_text(gateway_kubeconfig(gateway.remote, MANAGEMENT, gateway.remote.key))
    run_fairlead(
        admin_home, "login", gateway.server.url, "--key", gateway.server.key, "--ca-file", gateway.server.ca_file
    )
    output = run_fairlead(admin_home, "cluster", "add", "berlin", "--kubeconfig", str(admin_home / "remote"))
    assert "connected" in output, output
    with gateway.server.client() as admin, gateway.remote.client() as remote_admin:
        create_user(admin, "ada", "berlin", "use")
        bind_role(remote_admin, "adas", "fairlead:ada", [CONFIGMAPS])
        return create_key(admin, "ada", "adas-own-berlin", scope={"clusters": [{"cluster": "berlin"}]})


@pytest.fixture(scope="module")
def ada_kubectl(gateway: GatewayFixture, ada_key: str) -> Kubectl:
    return gateway.kubectl("berlin", ada_key, "ada")


def build_configmap(name: str, **data: str) -> str:
    return json.dumps(configmap(name, **data))


def test_apply_and_delete_reach_the_cluster(ada_kubectl: Kubectl, gateway: GatewayFixture) -> None:
    assert ada_kubectl("apply", "-f", "-", body=build_configmap("older", a="1")) == "configmap/older created\n"
    assert ada_kubectl("apply", "-f", "-", body=build_configmap("older", a="2")) == "configmap/older configured\n"
    assert ada_kubectl("apply", "-f", "-", body=build_configmap("older", a="2")) == "configmap/older unchanged\n"
    with gateway.remote.client() as remote_admin:
        path = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps/older"
        assert remote_admin.get(path).json()["data"] == {"a": "2"}
        assert ada_kubectl("delete", "configmap", "older").startswith('configmap "older" deleted')
        assert remote_admin.get(path).status_code == 404


def test_server_side_apply_reports_conflicts(ada_kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    ada_kubectl(*apply, "--field-manager=one", body=build_configmap("newer", a="1", b="1"))
    assert ada_kubectl.get_json("configmap", "newer")["data"] == {"a": "1", "b": "1"}
    assert "conflict" in ada_kubectl.expect_failure(*apply, "--field-manager=two", body=build_configmap("newer", a="2"))
    ada_kubectl(*apply, "--field-manager=one", body=build_configmap("newer", a="3"))
    assert ada_kubectl.get_json("configmap", "newer")["data"] == {"a": "3"}


def test_a_watch_prints_changes(ada_kubectl: Kubectl) -> None:
    with ada_kubectl.watching("get", "configmaps", "-w", "--no-headers", "--output-watch-events") as watch:
        lines = watch.stdout
        assert lines is not None
        ada_kubectl("create", "configmap", "seen")
        ada_kubectl("delete", "configmap", "seen")
        events = [read_next_event("seen", lines), read_next_event("seen", lines)]
    assert events == [["ADDED", "seen"], ["DELETED", "seen"]]


def read_next_event(name: str, lines: IO[str]) -> list[str]:
    return next(line.split()[:2] for line in iter(lines.readline, "") if name in line.split())


def test_api_resources_and_explain_show_the_kinds_of_the_cluster(ada_kubectl: Kubectl) -> None:
    assert "configmaps" in ada_kubectl("api-resources", "-o", "name").split()
    assert "binaryData" in ada_kubectl("explain", "configmap")


def test_permissions_in_the_cluster_are_those_of_its_rbac(ada_kubectl: Kubectl) -> None:
    assert ada_kubectl("auth", "can-i", "create", "configmaps").strip() == "yes"
    assert ada_kubectl.expect_diff("auth", "can-i", "get", "secrets").strip() == "no"
    user_info = json.loads(ada_kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert user_info["username"] == "fairlead:ada"
    error = ada_kubectl.expect_failure("get", "secrets")
    assert 'User "fairlead:ada" cannot list resource "secrets"' in error


def test_an_administrator_is_not_in_system_masters_of_the_cluster(gateway: GatewayFixture, ada_key: str) -> None:
    """Its group may be bound in the cluster, but it is never system:masters."""
    admin_kubectl = gateway.kubectl("berlin", gateway.server.key, "admin-kubectl")
    user_info = json.loads(admin_kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert "fairlead:service:admins" in user_info["groups"] and "system:masters" not in user_info["groups"]


def test_t19_impersonation_follows_the_permissions_of_this_server(
    gateway: GatewayFixture, ada_kubectl: Kubectl
) -> None:
    admin_kubectl = gateway.kubectl("berlin", gateway.server.key, "impersonating")
    user_info = json.loads(admin_kubectl("auth", "whoami", "-o", "json", "--as", "ada"))["status"]["userInfo"]
    assert user_info["username"] == "fairlead:ada" and "fairlead:service:admins" not in user_info["groups"]
    assert user_info["extra"] == {"service.sh/impersonator": ["fairlead:admin"]}
    assert admin_kubectl("auth", "can-i", "create", "configmaps", "--as", "ada").strip() == "yes"
    assert admin_kubectl.expect_diff("auth", "can-i", "get", "secrets", "--as", "ada").strip() == "no"
    assert "(Forbidden)" in admin_kubectl.expect_failure("get", "configmaps", "--as", "unknown")
    path = "/api/v1/namespaces/default/configmaps"
    assert "cannot impersonate" in ada_kubectl.expect_failure(
        "get", "--raw", path, "--as", "root", "--as-group", "system:masters"
    )


def get_forbidden_message(server: Server, key: str) -> str:
    """Returns the message of the response: for forbidden discovery, kubectl prints only the reason."""
    with server.client(key) as client:
        response = client.get(f"{gateway_path('berlin')}/api/v1/namespaces/default/configmaps")
    assert response.status_code == 403 and response.json()["reason"] == "Forbidden", response.text
    message: str = response.json()["message"]
    return message


def test_t14_users_without_the_verb_use_get_403(gateway: GatewayFixture, ada_key: str) -> None:
    with gateway.server.client() as admin:
        reader = create_user(admin, "reader", "berlin", "get", "list", "watch", "create", "update", "delete")
        unprivileged = create_user(admin, "nobody", "berlin")
    for user in (reader, unprivileged):
        kubectl = gateway.kubectl("berlin", user.key, user.name)
        for command in (("get", "configmaps"), ("exec", "p", "--", "cat"), ("port-forward", "p", ":80")):
            assert "(Forbidden)" in kubectl.expect_failure(*command)
        assert f'User "{user.name}" cannot use resource "clusters"' in get_forbidden_message(gateway.server, user.key)
    with gateway.server.client(reader.key) as client:
        assert client.get(f"{M}/clusters/berlin").status_code == 200


def test_a_key_for_another_cluster_gets_403(gateway: GatewayFixture, ada_key: str) -> None:
    with gateway.server.client() as admin:
        other = create_key(admin, "ada", "adas-other", scope={"clusters": [{"cluster": "paris"}]})
        empty = create_key(admin, "ada", "adas-empty", scope={})
    for name, key in (("other", other), ("empty", empty)):
        assert "(Forbidden)" in gateway.kubectl("berlin", key, name).expect_failure("get", "configmaps")
        assert f'outside the scope of access key "adas-{name}"' in get_forbidden_message(gateway.server, key)


def test_a_scope_rule_restricts_requests_to_the_cluster(gateway: GatewayFixture, ada_key: str) -> None:
    with gateway.server.client() as admin:
        configmaps = {"group": "", "resources": ["configmaps"]}
        rules = [{"cluster": "berlin", "verbs": ["get", "list"], "resources": [configmaps], "namespaces": ["default"]}]
        key = create_key(admin, "ada", "adas-reading", scope={"rules": rules})
    scoped_kubectl = gateway.kubectl("berlin", key, "reading")
    scoped_kubectl("get", "configmaps")
    assert "configmaps" in scoped_kubectl("api-resources", "-o", "name").split()
    assert "binaryData" in scoped_kubectl("explain", "configmap")
    # The cluster answers for ada, and does not know the scope of the key.
    assert scoped_kubectl("auth", "can-i", "create", "configmaps").strip() == "yes"
    assert (
        json.loads(scoped_kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]["username"] == "fairlead:ada"
    )
    error = scoped_kubectl.expect_failure("create", "configmap", "never")
    assert 'does not allow "create" on "configmaps" in namespace "default" of cluster "berlin"' in error


def test_a_context_written_by_fairlead_works(gateway: GatewayFixture, ada_key: str) -> None:
    folder = gateway.folder / "adas-home"
    folder.mkdir()
    run_fairlead(folder, "login", gateway.server.url, "--key", ada_key, "--ca-file", gateway.server.ca_file)
    run_fairlead(folder, "kubeconfig", "--cluster", "berlin", "--output", str(folder / "context"))
    kubectl = Kubectl(gateway.program, folder / "context", folder)
    kubectl("create", "configmap", "from-a-written-context")
    assert "from-a-written-context" in kubectl.get_names("configmaps")


@pytest.fixture(scope="module")
def bo_kubectl(gateway: GatewayFixture) -> Kubectl:
    """kubectl of bo, who may use the cluster with a pod."""
    with gateway.server.client() as admin:
        connect_cluster(admin, "oslo", gateway.pods.build_kubeconfig(token="oslos-own"))
        wait_until(lambda: is_online(admin, "oslo"))
        bo = create_user(admin, "bo", "oslo", "use")
    return gateway.kubectl("oslo", bo.key, "bo")


def test_exec_passes_stdin_stdout_and_the_exit_code(bo_kubectl: Kubectl, gateway: GatewayFixture) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    assert bo_kubectl("exec", "-i", "p", "--", "cat", body=text) == text
    request = next(each for each in gateway.pods.requests if each.path == f"{POD_PATH}/exec")
    assert request.header("upgrade").lower() == "websocket" and request.header("impersonate-user") == "fairlead:bo"
    assert request.header("authorization") == "Bearer oslos-own"
    failed = bo_kubectl.run("exec", "p", "--", "exit", "7")
    assert (failed.returncode, failed.stdout) == (7, "")
    assert "that went wrong" in failed.stderr


def test_attach_passes_stdin_and_stdout(bo_kubectl: Kubectl) -> None:
    assert bo_kubectl("attach", "-i", "p", body="hello\n").splitlines() == ["attached", "hello"]


def test_logs_are_read_and_followed(bo_kubectl: Kubectl) -> None:
    assert bo_kubectl("logs", "p") == LOG_TEXT
    with bo_kubectl.watching("logs", "-f", "p") as following:
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(3)] == LOG_TEXT.splitlines(keepends=True)


def test_a_forwarded_port_carries_bytes_both_ways(bo_kubectl: Kubectl) -> None:
    content = os.urandom(300_000)
    with bo_kubectl.watching("port-forward", "pod/p", ":80") as forwarding:
        assert forwarding.stdout is not None
        port = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
        assert port is not None
        for _ in range(2):  # each connection is another stream of the same tunnel
            with socket.create_connection(("127.0.0.1", int(port[1])), TIMEOUT_SECONDS) as connection:
                connection.sendall(content)
                assert receive_bytes(connection, len(content)) == content


def receive_bytes(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count and (data := connection.recv(65536)):
        received += data
    return received


@pytest.mark.parametrize("version", ["1.20", "1.32"])
def test_older_versions_apply_read_and_watch(
    ada_kubectl: Kubectl, component: Callable[[str], Path], version: str
) -> None:
    old = Kubectl(component(f"kubectl-{version}"), ada_kubectl.kubeconfig, ada_kubectl.home)
    name = f"by-{version}"
    assert old("apply", "-f", "-", body=build_configmap(name, a="1")) == f"configmap/{name} created\n"
    assert old.get_json("configmap", name)["data"] == {"a": "1"}
    with old.watching("get", "configmap", name, "-w", "--no-headers", "--output-watch-events") as watch:
        assert watch.stdout is not None and read_next_event(name, watch.stdout) == ["ADDED", name]
        old("delete", "configmap", name)
        assert read_next_event(name, watch.stdout) == ["DELETED", name]


def test_1_32_runs_commands_in_pods(bo_kubectl: Kubectl, component: Callable[[str], Path]) -> None:
    older = Kubectl(component("kubectl-1.32"), bo_kubectl.kubeconfig, bo_kubectl.home)
    assert older("exec", "-i", "p", "--", "cat", body="hello\n") == "hello\n"


def test_kubectl_without_websockets_gets_advice_to_upgrade(
    bo_kubectl: Kubectl, component: Callable[[str], Path]
) -> None:
    oldest = Kubectl(component("kubectl-1.20"), bo_kubectl.kubeconfig, bo_kubectl.home)
    assert "kubectl 1.31 or newer" in oldest.expect_failure("exec", "p", "--", "cat")


KUBECTL_VERSIONS = ["kubectl", "kubectl-1.32", "kubectl-1.20"]


@pytest.mark.parametrize("name", KUBECTL_VERSIONS)
def test_an_error_of_the_cluster_is_shown_with_its_message(
    bo_kubectl: Kubectl, component: Callable[[str], Path], name: str
) -> None:
    """kubectl falls back to SPDY without a WebSocket, and prints the response to that."""
    kubectl = Kubectl(component(name), bo_kubectl.kubeconfig, bo_kubectl.home)
    for command in (("exec", "pending", "--", "cat"), ("attach", "pending")):
        error = kubectl.expect_failure(*command)
        assert "pod pending does not have a host assigned" in error and "SPDY" not in error


@pytest.mark.parametrize("name", KUBECTL_VERSIONS)
def test_an_unreachable_cluster_is_reported(
    gateway: GatewayFixture, component: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Discovery comes first, and kubectl hides the message of most errors in it."""
    with FakeCluster() as stopped_cluster:
        content = stopped_cluster.build_kubeconfig()
    cluster = f"gone-{KUBECTL_VERSIONS.index(name)}"
    with gateway.server.client() as admin:
        connect_cluster(admin, cluster, content)
    config = gateway_kubeconfig(gateway.server, gateway_path(cluster), gateway.server.key)
    error = build_kubectl(component(name), tmp_path, config).expect_failure("get", "pods")
    assert "the cluster is unreachable; check that it is running" in error
