"""fairlead.cli.resources.kubeconfig: `fairlead kubeconfig` and `fairlead token`, with the key or an exec plugin."""

import json
from base64 import b64decode
from pathlib import Path

import pytest
import yaml

from fairlead.client.admin_kubeconfig import read_current_context, read_key, write_admin_kubeconfig
from tests.harness.cli import CliFixture
from tests.harness.fake_server import KEY, M, build_object, failure_status
from tests.harness.watch_responses import build_watch_response

CONNECT = ("vcluster", "connect", "vc", "--project", "demo")


def test_a_context_is_written_to_the_default_kubeconfig(user: CliFixture) -> None:
    result = user.run("kubeconfig")
    assert (result.code, result.out) == (0, "")
    path = user.home / ".kube" / "config"
    assert f"wrote the context 'fairlead-test' to {path}" in result.err
    config = yaml.safe_load(path.read_bytes())
    assert config["current-context"] == "fairlead-test"
    assert config["users"] == [{"name": "fairlead-test", "user": {"token": KEY}}]
    assert config["clusters"][0]["cluster"]["server"] == f"{user.fake.url}/kubernetes/management"
    assert not user.fake.requests
    assert KEY not in result.err


def test_a_project_sets_the_namespace_as_the_server_names_it(user: CliFixture, tmp_path: Path) -> None:
    user.fake.on_self(projectNamespacePrefix="p-")
    user.fake.on("GET", f"{M}/projects/demo", (200, {}))
    target = tmp_path / "mine"
    result = user.run("kubeconfig", "--project", "demo", "-o", str(target))
    assert result.code == 0
    assert f"kubectl --kubeconfig {target} --context fairlead-test-demo" in result.err
    (context,) = yaml.safe_load(target.read_bytes())["contexts"]
    assert context == {
        "name": "fairlead-test-demo",
        "context": {"cluster": "fairlead-test-demo", "user": "fairlead-test-demo", "namespace": "p-demo"},
    }


@pytest.mark.parametrize(
    ("flags", "object", "path", "name"),
    [
        (("--cluster", "berlin"), "clusters/berlin", "cluster/berlin", "cluster-berlin"),
        (
            ("--virtual-cluster", "demo/vc"),
            "namespaces/service-p-demo/virtualclusterinstances/vc",
            "project/demo/virtualcluster/vc",
            "virtualcluster-demo-vc",
        ),
    ],
)
def test_a_context_can_point_to_a_gateway(
    user: CliFixture, flags: tuple[str, str], object: str, path: str, name: str
) -> None:
    user.fake.on("GET", f"{M}/{object}", (200, {"status": {"phase": "Ready"}}))
    config = yaml.safe_load(user.run("kubeconfig", *flags, "-o", "-").out)
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == f"{user.fake.url}/kubernetes/{path}"
    assert cluster["certificate-authority-data"]
    assert config["current-context"] == f"fairlead-test-{name}"
    assert "namespace" not in config["contexts"][0]["context"]


def test_an_unknown_cluster_creates_no_context(user: CliFixture) -> None:
    result = user.run("kubeconfig", "--cluster", "berlin", "-o", "-")
    assert (result.code, result.out) == (1, "")
    assert "check the name" in result.err


def test_without_permission_to_read_the_cluster_the_context_is_still_written(user: CliFixture) -> None:
    user.fake.on("GET", f"{M}/clusters/berlin", (403, failure_status(403, "Forbidden", "outside of the key's scope")))
    assert "/kubernetes/cluster/berlin" in user.run("kubeconfig", "--cluster", "berlin", "-o", "-").out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--cluster", "berlin", "--project", "demo"), "choose one"),
        (("--space", "dev"), "use the format --space P/S"),
        (("--virtual-cluster", "a/b/c"), "use the format --virtual-cluster P/V"),
        (("--space", "/dev"), "use the format --space P/S"),
    ],
)
def test_a_context_has_one_valid_target(user: CliFixture, flags: tuple[str, ...], message: str) -> None:
    result = user.run("kubeconfig", *flags)
    assert (result.code, message in result.err) == (2, True)
    assert not (user.home / ".kube").exists()


@pytest.mark.parametrize("name", ["..", "."])
def test_a_name_that_is_a_path_segment_is_rejected(user: CliFixture, name: str) -> None:
    result = user.run("kubeconfig", "--cluster", name, "-o", "-")
    assert (result.code, result.out) == (1, "")
    assert "is not a valid object name" in result.err


