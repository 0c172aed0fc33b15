"""fairlead.cli.resources.cluster and cluster_add: clusters added from a kubeconfig, listed, and checked."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from fairlead.cli.resources.cluster_add import warn_loopback
from fairlead.client import Client
from fairlead.client.kubeconfig_export import ExportedKubeconfig
from tests.cli.resources.cluster_responses import (
    CLUSTERS,
    LABEL,
    PROBES,
    SECRET,
    SECRETS,
    SERVER,
    TOKEN,
    build_cluster,
    build_cluster_watch,
    build_condition,
    build_healthy_cluster,
    build_secret,
    write_kubeconfig,
)
from tests.harness.cli import CliFixture, CommandResult
from tests.harness.fake_server import build_object, failure_status, list_response
from tests.harness.watch_responses import END, build_watch_response

ALREADY_EXISTS = (409, failure_status(409, "AlreadyExists", "it is there already"))


def build_offline_cluster(reason: str = "Unreachable", **more: Any) -> dict[str, Any]:
    condition = build_condition("Connected", "False", reason, "connection refused")
    probes = [{"name": "version", "ok": False, "message": "connection refused"}]
    return build_cluster(phase="", reason="Offline", online=False, conditions=[condition], probes=probes, **more)


def add_cluster(cli: CliFixture, *flags: str) -> CommandResult:
    return cli.run("cluster", "add", "berlin", *flags)


def test_add_creates_a_secret_and_a_cluster_that_refers_to_it(ops: CliFixture) -> None:
    result = add_cluster(ops, "--display-name", "Berlin", "--description", "the big one")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == [
        "the cluster berlin is connected: Kubernetes v1.31.0, 3 nodes; "
        "`fairlead kubeconfig --cluster berlin` writes a kubectl context for it"
    ]
    stored = ops.fake.requests_to("POST", SECRETS)[0].body
    assert stored["metadata"] == {"name": "cluster-berlin", "labels": {LABEL: "berlin"}}
    kubeconfig = yaml.safe_load(base64.b64decode(stored["data"].pop("config")))
    assert kubeconfig["users"][0]["user"] == {"token": TOKEN}
    assert kubeconfig["clusters"][0]["cluster"] == {"server": SERVER}
    assert stored["data"] == {}
    assert ops.fake.requests_to("POST", CLUSTERS)[0].body == {
        "apiVersion": "management.service.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": "berlin"},
        "spec": {
            "displayName": "Berlin",
            "description": "the big one",
            "config": {"secretName": "cluster-berlin", "secretNamespace": "service-system", "key": "config"},
        },
    }


def test_the_credential_is_only_in_the_secret(ops: CliFixture) -> None:
    result = add_cluster(ops, "-o", "json")
    assert json.loads(result.out)["metadata"]["name"] == "berlin"
    assert TOKEN not in result.out + result.err
    assert all(TOKEN not in str(each.body) for each in ops.fake.requests)


def test_add_prints_each_step_of_the_wait_if_verbose(ops: CliFixture) -> None:
    assert add_cluster(ops, "--verbose").err.splitlines()[:-1] == [
        "waiting for the server to connect to berlin",
        "berlin: Connected is True",
        "berlin: Ready is True",
    ]


def test_add_with_no_wait_does_not_watch_the_cluster(ops: CliFixture) -> None:
    result = add_cluster(ops, "--no-wait", "-o", "name")
    assert (result.code, result.out) == (0, "cluster/berlin\n")
    assert ops.fake.requests_to("GET", CLUSTERS) == []


def test_another_kubeconfig_and_context_can_be_selected(ops: CliFixture) -> None:
    source = ops.home / ".kube" / "config"
    other = source.rename(ops.home / "other")
    assert "--kubeconfig" in add_cluster(ops).err
    assert add_cluster(ops, "--kubeconfig", str(other)).code == 0
    assert ops.run("cluster", "add", "berlin", KUBECONFIG=str(other)).code == 0
    result = add_cluster(ops, "--kubeconfig", str(other), "--kube-context", "none")
    assert (result.code, "select one with --kube-context from the desk" in result.err) == (1, True)


def write_own_kubeconfig(cli: CliFixture, server: str) -> str:
    """The kubeconfig of the server itself, which README's first session puts into $KUBECONFIG."""
    config = {
        "clusters": [{"name": "fairlead", "cluster": {"server": f"{server}/kubernetes/management"}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "fairlead", "context": {"cluster": "fairlead", "user": "admin"}}],
        "current-context": "fairlead",
    }
    path = cli.home / "admin.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_a_context_that_only_the_default_kubeconfig_has_is_found_there(ops: CliFixture) -> None:
    own = write_own_kubeconfig(ops, ops.fake.url)
    result = ops.run("cluster", "add", "berlin", "--kube-context", "the desk", KUBECONFIG=own)
    default = ops.home / ".kube" / "config"
    assert (result.code, result.err.splitlines()[0]) == (
        0,
        f"the context 'the desk' is not in $KUBECONFIG; using {default}",
    )
    stored = ops.fake.requests_to("POST", SECRETS)[0].body
    assert SERVER in base64.b64decode(stored["data"]["config"]).decode()


