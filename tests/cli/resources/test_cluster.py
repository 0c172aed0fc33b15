"""`fairlead cluster`: clusters connected from a kubeconfig, and checked probe by probe."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from fairlead.cli.resources.cluster_add import warn_loopback
from fairlead.client import Client
from fairlead.client.kubeconfig_export import ExportedKubeconfig
from tests.client.test_watch import END, lines
from tests.harness.cli import CliFixture, CommandResult
from tests.harness.fake_server import M, failure, items, named

CLUSTERS = f"{M}/clusters"
SECRETS = "/kubernetes/management/api/v1/namespaces/service-system/secrets"
SECRET = f"{SECRETS}/cluster-berlin"
EVENTS = "/kubernetes/management/api/v1/namespaces/default/events"
LABEL = "service.sh/cluster-kubeconfig"
SERVER = "https://berlin.example.com:6443"
TOKEN = "t-0123456789"

PROBES = [{"name": "version", "ok": True, "message": "v1.31.0"}, {"name": "readyz", "ok": True, "message": "ok"}]
TAKEN = (409, failure(409, "AlreadyExists", "it is there already"))


def condition(type: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason, "message": message}


def berlin(**status: Any) -> dict[str, Any]:
    config = {"secretName": "cluster-berlin", "secretNamespace": "service-system", "key": "config"}
    made = named("berlin", kind="Cluster", spec={"config": config}, status=status)
    made["metadata"]["uid"] = "1"
    return made


def healthy(**more: Any) -> dict[str, Any]:
    conditions = [condition("Connected", "True"), condition("Ready", "True")]
    status = {"phase": "Initialized", "online": True, "version": "v1.31.0", "nodes": 3}
    return berlin(**status, conditions=conditions, probes=PROBES, **more)


def offline(reason: str = "Unreachable", **more: Any) -> dict[str, Any]:
    told = condition("Connected", "False", reason, "nobody answers at its address")
    probes = [{"name": "version", "ok": False, "message": "nobody answers at its address"}]
    return berlin(phase="", reason="Offline", online=False, conditions=[told], probes=probes, **more)


def secret(**labels: str) -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"name": "cluster-berlin", "labels": labels}}


def changes(*states: dict[str, Any]) -> tuple[int, bytes]:
    """A watch that begins with a cluster nobody has looked at yet."""
    there = {"type": "ADDED", "object": berlin()}
    return lines(there, END, *({"type": "MODIFIED", "object": each} for each in states))


@pytest.fixture
def ops(user: CliFixture) -> CliFixture:
    """Somebody with a cluster in their kubeconfig, at a server where all goes well."""
    user.fake.on("POST", SECRETS, lambda request: (201, request.body))
    user.fake.on("POST", CLUSTERS, (201, berlin()))
    user.fake.on("GET", CLUSTERS, changes(healthy()))
    user.fake.on("DELETE", SECRET, (200, {}))
    user.fake.on("DELETE", f"{CLUSTERS}/berlin", (200, {}))
    for plural in ("spaceinstances", "virtualclusterinstances"):
        user.fake.on("GET", f"{M}/{plural}", items())
    user.fake.on("GET", EVENTS, items())
    keep_kubeconfig(user, {"token": TOKEN})
    return user


def keep_kubeconfig(cli: CliFixture, user: dict[str, Any]) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": SERVER}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "the desk", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "the desk",
    }
    path = cli.home / ".kube" / "config"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(config))


def add(cli: CliFixture, *flags: str) -> CommandResult:
    return cli.type("cluster", "add", "berlin", *flags)


def test_a_context_becomes_a_secret_and_a_cluster_that_names_it(ops: CliFixture) -> None:
    ended = add(ops, "--display-name", "Berlin", "--description", "the big one")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == [
        "created the cluster berlin from the context 'the desk'",
        "waiting for the server to connect to berlin",
        "the cluster berlin is connected: Kubernetes v1.31.0, 3 nodes",
        "`fairlead kubeconfig --cluster berlin` writes a kubectl context for it",
    ]
    stored = ops.fake.asked("POST", SECRETS)[0].body
    assert stored["metadata"] == {"name": "cluster-berlin", "labels": {LABEL: "berlin"}}
    kubeconfig = yaml.safe_load(base64.b64decode(stored["data"].pop("config")))
    assert kubeconfig["users"][0]["user"] == {"token": TOKEN}
    assert kubeconfig["clusters"][0]["cluster"] == {"server": SERVER}
    assert stored["data"] == {}
    assert ops.fake.asked("POST", CLUSTERS)[0].body == {
        "apiVersion": "management.service.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": "berlin"},
        "spec": {
            "displayName": "Berlin",
            "description": "the big one",
            "config": {"secretName": "cluster-berlin", "secretNamespace": "service-system", "key": "config"},
        },
    }


def test_the_credential_is_in_the_secret_and_nowhere_else(ops: CliFixture) -> None:
    ended = add(ops, "-o", "json")
    assert json.loads(ended.out)["metadata"]["name"] == "berlin"
    assert TOKEN not in ended.out + ended.err
    assert all(TOKEN not in str(each.body) for each in ops.fake.requests)


def test_nobody_needs_to_wait_until_it_is_connected(ops: CliFixture) -> None:
    ended = add(ops, "--no-wait", "-o", "name")
    assert (ended.code, ended.out) == (0, "cluster/berlin\n")
    assert ops.fake.asked("GET", CLUSTERS) == []


def test_another_file_and_another_context_can_be_named(ops: CliFixture) -> None:
    source = ops.home / ".kube" / "config"
    other = source.rename(ops.home / "other")
    assert "--kubeconfig" in add(ops).err
    assert add(ops, "--kubeconfig", str(other)).code == 0
    assert ops.type("cluster", "add", "berlin", KUBECONFIG=str(other)).code == 0
    ended = add(ops, "--kubeconfig", str(other), "--kube-context", "none")
    assert (ended.code, "select one with --kube-context from the desk" in ended.err) == (1, True)


def test_what_is_wrong_is_said_probe_by_probe_and_left_to_be_mended(ops: CliFixture) -> None:
    trying = berlin(reason="Connecting", message="asking for its version")
    ops.fake.on("GET", CLUSTERS, changes(trying, offline()))
    ended = add(ops, "-o", "name")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines() == [
        "created the cluster berlin from the context 'the desk'",
        "waiting for the server to connect to berlin",
        "berlin: Connecting: asking for its version",
        "fairlead: the cluster berlin is not connected: Unreachable: nobody answers at its address",
        "  ✗ version   nobody answers at its address",
        "  the server retries by itself; `fairlead cluster check berlin` shows the status",
        "  to use another kubeconfig, run `fairlead cluster remove berlin`, then add it again",
    ]
    assert ops.fake.asked("DELETE", SECRET) == []
    assert ops.fake.asked("DELETE", f"{CLUSTERS}/berlin") == []


def test_a_cluster_that_has_failed_for_good_is_a_failure(ops: CliFixture) -> None:
    twice = berlin(phase="Failed", reason="ClusterUID", message="it is connected as munich, too")
    ops.fake.on("GET", CLUSTERS, changes(twice))
    ended = add(ops)
    assert ended.code == 1
    assert "is not connected: ClusterUID: it is connected as munich, too" in ended.err
    assert "after you have fixed it, the server reconnects by itself" in ended.err


def test_a_cluster_that_is_removed_meanwhile_is_told(ops: CliFixture) -> None:
    ops.fake.on("GET", CLUSTERS, lines(END))
    ended = add(ops)
    assert (ended.code, "was deleted while waiting" in ended.err) == (1, True)


def test_a_program_that_signs_in_is_refused_with_the_commands_that_help(ops: CliFixture) -> None:
    keep_kubeconfig(ops, {"exec": {"command": "cloud"}})
    ended = add(ops)
    assert (ended.code, ended.out) == (1, "")
    first, _, *commands = ended.err.splitlines()
    assert first.startswith(
        "fairlead: the context 'the desk' cannot be used by the server: it uses a credential plugin (exec)"
    )
    assert commands[0] == "  fairlead cluster role spaces | kubectl --context 'the desk' apply -f -"
    assert commands[-1] == "  fairlead cluster add berlin --kube-context fairlead-berlin"
    assert not any("cluster-admin" in line for line in commands)
    assert not ops.fake.requests


def test_a_token_does_not_help_against_a_missing_certificate_check(ops: CliFixture) -> None:
    path = ops.home / ".kube" / "config"
    path.write_text(path.read_text().replace("server:", "insecure-skip-tls-verify: true\n    server:"))
    ended = add(ops)
    assert ended.code == 1
    assert "set certificate-authority" in ended.err
    assert "kubectl" not in ended.err


@pytest.mark.parametrize(
    ("server", "own", "remarked"),
    [
        ("https://127.0.0.1:6443", "https://fairlead.example.com", True),
        ("https://localhost:6443", "https://fairlead.example.com", True),
        ("https://127.0.0.1:6443", "https://127.0.0.1:8443", False),
        (SERVER, "https://fairlead.example.com", False),
    ],
)
def test_an_address_of_this_machine_means_another_machine_to_a_server_elsewhere(
    server: str, own: str, remarked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(own) as client:
        warn_loopback(ExportedKubeconfig("one", server, b""), client)
    assert ("is a loopback address" in capsys.readouterr().err) is remarked


def test_a_name_that_is_taken_is_told_before_anything_is_stored(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, healthy()))
    ended = add(ops)
    assert ended.code == 1
    assert "the cluster berlin already exists; choose another name" in ended.err
    assert ops.fake.asked("POST", SECRETS) == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [(TAKEN, "the cluster berlin already exists"), ((403, failure(403, "Forbidden", "not for you")), "not for you")],
)
def test_where_no_cluster_can_be_made_no_secret_is_left(ops: CliFixture, answer: tuple[int, Any], told: str) -> None:
    ops.fake.on("POST", CLUSTERS, answer)
    ended = add(ops)
    assert (ended.code, told in ended.err) == (1, True)
    assert len(ops.fake.asked("DELETE", SECRET)) == 1


def test_the_secret_of_an_earlier_try_is_written_over(ops: CliFixture) -> None:
    ops.fake.on("POST", SECRETS, TAKEN)
    ops.fake.on("GET", SECRET, (200, secret(**{LABEL: "berlin"})))
    ops.fake.on("PATCH", SECRET, (200, {}))
    assert add(ops).code == 0
    (request,) = ops.fake.asked("PATCH", SECRET)
    assert list(request.body) == ["data"]


def test_the_secret_of_somebody_else_is_left_alone(ops: CliFixture) -> None:
    ops.fake.on("POST", SECRETS, TAKEN)
    ops.fake.on("GET", SECRET, (200, secret()))
    ended = add(ops)
    assert (ended.code, "was not created by this command" in ended.err) == (1, True)
    assert ops.fake.asked("PATCH", SECRET) == ops.fake.asked("POST", CLUSTERS) == []


def test_clusters_are_listed(ops: CliFixture) -> None:
    ops.fake.on("GET", CLUSTERS, items(healthy(), offline(), named("new")))
    header, *rows = (line.split() for line in ops.type("cluster", "list").out.splitlines())
    assert header == ["NAME", "PHASE", "ONLINE", "VERSION", "REASON", "AGE"]
    assert [row[:5] for row in rows] == [
        ["berlin", "Initialized", "true", "v1.31.0", "-"],
        ["berlin", "-", "false", "-", "Offline"],
        ["new", "-", "-", "-", "-"],
    ]
    ops.fake.on("GET", CLUSTERS, items())
    assert "connect one with `fairlead cluster add`" in ops.type("cluster", "list").err


def test_a_healthy_cluster_is_told_probe_by_probe(ops: CliFixture) -> None:
    now = datetime.now(UTC).isoformat()
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, healthy(lastProbeTime=now)))
    ended = ops.type("cluster", "check", "berlin")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "✓ version   v1.31.0",
        "✓ readyz    ok",
        "✓ the cluster berlin is connected: Kubernetes v1.31.0, 3 nodes",
    ]


def test_what_is_wrong_is_told_with_what_happens_next(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, offline()))
    ended = ops.type("cluster", "check", "berlin")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        "✗ version   nobody answers at its address",
        "✗ the cluster berlin is not connected: Unreachable: nobody answers at its address",
    ]
    assert ended.err == "the server retries by itself; `fairlead cluster check berlin` shows the status\n"


def test_a_cluster_that_answers_and_is_not_ready_is_not_healthy(ops: CliFixture) -> None:
    conditions = [condition("Connected", "True"), condition("Ready", "False", "NotReady", "etcd is down")]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, berlin(phase="Initialized", conditions=conditions)))
    ended = ops.type("cluster", "check", "berlin")
    assert ended.code == 1
    assert "✗ the cluster berlin is connected, but not healthy: NotReady: etcd is down" in ended.out


def test_a_probe_that_failed_is_trouble_enough(ops: CliFixture) -> None:
    useless = healthy()
    useless["status"]["probes"] = [*PROBES, {"name": "impersonation", "ok": False, "message": "bind it to a role"}]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, useless))
    ended = ops.type("cluster", "check", "berlin")
    assert (ended.code, "not healthy: impersonation: bind it to a role" in ended.out) == (1, True)
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (404, failure(404, "NotFound", "no such cluster")))
    ops.fake.on("GET", CLUSTERS, changes(useless))
    ended = add(ops)
    assert (ended.code, "✗ impersonation   bind it to a role" in ended.err) == (1, True)


def test_rights_that_administrators_lack_are_told_and_no_failure(ops: CliFixture) -> None:
    unbound = healthy()
    unbound["status"]["conditions"].append(condition("AdministratorsBound", "False", "Forbidden", "bind them yourself"))
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, unbound))
    ended = ops.type("cluster", "check", "berlin")
    assert (ended.code, ended.err) == (0, "bind them yourself\n")


def test_a_check_for_programs_has_the_same_exit_code(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, offline()))
    ended = ops.type("cluster", "check", "berlin", "-o", "json")
    assert ended.code == 1
    assert json.loads(ended.out)["status"]["reason"] == "Offline"


def test_old_news_are_told_to_be_old(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, healthy(lastProbeTime="2026-01-01T00:00:00Z")))
    assert "the last probe was" in ops.type("cluster", "check", "berlin").err


def test_a_cluster_without_a_kubeconfig_is_told_to_have_none(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, named("berlin", spec={})))
    ended = ops.type("cluster", "check", "berlin")
    assert (ended.code, "the server has not probed it yet" in ended.out) == (1, True)
    assert "it has no kubeconfig" in ended.err


def test_the_key_of_an_agent_stands_alone_on_stdout(ops: CliFixture) -> None:
    told = {"kind": "ClusterAccessKey", "accessKey": "fairlead_agent-key"}
    ops.fake.on("GET", f"{CLUSTERS}/berlin/accesskey", (200, told))
    assert ops.type("cluster", "key", "berlin").out == "fairlead_agent-key\n"
    assert json.loads(ops.type("cluster", "key", "berlin", "-o", "json").out) == told