def test_other_contexts_and_the_current_one_can_stay(user: CliFixture) -> None:
    path = user.home / ".kube" / "config"
    path.parent.mkdir()
    before = "contexts: [{name: other, context: {cluster: c, user: u}}]\ncurrent-context: other\n"
    path.write_text(before)
    result = user.run("kubeconfig", "--keep-current", "--context-name", "mine")
    assert "kubectl --context mine" in result.err
    assert f"the previous version is {path}.bak" in result.err
    config = yaml.safe_load(path.read_bytes())
    assert [each["name"] for each in config["contexts"]] == ["other", "mine"]
    assert config["current-context"] == "other"
    assert path.with_name("config.bak").read_text() == before


VIRTUAL_CLUSTER = f"{M}/namespaces/service-p-demo/virtualclusterinstances/vc"


@pytest.mark.parametrize("command", [("kubeconfig", "--virtual-cluster", "demo/vc"), CONNECT])
@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"phase": "Ready"}, ""),
        ({"phase": "Sleeping"}, ""),
        ({}, "the virtual cluster vc is Pending; `fairlead vcluster connect vc --project demo --wait` waits"),
        ({"phase": "Failed", "reason": "HelmNotFound", "message": "no helm"}, "is Failed (HelmNotFound: no helm)"),
    ],
)
def test_only_a_virtual_cluster_that_can_be_used_gets_a_context(
    user: CliFixture, command: tuple[str, ...], status: dict[str, str], message: str
) -> None:
    user.fake.on("GET", VIRTUAL_CLUSTER, (200, build_object("vc", status=status)))
    result = user.run(*command)
    assert (result.code, message in result.err) == (1 if message else 0, True)
    assert (user.home / ".kube" / "config").exists() is not bool(message)


def test_connect_waits_until_the_virtual_cluster_is_ready(user: CliFixture) -> None:
    pending = build_object("vc", status={"phase": "Pending"})
    pending["metadata"] |= {"uid": "1", "namespace": "service-p-demo", "resourceVersion": "1"}
    ready = {**pending, "status": {"phase": "Ready"}}
    user.fake.on("GET", VIRTUAL_CLUSTER, (200, pending), (200, ready))
    user.fake.on(
        "GET", VIRTUAL_CLUSTER.removesuffix("/vc"), build_watch_response({"type": "MODIFIED", "object": ready})
    )
    result = user.run(*CONNECT, "--wait")
    assert result.code == 0, result.err
    assert "wrote the context" in result.err


@pytest.mark.parametrize("name", ["admin.kubeconfig", "link", "other"])
def test_the_current_context_of_the_servers_own_file_never_changes(user: CliFixture, tmp_path: Path, name: str) -> None:
    file = tmp_path / ("other" if name == "other" else "admin.kubeconfig")
    write_admin_kubeconfig(file, user.fake.url, None, "the-key-of-the-administrator")
    if name == "link":
        (tmp_path / name).symlink_to(file)
    user.fake.on("GET", VIRTUAL_CLUSTER, (200, build_object("vc", status={"phase": "Ready"})))
    for _ in range(2):  # the second time, the file has been written by the command
        result = user.run(*CONNECT, KUBECONFIG=str(tmp_path / name))
        assert result.code == 0
        assert "its current context is unchanged" in result.err
        assert "kubectl --context fairlead-test-virtualcluster-demo-vc" in result.err
        assert read_current_context(file) == "fairlead"
        assert read_key(file) == "the-key-of-the-administrator"
    assert "fairlead-test-virtualcluster-demo-vc" in file.read_text()


def test_stdout_gets_a_complete_kubeconfig(user: CliFixture) -> None:
    result = user.run("kubeconfig", "-o", "-")
    assert yaml.safe_load(result.out)["current-context"] == "fairlead-test"
    assert result.err == ""
    assert not (user.home / ".kube").exists()


def test_the_variable_kubeconfig_names_the_file_as_for_kubectl(user: CliFixture) -> None:
    first, second = user.home / "first", user.home / "second"
    variable = {"KUBECONFIG": f"{first}:{second}"}
    assert f"to {second}" in user.run("kubeconfig", **variable).err
    first.write_text("")
    assert f"to {first}" in user.run("kubeconfig", **variable).err
    assert not (user.home / ".kube" / "config").exists()