def test_the_advice_for_a_context_of_the_default_kubeconfig_names_that_file(ops: CliFixture) -> None:
    write_kubeconfig(ops, {"exec": {"command": "aws"}})
    own = write_own_kubeconfig(ops, ops.fake.url)
    result = ops.run("cluster", "add", "berlin", "--kube-context", "the desk", KUBECONFIG=own)
    assert (result.code, f"kubectl --kubeconfig {ops.home}/.kube/config" in result.err) == (1, True)


def test_a_context_of_no_file_is_an_error_that_lists_those_of_the_variable(ops: CliFixture) -> None:
    own = write_own_kubeconfig(ops, ops.fake.url)
    result = ops.run("cluster", "add", "berlin", "--kube-context", "typo", KUBECONFIG=own)
    assert (result.code, "no context 'typo'; select one with --kube-context from fairlead" in result.err) == (1, True)


def test_the_server_itself_is_never_connected_as_a_cluster(ops: CliFixture) -> None:
    for url in (ops.fake.url, ops.fake.url.replace("127.0.0.1", "localhost")):
        own = write_own_kubeconfig(ops, url)
        result = ops.run("cluster", "add", "berlin", KUBECONFIG=own)
        assert (result.code, "is this Fairlead server itself" in result.err) == (1, True), result.err
    assert ops.fake.requests_to("POST", SECRETS) == []


def test_a_failed_connection_is_reported_by_probe_and_nothing_is_deleted(ops: CliFixture) -> None:
    connecting = build_cluster(reason="Connecting", message="asking for its version")
    ops.fake.on("GET", CLUSTERS, build_cluster_watch(connecting, build_offline_cluster()))
    result = add_cluster(ops, "-o", "name")
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines() == [
        "fairlead: the cluster berlin is not connected: Unreachable: connection refused",
        "  the server retries by itself; `fairlead cluster check berlin` shows the status",
        "  to use another kubeconfig, run `fairlead cluster remove berlin`, then add it again",
    ]
    assert ops.fake.requests_to("DELETE", SECRET) == []
    assert ops.fake.requests_to("DELETE", f"{CLUSTERS}/berlin") == []


def test_a_cluster_in_phase_failed_is_an_error(ops: CliFixture) -> None:
    duplicate = build_cluster(phase="Failed", reason="ClusterUID", message="it is connected as munich, too")
    ops.fake.on("GET", CLUSTERS, build_cluster_watch(duplicate))
    result = add_cluster(ops)
    assert result.code == 1
    assert "is not connected: ClusterUID: it is connected as munich, too" in result.err
    assert "after you have fixed it, the server reconnects by itself" in result.err


def test_a_cluster_that_is_deleted_while_waiting_is_an_error(ops: CliFixture) -> None:
    ops.fake.on("GET", CLUSTERS, build_watch_response(END))
    result = add_cluster(ops)
    assert (result.code, "was deleted while waiting" in result.err) == (1, True)


