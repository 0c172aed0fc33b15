"""A context for another machine: files are read into it, and what cannot travel is refused with what to do instead."""

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


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": "t-1"} if user is None else user}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "current-context": "one",
    }


def written(folder: Path, value: Any, name: str = "config") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(yaml.safe_dump(value))
    return folder / name


def parts(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The cluster and the user of what was made, which has no other."""
    made = yaml.safe_load(content)
    (cluster,), (user,), (context,) = made["clusters"], made["users"], made["contexts"]
    assert made["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
    return cluster["cluster"], user["user"]


def test_only_what_is_needed_of_a_context_is_taken(tmp_path: Path) -> None:
    extra = {"tls-server-name": "berlin", "extensions": [{"name": "x"}], "disable-compression": True}
    made = export_context([written(tmp_path, config(extra))], None)
    assert (made.context, made.server) == ("one", SERVER)
    assert parts(made.content) == ({"server": SERVER, "tls-server-name": "berlin"}, {"token": "t-1"})
    assert "t-1" not in repr(made)


def test_files_are_read_relative_to_the_kubeconfig_that_names_them(tmp_path: Path) -> None:
    tls = ensure_certificates(tmp_path / "kube" / "tls")
    assert tls.ca_file is not None
    user = {"client-certificate": f"tls/{tls.cert_file.name}", "client-key": str(tls.key_file)}
    path = written(tmp_path / "kube", config({"certificate-authority": f"tls/{tls.ca_file.name}"}, user))
    cluster, made = parts(export_context([path], "one").content)
    assert base64.b64decode(cluster["certificate-authority-data"]) == tls.ca_file.read_bytes()
    assert base64.b64decode(made["client-certificate-data"]) == tls.cert_file.read_bytes()
    assert base64.b64decode(made["client-key-data"]) == tls.key_file.read_bytes()


def test_a_token_in_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t-2\n")
    path = written(tmp_path, config(user={"tokenFile": "token", "token": "old"}))
    assert parts(export_context([path], None).content)[1] == {"token": "t-2"}


def test_of_several_files_the_first_with_a_name_wins(tmp_path: Path) -> None:
    first = config(user={"token": "first"})
    second = config(user={"token": "second"}) | {"current-context": "two"}
    second["contexts"].append({"name": "two", "context": {"cluster": "c", "user": "v"}})
    second["users"].append({"name": "v", "user": {"token": "third"}})
    paths = [tmp_path / "none", written(tmp_path, first, "a"), written(tmp_path, second, "b")]
    assert parts(export_context(paths, None).content)[1] == {"token": "first"}
    assert parts(export_context(paths, "two").content)[1] == {"token": "third"}


@pytest.mark.parametrize(
    ("cluster", "user", "told", "needs_token"),
    [
        ({}, {"exec": {"command": "aws"}}, "a credential plugin (exec)", True),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider", True),
        ({}, {"username": "u", "password": "p"}, "password", True),
        ({}, {"token": "t", "as": "admin"}, "impersonates", True),
        ({}, {}, "neither a token nor a client certificate", True),
        ({}, {"client-certificate-data": "eA=="}, "neither a token nor a client certificate", True),
        ({"insecure-skip-tls-verify": True}, None, "set certificate-authority", False),
        ({"proxy-url": "http://proxy:3128"}, None, "proxy-url", False),
        ({"server": "http://berlin"}, None, "with https", False),
        ({"server": "https://ada:pw@berlin"}, None, "with https", False),
        ({"server": "https://berlin:99999"}, None, "with https", False),
        ({"server": None}, None, "with https", False),
    ],
)
def test_what_cannot_travel_is_refused(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, told: str, needs_token: bool
) -> None:
    with pytest.raises(NotExportable) as caught:
        export_context([written(tmp_path, config(cluster, user))], None)
    assert told in str(caught.value)
    assert "pw" not in str(caught.value)
    assert caught.value.needs_token is needs_token


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, config({"insecure-skip-tls-verify": True, "server": "x"}, {"exec": {"command": "x"}}))
    with pytest.raises(NotExportable) as caught:
        export_context([path], None)
    assert str(caught.value).count("; ") >= 2
    assert all(word in str(caught.value) for word in ("certificate", "with https", "exec"))


def test_a_context_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = written(tmp_path, config())
    with pytest.raises(ClientError, match="no context 'two'; select one with --kube-context from one"):
        export_context([path], "two")
    with pytest.raises(ClientError, match="no current context; select one with --kube-context from one"):
        export_context([written(tmp_path, config() | {"current-context": ""})], None)
    with pytest.raises(ClientError, match="refers to a missing cluster or user"):
        export_context([written(tmp_path, config() | {"users": []})], None)


def test_files_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="none: no such file; specify a kubeconfig with --kubeconfig"):
        export_context([tmp_path / "none"], None)
    with pytest.raises(
        FileProblem, match=r"ca\.pem: no such file; the kubeconfig refers to it as certificate-authority"
    ):
        export_context([written(tmp_path, config({"certificate-authority": "ca.pem"}))], None)
    with pytest.raises(ClientError, match="certificate-authority-data is not valid base64"):
        export_context([written(tmp_path, config({"certificate-authority-data": "?"}))], None)
    with pytest.raises(ClientError, match="certificate-authority contains no PEM certificate"):
        export_context([written(tmp_path, config({"certificate-authority-data": "eA=="}))], None)


def test_the_files_are_those_that_kubectl_reads(tmp_path: Path) -> None:
    assert kubeconfig_paths(tmp_path / "x", {"KUBECONFIG": "/a"}) == [tmp_path / "x"]
    assert kubeconfig_paths(None, {"KUBECONFIG": "/a::/b"}) == [Path("/a"), Path("/b")]
    assert kubeconfig_paths(None, {}) == [Path.home() / ".kube" / "config"]
