"""fairlead.client.kubeconfig_export: a context becomes one self-contained kubeconfig, or is rejected with advice."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.client import ClientError
from fairlead.client.kubeconfig_export import NotExportable, export_context, kubeconfig_paths
from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.core.files import FileProblem

SERVER = "https://berlin.example.com:6443"


def build_kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": "t-1"} if user is None else user}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "current-context": "one",
    }


def write_yaml(folder: Path, value: Any, name: str = "config") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(yaml.safe_dump(value))
    return folder / name


def parse_cluster_and_user(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the only cluster and the only user of a kubeconfig."""
    kubeconfig = yaml.safe_load(content)
    (cluster,), (user,), (context,) = kubeconfig["clusters"], kubeconfig["users"], kubeconfig["contexts"]
    assert kubeconfig["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
    return cluster["cluster"], user["user"]


def test_only_the_needed_fields_of_a_context_are_exported(tmp_path: Path) -> None:
    extra = {"tls-server-name": "berlin", "extensions": [{"name": "x"}], "disable-compression": True}
    exported = export_context([write_yaml(tmp_path, build_kubeconfig(extra))], None)
    assert (exported.context, exported.server) == ("one", SERVER)
    assert parse_cluster_and_user(exported.content) == (
        {"server": SERVER, "tls-server-name": "berlin"},
        {"token": "t-1"},
    )
    assert "t-1" not in repr(exported)


def test_files_are_read_relative_to_the_kubeconfig_that_names_them(tmp_path: Path) -> None:
    tls = ensure_certificates(tmp_path / "kube" / "tls")
    assert tls.ca_file is not None
    user = {"client-certificate": f"tls/{tls.cert_file.name}", "client-key": str(tls.key_file)}
    path = write_yaml(tmp_path / "kube", build_kubeconfig({"certificate-authority": f"tls/{tls.ca_file.name}"}, user))
    cluster, exported_user = parse_cluster_and_user(export_context([path], "one").content)
    assert base64.b64decode(cluster["certificate-authority-data"]) == tls.ca_file.read_bytes()
    assert base64.b64decode(exported_user["client-certificate-data"]) == tls.cert_file.read_bytes()
    assert base64.b64decode(exported_user["client-key-data"]) == tls.key_file.read_bytes()


def test_a_token_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t-2\n")
    path = write_yaml(tmp_path, build_kubeconfig(user={"tokenFile": "token", "token": "old"}))
    assert parse_cluster_and_user(export_context([path], None).content)[1] == {"token": "t-2"}


def test_the_first_file_that_defines_a_name_wins(tmp_path: Path) -> None:
    first = build_kubeconfig(user={"token": "first"})
    second = build_kubeconfig(user={"token": "second"}) | {"current-context": "two"}
    second["contexts"].append({"name": "two", "context": {"cluster": "c", "user": "v"}})
    second["users"].append({"name": "v", "user": {"token": "third"}})
    paths = [tmp_path / "none", write_yaml(tmp_path, first, "a"), write_yaml(tmp_path, second, "b")]
    assert parse_cluster_and_user(export_context(paths, None).content)[1] == {"token": "first"}
    assert parse_cluster_and_user(export_context(paths, "two").content)[1] == {"token": "third"}


@pytest.mark.parametrize(
    ("cluster", "user", "message", "needs_token"),
    [
        ({}, {"exec": {"command": "aws"}}, "a credential plugin (exec)", True),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider", True),
        ({}, {"username": "u", "password": "p"}, "password", True),
        ({}, {"token": "t", "as": "admin"}, "impersonates", True),
        ({}, {}, "neither a token nor a client certificate", True),
        ({}, {"client-certificate-data": "eA=="}, "neither a token nor a client certificate", True),
        ({"insecure-skip-tls-verify": True}, None, "set certificate-authority", False),
        ({"server": "http://berlin"}, None, "with https", False),
        ({"server": "https://ada:pw@berlin"}, None, "with https", False),
        ({"server": "https://berlin:99999"}, None, "with https", False),
        ({"server": None}, None, "with https", False),
    ],
)
def test_a_context_that_depends_on_this_machine_is_rejected(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, message: str, needs_token: bool
) -> None:
    with pytest.raises(NotExportable) as caught:
        export_context([write_yaml(tmp_path, build_kubeconfig(cluster, user))], None)
    assert message in str(caught.value)
    assert "pw" not in str(caught.value)
    assert caught.value.needs_token is needs_token


def test_a_proxy_is_exported_for_the_server_to_decide(tmp_path: Path) -> None:
    path = write_yaml(tmp_path, build_kubeconfig({"proxy-url": "http://proxy:3128"}))
    assert parse_cluster_and_user(export_context([path], None).content)[0]["proxy-url"] == "http://proxy:3128"


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = write_yaml(
        tmp_path, build_kubeconfig({"insecure-skip-tls-verify": True, "server": "x"}, {"exec": {"command": "x"}})
    )
    with pytest.raises(NotExportable) as caught:
        export_context([path], None)
    assert str(caught.value).count("; ") >= 2
    assert all(word in str(caught.value) for word in ("certificate", "with https", "exec"))


def test_an_unknown_context_is_rejected_with_the_available_ones(tmp_path: Path) -> None:
    path = write_yaml(tmp_path, build_kubeconfig())
    with pytest.raises(ClientError, match="no context 'two'; select one with --kube-context from one"):
        export_context([path], "two")
    with pytest.raises(ClientError, match="no current context; select one with --kube-context from one"):
        export_context([write_yaml(tmp_path, build_kubeconfig() | {"current-context": ""})], None)
    with pytest.raises(ClientError, match="refers to a missing cluster or user"):
        export_context([write_yaml(tmp_path, build_kubeconfig() | {"users": []})], None)


def test_missing_or_invalid_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="none: no such file; name an existing one with --kubeconfig"):
        export_context([tmp_path / "none"], None)
    with pytest.raises(
        FileProblem, match=r"ca\.pem: no such file; the kubeconfig refers to it as certificate-authority"
    ):
        export_context([write_yaml(tmp_path, build_kubeconfig({"certificate-authority": "ca.pem"}))], None)
    with pytest.raises(ClientError, match="certificate-authority-data is not valid base64"):
        export_context([write_yaml(tmp_path, build_kubeconfig({"certificate-authority-data": "?"}))], None)
    with pytest.raises(ClientError, match="certificate-authority contains no PEM certificate"):
        export_context([write_yaml(tmp_path, build_kubeconfig({"certificate-authority-data": "eA=="}))], None)


def test_kubeconfig_paths_are_those_that_kubectl_reads(tmp_path: Path) -> None:
    assert kubeconfig_paths(tmp_path / "x", {"KUBECONFIG": "/a"}) == [tmp_path / "x"]
    assert kubeconfig_paths(None, {"KUBECONFIG": "/a::/b"}) == [Path("/a"), Path("/b")]
    assert kubeconfig_paths(None, {}) == [Path.home() / ".kube" / "config"]