def test_an_exec_credential_plugin_is_rejected_with_the_commands_to_run_instead(ops: CliFixture) -> None:
    write_kubeconfig(ops, {"exec": {"command": "cloud"}})
    result = add_cluster(ops)
    assert (result.code, result.out) == (1, "")
    first, _, *commands = result.err.splitlines()
    assert first.startswith(
        "fairlead: the context 'the desk' cannot be used by the server: it uses a credential plugin (exec)"
    )
    assert commands[0] == "  fairlead cluster role spaces renewal | kubectl --context 'the desk' apply -f -"
    assert commands[3] == "  fairlead cluster add berlin --kube-context fairlead-berlin"
    assert commands[-1] == "  fairlead cluster add berlin --agent | kubectl --context 'the desk' apply -f -"
    assert not any("cluster-admin" in line for line in commands)
    assert not ops.fake.requests


def test_the_error_for_a_skipped_tls_check_does_not_suggest_a_token(ops: CliFixture) -> None:
    path = ops.home / ".kube" / "config"
    path.write_text(path.read_text().replace("server:", "insecure-skip-tls-verify: true\n    server:"))
    result = add_cluster(ops)
    assert result.code == 1
    assert "set certificate-authority" in result.err
    assert "kubectl" not in result.err


@pytest.mark.parametrize(
    ("server", "own", "warned"),
    [
        ("https://127.0.0.1:6443", "https://fairlead.example.com", True),
        ("https://localhost:6443", "https://fairlead.example.com", True),
        ("https://127.0.0.1:6443", "https://127.0.0.1:8443", False),
        (SERVER, "https://fairlead.example.com", False),
    ],
)
def test_a_loopback_address_gets_a_warning_unless_the_server_is_local(
    server: str, own: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(own) as client:
        warn_loopback(ExportedKubeconfig("one", server, b""), client)
    assert ("is a loopback address" in capsys.readouterr().err) is warned


def test_an_existing_name_is_rejected_before_a_secret_is_created(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_healthy_cluster()))
    result = add_cluster(ops)
    assert result.code == 1
    assert "the cluster berlin already exists; choose another name" in result.err
    assert ops.fake.requests_to("POST", SECRETS) == []


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (ALREADY_EXISTS, "the cluster berlin already exists"),
        ((403, failure_status(403, "Forbidden", "not for you")), "not for you"),
    ],
)
def test_if_the_cluster_is_rejected_the_secret_is_deleted(
    ops: CliFixture, response: tuple[int, Any], message: str
) -> None:
    ops.fake.on("POST", CLUSTERS, response)
    result = add_cluster(ops)
    assert (result.code, message in result.err) == (1, True)
    assert len(ops.fake.requests_to("DELETE", SECRET)) == 1


def test_the_secret_of_an_earlier_attempt_is_overwritten(ops: CliFixture) -> None:
    ops.fake.on("POST", SECRETS, ALREADY_EXISTS)
    ops.fake.on("GET", SECRET, (200, build_secret(**{LABEL: "berlin"})))
    ops.fake.on("PATCH", SECRET, (200, {}))
    assert add_cluster(ops).code == 0
    (request,) = ops.fake.requests_to("PATCH", SECRET)
    assert list(request.body) == ["data"]


def test_a_secret_not_created_by_this_command_is_left_unchanged(ops: CliFixture) -> None:
    ops.fake.on("POST", SECRETS, ALREADY_EXISTS)
    ops.fake.on("GET", SECRET, (200, build_secret()))
    result = add_cluster(ops)
    assert (result.code, "was not created by this command" in result.err) == (1, True)
    assert ops.fake.requests_to("PATCH", SECRET) == ops.fake.requests_to("POST", CLUSTERS) == []


def test_clusters_are_listed(ops: CliFixture) -> None:
    ops.fake.on("GET", CLUSTERS, list_response(build_healthy_cluster(), build_offline_cluster(), build_object("new")))
    header, *rows = (line.split() for line in ops.run("cluster", "list").out.splitlines())
    assert header == ["NAME", "PHASE", "ONLINE", "VERSION", "REASON", "AGE"]
    assert [row[:5] for row in rows] == [
        ["berlin", "Initialized", "true", "v1.31.0", "-"],
        ["berlin", "-", "false", "-", "Offline"],
        ["new", "-", "-", "-", "-"],
    ]
    ops.fake.on("GET", CLUSTERS, list_response())
    assert "connect one with `fairlead cluster add`" in ops.run("cluster", "list").err


