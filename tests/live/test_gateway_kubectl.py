"""kubectl through a gateway, as somebody who may use the cluster and has a key for it and nothing else.

The cluster of the first half is another Fairlead in a process of its own, added with `fairlead cluster add`; that of
the second half has a pod to run commands in, to attach to, to forward a port of and to read the log of.
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
from tests.harness.gateways import (
    M,
    connect,
    create_user,
    gateway_path,
    grant,
    is_online,
    key_of,
    kubeconfig,
    kubectl_at,
    wait_until,
)
from tests.harness.kubectl import Kubectl
from tests.harness.server_process import MANAGEMENT, ROOT, TIMEOUT_SECONDS, Server, configmap, environment, running

CONFIGMAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}


@dataclass(frozen=True, slots=True)
class World:
    """Two servers, of which one is a cluster of the other, `berlin`; and a cluster with a pod, `oslo`."""

    near: Server
    far: Server
    pods: FakeCluster
    program: Path
    folder: Path

    def kubectl(self, cluster: str, key: str, name: str) -> Kubectl:
        return kubectl_at(self.program, self.folder / name, kubeconfig(self.near, gateway_path(cluster), key))


@pytest.fixture(scope="module")
def world(component: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, program = tmp_path_factory.mktemp("gateway"), component("kubectl")
    with running(folder / "near") as near, running(folder / "far") as far, FakeCluster() as pods:
        serve_pod(pods)
        yield World(near, far, pods, program, folder)


def fairlead(folder: Path, *arguments: str) -> str:
    """The command-line tool, with the logins that are in the folder."""
    variables = environment() | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", *arguments],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def berlin(world: World) -> str:
    """The second server as a cluster of the first. Ada may use it, and write ConfigMaps in it."""
    admins = world.folder / "admin"
    admins.mkdir()
    (admins / "far").write_text(kubeconfig(world.far, MANAGEMENT, world.far.key))
    fairlead(admins, "login", world.near.url, "--key", world.near.key, "--ca-file", world.near.ca_file)
    said = fairlead(admins, "cluster", "add", "berlin", "--kubeconfig", str(admins / "far"))
    assert "connected" in said, said
    with world.near.client() as admin, world.far.client() as far_admin:
        create_user(admin, "ada", "berlin", "use")
        grant(far_admin, "adas", "fairlead:ada", [CONFIGMAPS])
        return key_of(admin, "ada", "adas-own-berlin", scope={"clusters": [{"cluster": "berlin"}]})


@pytest.fixture(scope="module")
def adas(world: World, berlin: str) -> Kubectl:
    return world.kubectl("berlin", berlin, "ada")


def manifest(name: str, **data: str) -> str:
    return json.dumps(configmap(name, **data))


def test_what_is_applied_arrives_and_what_is_deleted_goes(adas: Kubectl, world: World) -> None:
    assert adas("apply", "-f", "-", body=manifest("older", a="1")) == "configmap/older created\n"
    assert adas("apply", "-f", "-", body=manifest("older", a="2")) == "configmap/older configured\n"
    assert adas("apply", "-f", "-", body=manifest("older", a="2")) == "configmap/older unchanged\n"
    with world.far.client() as far_admin:
        path = f"{MANAGEMENT}/api/v1/namespaces/default/configmaps/older"
        assert far_admin.get(path).json()["data"] == {"a": "2"}
        assert adas("delete", "configmap", "older").startswith('configmap "older" deleted')
        assert far_admin.get(path).status_code == 404


def test_server_side_apply_names_conflicts(adas: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    adas(*apply, "--field-manager=one", body=manifest("newer", a="1", b="1"))
    assert adas.read("configmap", "newer")["data"] == {"a": "1", "b": "1"}
    assert "conflict" in adas.refused(*apply, "--field-manager=two", body=manifest("newer", a="2"))
    adas(*apply, "--field-manager=one", body=manifest("newer", a="3"))
    assert adas.read("configmap", "newer")["data"] == {"a": "3"}


def test_a_watch_shows_changes_as_they_are_made(adas: Kubectl) -> None:
    with adas.watching("get", "configmaps", "-w", "--no-headers", "--output-watch-events") as watch:
        lines = watch.stdout
        assert lines is not None
        adas("create", "configmap", "seen")
        adas("delete", "configmap", "seen")
        told = [_next_about("seen", lines), _next_about("seen", lines)]
    assert told == [["ADDED", "seen"], ["DELETED", "seen"]]


def _next_about(name: str, lines: IO[str]) -> list[str]:
    return next(line.split()[:2] for line in iter(lines.readline, "") if name in line.split())


def test_the_clusters_own_kinds_are_found_and_explained(adas: Kubectl) -> None:
    assert "configmaps" in adas("api-resources", "-o", "name").split()
    assert "binaryData" in adas("explain", "configmap")


def test_rights_inside_are_the_clusters_to_give(adas: Kubectl) -> None:
    assert adas("auth", "can-i", "create", "configmaps").strip() == "yes"
    assert adas.differing("auth", "can-i", "get", "secrets").strip() == "no"
    told = json.loads(adas("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert told["username"] == "fairlead:ada"
    refused = adas.refused("get", "secrets")
    assert 'User "fairlead:ada" cannot list resource "secrets"' in refused


def test_an_administrators_key_is_no_administrators_key_in_the_cluster(world: World, berlin: str) -> None:
    """The group that it comes with is bound there, or not; Kubernetes' own it never has."""
    ruling = world.kubectl("berlin", world.near.key, "admin-of-near")
    told = json.loads(ruling("auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert "fairlead:service:admins" in told["groups"] and "system:masters" not in told["groups"]


def test_t19_kubectl_impersonates_by_the_rules_of_this_server(world: World, adas: Kubectl) -> None:
    ruling = world.kubectl("berlin", world.near.key, "impersonating")
    told = json.loads(ruling("auth", "whoami", "-o", "json", "--as", "ada"))["status"]["userInfo"]
    assert told["username"] == "fairlead:ada" and "fairlead:service:admins" not in told["groups"]
    assert told["extra"] == {"service.sh/impersonator": ["fairlead:admin"]}
    assert ruling("auth", "can-i", "create", "configmaps", "--as", "ada").strip() == "yes"
    assert ruling.differing("auth", "can-i", "get", "secrets", "--as", "ada").strip() == "no"
    assert "(Forbidden)" in ruling.refused("get", "configmaps", "--as", "stranger")
    path = "/api/v1/namespaces/default/configmaps"
    assert "cannot impersonate" in adas.refused("get", "--raw", path, "--as", "root", "--as-group", "system:masters")


def why_kept_out(server: Server, key: str) -> str:
    """The whole answer: of a refused discovery kubectl tells its reason alone."""
    with server.client(key) as client:
        answer = client.get(f"{gateway_path('berlin')}/api/v1/namespaces/default/configmaps")
    assert answer.status_code == 403 and answer.json()["reason"] == "Forbidden", answer.text
    message: str = answer.json()["message"]
    return message


def test_t14_whoever_may_not_use_a_cluster_is_kept_out(world: World, berlin: str) -> None:
    with world.near.client() as admin:
        reader = create_user(admin, "reader", "berlin", "get", "list", "watch", "create", "update", "delete")
        nobody = create_user(admin, "nobody", "berlin")
    for someone in (reader, nobody):
        kubectl = world.kubectl("berlin", someone.key, someone.name)
        for command in (("get", "configmaps"), ("exec", "p", "--", "cat"), ("port-forward", "p", ":80")):
            assert "(Forbidden)" in kubectl.refused(*command)
        assert f'User "{someone.name}" cannot use resource "clusters"' in why_kept_out(world.near, someone.key)
    with world.near.client(reader.key) as client:
        assert client.get(f"{M}/clusters/berlin").status_code == 200


def test_a_key_for_another_cluster_is_kept_out(world: World, berlin: str) -> None:
    with world.near.client() as admin:
        other = key_of(admin, "ada", "adas-other", scope={"clusters": [{"cluster": "paris"}]})
        empty = key_of(admin, "ada", "adas-empty", scope={})
    for name, key in (("other", other), ("empty", empty)):
        assert "(Forbidden)" in world.kubectl("berlin", key, name).refused("get", "configmaps")
        assert f'outside the scope of access key "adas-{name}"' in why_kept_out(world.near, key)


def test_a_rule_in_a_scope_is_held_against_what_is_asked_inside(world: World, berlin: str) -> None:
    with world.near.client() as admin:
        configmaps = {"group": "", "resources": ["configmaps"]}
        rules = [{"cluster": "berlin", "verbs": ["get", "list"], "resources": [configmaps], "namespaces": ["default"]}]
        key = key_of(admin, "ada", "adas-reading", scope={"rules": rules})
    reading = world.kubectl("berlin", key, "reading")
    reading("get", "configmaps")
    assert "configmaps" in reading("api-resources", "-o", "name").split()
    assert "binaryData" in reading("explain", "configmap")
    assert reading("auth", "can-i", "create", "configmaps").strip() == "yes"  # what ada may do, whatever the key may
    assert json.loads(reading("auth", "whoami", "-o", "json"))["status"]["userInfo"]["username"] == "fairlead:ada"
    refused = reading.refused("create", "configmap", "never")
    assert 'does not allow "create" on "configmaps" in namespace "default" of cluster "berlin"' in refused


def test_fairlead_writes_the_context(world: World, berlin: str) -> None:
    folder = world.folder / "adas-home"
    folder.mkdir()
    fairlead(folder, "login", world.near.url, "--key", berlin, "--ca-file", world.near.ca_file)
    fairlead(folder, "kubeconfig", "--cluster", "berlin", "--output", str(folder / "context"))
    kubectl = Kubectl(world.program, folder / "context", folder)
    kubectl("create", "configmap", "from-a-written-context")
    assert "from-a-written-context" in kubectl.names("configmaps")


@pytest.fixture(scope="module")
def oslos(world: World) -> Kubectl:
    """For the cluster with a pod."""
    with world.near.client() as admin:
        connect(admin, "oslo", world.pods.build_kubeconfig(token="oslos-own"))
        wait_until(lambda: is_online(admin, "oslo"))
        bo = create_user(admin, "bo", "oslo", "use")
    return world.kubectl("oslo", bo.key, "bo")


def test_exec_reads_and_prints_and_ends_with_the_commands_code(oslos: Kubectl, world: World) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    assert oslos("exec", "-i", "p", "--", "cat", body=text) == text
    asked = next(each for each in world.pods.requests if each.path == f"{POD_PATH}/exec")
    assert asked.header("upgrade").lower() == "websocket" and asked.header("impersonate-user") == "fairlead:bo"
    assert asked.header("authorization") == "Bearer oslos-own"
    failed = oslos.outcome("exec", "p", "--", "exit", "7")
    assert (failed.returncode, failed.stdout) == (7, "")
    assert "that went wrong" in failed.stderr


def test_attach_shows_and_takes(oslos: Kubectl) -> None:
    assert oslos("attach", "-i", "p", body="hello\n").splitlines() == ["attached", "hello"]


def test_logs_are_read_and_followed(oslos: Kubectl) -> None:
    assert oslos("logs", "p") == LOG_TEXT
    with oslos.watching("logs", "-f", "p") as following:
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(3)] == LOG_TEXT.splitlines(keepends=True)


def test_a_forwarded_port_carries_bytes_both_ways(oslos: Kubectl) -> None:
    content = os.urandom(300_000)
    with oslos.watching("port-forward", "pod/p", ":80") as forwarding:
        assert forwarding.stdout is not None
        port = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
        assert port is not None
        for _ in range(2):  # each connection is a stream of its own in the same tunnel
            with socket.create_connection(("127.0.0.1", int(port[1])), TIMEOUT_SECONDS) as connection:
                connection.sendall(content)
                assert _taken(connection, len(content)) == content


def _taken(connection: socket.socket, count: int) -> bytes:
    arrived = b""
    while len(arrived) < count and (piece := connection.recv(65536)):
        arrived += piece
    return arrived


@pytest.mark.parametrize("version", ["1.20", "1.32"])
def test_older_versions_apply_read_and_watch(adas: Kubectl, component: Callable[[str], Path], version: str) -> None:
    old = Kubectl(component(f"kubectl-{version}"), adas.kubeconfig, adas.home)
    name = f"by-{version}"
    assert old("apply", "-f", "-", body=manifest(name, a="1")) == f"configmap/{name} created\n"
    assert old.read("configmap", name)["data"] == {"a": "1"}
    with old.watching("get", "configmap", name, "-w", "--no-headers", "--output-watch-events") as watch:
        assert watch.stdout is not None and _next_about(name, watch.stdout) == ["ADDED", name]
        old("delete", "configmap", name)
        assert _next_about(name, watch.stdout) == ["DELETED", name]


def test_1_32_runs_commands_in_pods(oslos: Kubectl, component: Callable[[str], Path]) -> None:
    older = Kubectl(component("kubectl-1.32"), oslos.kubeconfig, oslos.home)
    assert older("exec", "-i", "p", "--", "cat", body="hello\n") == "hello\n"


def test_a_kubectl_without_web_sockets_is_told_what_to_do(oslos: Kubectl, component: Callable[[str], Path]) -> None:
    oldest = Kubectl(component("kubectl-1.20"), oslos.kubeconfig, oslos.home)
    assert "kubectl 1.31 or newer" in oldest.refused("exec", "p", "--", "cat")


KUBECTLS = ["kubectl", "kubectl-1.32", "kubectl-1.20"]


@pytest.mark.parametrize("name", KUBECTLS)
def test_what_the_cluster_refuses_is_told_in_its_words(
    oslos: Kubectl, component: Callable[[str], Path], name: str
) -> None:
    """kubectl turns to SPDY when it gets no WebSocket, and shows the answer to that."""
    kubectl = Kubectl(component(name), oslos.kubeconfig, oslos.home)
    for command in (("exec", "pending", "--", "cat"), ("attach", "pending")):
        told = kubectl.refused(*command)
        assert "pod pending does not have a host assigned" in told and "SPDY" not in told


@pytest.mark.parametrize("name", KUBECTLS)
def test_a_cluster_that_is_away_is_told_of(
    world: World, component: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Discovery comes first, and of most errors in it kubectl shows no word that a server has said."""
    with FakeCluster() as gone:
        content = gone.build_kubeconfig()
    cluster = f"gone-{KUBECTLS.index(name)}"
    with world.near.client() as admin:
        connect(admin, cluster, content)
    config = kubeconfig(world.near, gateway_path(cluster), world.near.key)
    told = kubectl_at(component(name), tmp_path, config).refused("get", "pods")
    assert "the cluster is unreachable; check that it is running" in told