def test_a_context_can_use_an_exec_plugin_instead_of_the_key(user: CliFixture) -> None:
    out = user.run("kubeconfig", "--exec", "-o", "-").out
    assert KEY not in out
    plugin = yaml.safe_load(out)["users"][0]["user"]["exec"]
    assert plugin["apiVersion"] == "client.authentication.k8s.io/v1"
    assert plugin["args"][-5:] == ["credential", "--context", "test", "--server", user.fake.url]
    assert plugin["interactiveMode"] == "IfAvailable"


def test_an_insecure_login_writes_an_insecure_context(cli: CliFixture) -> None:
    cli.fake.on("GET", "/version", (200, {}))
    cli.fake.on_self()
    cli.run("login", cli.fake.url, "--insecure", "--key-stdin", stdin=KEY)
    cluster = yaml.safe_load(cli.run("kubeconfig", "-o", "-").out)["clusters"][0]["cluster"]
    assert cluster == {"server": f"{cli.fake.url}/kubernetes/management", "insecure-skip-tls-verify": True}


def test_the_token_is_printed_as_an_exec_credential(user: CliFixture) -> None:
    result = user.run("token")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": KEY},
    }
    assert user.run("token", "--plain").out == f"{KEY}\n"
    assert not user.fake.requests


@pytest.mark.parametrize(
    ("requested", "expected"),
    [("client.authentication.k8s.io/v1beta1", "v1beta1"), ("client.authentication.k8s.io/v9", "v1"), ("", "v1")],
)
def test_the_exec_credential_has_the_version_that_kubectl_requests(
    user: CliFixture, requested: str, expected: str
) -> None:
    info = json.dumps({"apiVersion": requested, "kind": "ExecCredential"})
    out = user.run("token", KUBERNETES_EXEC_INFO=info).out
    assert json.loads(out)["apiVersion"] == f"client.authentication.k8s.io/{expected}"


def test_token_without_a_login_is_an_error(cli: CliFixture) -> None:
    result = cli.run("token", "--context", "gone")
    assert (result.code, result.out) == (1, "")
    assert "no login named 'gone'" in result.err


def access_point(user: CliFixture, **changes: object) -> dict[str, object]:
    """That of a virtual cluster which the fake server stands in for, too."""
    authority = Path(user.fake.ca_file).read_text()
    found = {"url": user.fake.url, "certificateAuthority": authority, "acceptsTokens": True, **changes}
    return build_object("vc", status={"phase": "Ready", "accessPoint": found})


def test_the_context_leads_to_an_access_point_that_accepts_the_key(user: CliFixture) -> None:
    user.fake.on("GET", VIRTUAL_CLUSTER, (200, access_point(user)))
    user.fake.on("GET", "/api", (200, {"kind": "APIVersions"}))
    result = user.run("kubeconfig", "--virtual-cluster", "demo/vc", "-o", "-")
    (cluster,) = yaml.safe_load(result.out)["clusters"]
    assert cluster["cluster"]["server"] == user.fake.url
    authority = b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    assert authority == Path(user.fake.ca_file).read_text()
    assert f"the context leads to the virtual cluster itself, at {user.fake.url}" in result.err


@pytest.mark.parametrize(
    ("changes", "answer", "note"),
    [
        ({}, (401, failure_status(401, "Unauthorized", "Unauthorized")), "is not reached at"),
        ({"url": "https://127.0.0.1:1"}, (200, {}), "is not reached at https://127.0.0.1:1"),
        ({"acceptsTokens": False}, (200, {}), ""),
        ({"certificateAuthority": ""}, (200, {}), ""),
    ],
)
def test_otherwise_the_context_leads_to_the_gateway(
    user: CliFixture, changes: dict[str, object], answer: tuple[int, object], note: str
) -> None:
    user.fake.on("GET", VIRTUAL_CLUSTER, (200, access_point(user, **changes)))
    user.fake.on("GET", "/api", answer)
    result = user.run("kubeconfig", "--virtual-cluster", "demo/vc", "-o", "-")
    (cluster,) = yaml.safe_load(result.out)["clusters"]
    assert cluster["cluster"]["server"].endswith("/kubernetes/project/demo/virtualcluster/vc")
    assert note in result.err
    assert bool(user.fake.requests_to("GET", "/api")) is (changes == {})