def test_check_of_a_healthy_cluster_prints_each_probe(ops: CliFixture) -> None:
    recent = (datetime.now(UTC) - timedelta(minutes=9)).isoformat()
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_healthy_cluster(lastProbeTime=recent)))
    result = ops.run("cluster", "check", "berlin")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "✓ version   v1.31.0",
        "✓ readyz    ok",
        "✓ the cluster berlin is connected: Kubernetes v1.31.0, 3 nodes",
    ]


def test_check_of_an_offline_cluster_prints_the_failure_and_advice(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_offline_cluster()))
    result = ops.run("cluster", "check", "berlin")
    assert result.code == 1
    assert result.out.splitlines() == [
        "✗ version   connection refused",
        "✗ the cluster berlin is not connected: Unreachable: connection refused",
    ]
    assert result.err == "the server retries by itself; `fairlead cluster check berlin` shows the status\n"


def test_a_connected_cluster_that_is_not_ready_is_not_healthy(ops: CliFixture) -> None:
    conditions = [build_condition("Connected", "True"), build_condition("Ready", "False", "NotReady", "etcd is down")]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_cluster(phase="Initialized", conditions=conditions)))
    result = ops.run("cluster", "check", "berlin")
    assert result.code == 1
    assert "✗ the cluster berlin is connected, but not healthy: NotReady: etcd is down" in result.out


def test_a_cluster_with_a_failed_probe_is_not_healthy(ops: CliFixture) -> None:
    unhealthy = build_healthy_cluster()
    unhealthy["status"]["probes"] = [*PROBES, {"name": "impersonation", "ok": False, "message": "bind it to a role"}]
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, unhealthy))
    result = ops.run("cluster", "check", "berlin")
    assert (result.code, "not healthy: impersonation: bind it to a role" in result.out) == (1, True)
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (404, failure_status(404, "NotFound", "no such cluster")))
    ops.fake.on("GET", CLUSTERS, build_cluster_watch(unhealthy))
    result = add_cluster(ops)
    assert (result.code, result.err.count("bind it to a role")) == (1, 1)


def test_missing_bindings_of_administrators_are_reported_without_failing(ops: CliFixture) -> None:
    unbound = build_healthy_cluster()
    unbound["status"]["conditions"].append(
        build_condition("AdministratorsBound", "False", "Forbidden", "bind them yourself")
    )
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, unbound))
    result = ops.run("cluster", "check", "berlin")
    assert (result.code, result.err) == (0, "bind them yourself\n")


def test_check_with_json_output_has_the_same_exit_code(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_offline_cluster()))
    result = ops.run("cluster", "check", "berlin", "-o", "json")
    assert result.code == 1
    assert json.loads(result.out)["status"]["reason"] == "Offline"


def test_check_reports_an_outdated_probe(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_healthy_cluster(lastProbeTime="2026-01-01T00:00:00Z")))
    assert "the last probe was" in ops.run("cluster", "check", "berlin").err


def test_check_reports_a_cluster_without_a_kubeconfig(ops: CliFixture) -> None:
    ops.fake.on("GET", f"{CLUSTERS}/berlin", (200, build_object("berlin", spec={})))
    result = ops.run("cluster", "check", "berlin")
    assert (result.code, "the server has not probed it yet" in result.out) == (1, True)
    assert "it has no kubeconfig" in result.err


def test_the_key_of_an_agent_is_the_only_output_on_stdout(ops: CliFixture) -> None:
    access_key = {"kind": "ClusterAccessKey", "accessKey": "fairlead_agent-key"}
    ops.fake.on("GET", f"{CLUSTERS}/berlin/accesskey", (200, access_key))
    assert ops.run("cluster", "key", "berlin").out == "fairlead_agent-key\n"
    assert json.loads(ops.run("cluster", "key", "berlin", "-o", "json").out) == access_key
