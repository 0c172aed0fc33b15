"""fairlead.client.kubeconfig: entries are merged into files, other entries stay, and a backup is kept."""

import base64
import stat
from pathlib import Path

import pytest
import yaml

from fairlead.client.contexts import Login
from fairlead.client.kubeconfig import (
    KubeconfigEntry,
    cluster_entry,
    login_from_kubeconfig,
    merge_entry,
    merge_into_file,
)
from fairlead.core.crypto.certificates import ensure_certificates
from fairlead.core.files import FileProblem

PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
ENTRY = KubeconfigEntry("ours", cluster_entry(Login("https://a.test", "k", PEM)), {"token": "k"}, "service-p-demo")

OTHER = """\
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- {name: other, cluster: {server: https://other.test, extensions: [{name: x, extension: {}}]}}
users:
- {name: other, user: {client-certificate-data: abc}}
contexts:
- {name: other, context: {cluster: other, user: other}}
current-context: other
"""


def test_a_new_file_is_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / ".kube" / "config"
    assert merge_into_file(path, ENTRY) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert yaml.safe_load(path.read_bytes()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "ours",
                "cluster": {
                    "server": "https://a.test/kubernetes/management",
                    "certificate-authority-data": base64.b64encode(PEM.encode()).decode(),
                },
            }
        ],
        "users": [{"name": "ours", "user": {"token": "k"}}],
        "contexts": [{"name": "ours", "context": {"cluster": "ours", "user": "ours", "namespace": "service-p-demo"}}],
        "current-context": "ours",
    }
    assert [each.name for each in path.parent.iterdir()] == ["config"]


def test_other_contexts_stay_unchanged_and_the_previous_file_is_backed_up(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHER)
    path.chmod(0o644)
    backup = merge_into_file(path, ENTRY)
    assert backup == tmp_path / "config.bak"
    assert backup.read_text() == OTHER
    assert stat.S_IMODE(backup.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o600
    before, after = yaml.safe_load(OTHER), yaml.safe_load(path.read_bytes())
    for section in ("clusters", "users", "contexts"):
        assert after[section][:-1] == before[section]
        assert after[section][-1]["name"] == "ours"
    assert after["preferences"] == {"colors": True}
    assert after["current-context"] == "ours"


def test_the_current_context_can_stay(tmp_path: Path) -> None:
    config = merge_entry(yaml.safe_load(OTHER), ENTRY, make_current=False)
    assert config["current-context"] == "other"
    assert merge_entry({}, ENTRY, make_current=False)["current-context"] == "ours"


def test_an_entry_of_the_same_name_is_replaced_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "config"
    merge_into_file(path, ENTRY)
    merge_into_file(path, KubeconfigEntry("later", ENTRY.cluster, ENTRY.user))
    merge_into_file(path, KubeconfigEntry("ours", ENTRY.cluster, {"token": "new"}))
    config = yaml.safe_load(path.read_bytes())
    assert [each["name"] for each in config["users"]] == ["ours", "later"]
    assert config["users"][0]["user"] == {"token": "new"}
    assert "namespace" not in config["contexts"][0]["context"]


def test_an_unchanged_entry_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config"
    merge_into_file(path, ENTRY)
    before = path.stat()
    assert merge_into_file(path, ENTRY) is None
    after = path.stat()  # without st_atime: the file was read
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(OTHER)
    (tmp_path / "config").symlink_to("real")
    merge_into_file(tmp_path / "config", ENTRY)
    assert (tmp_path / "config").is_symlink()
    assert b"ours" in (tmp_path / "real").read_bytes()


def test_the_lock_file_of_kubectl_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHER)
    (tmp_path / "config.lock").touch()
    with pytest.raises(FileProblem, match=r"config\.lock: another program is writing config; try again"):
        merge_into_file(path, ENTRY)
    assert path.read_text() == OTHER


@pytest.mark.parametrize("content", ["- a", "text", "users: 5", "clusters: [text]", "a: [b"])
def test_a_file_that_is_not_a_kubeconfig_is_left_unchanged(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(FileProblem, match="fix it, or specify another file"):
        merge_into_file(path, ENTRY)
    assert path.read_text() == content
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


def test_a_login_can_be_read_back_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHER)
    for login in (Login("https://a.test", "k", PEM), Login("https://b.test:8443", "k2", insecure=True)):
        merge_into_file(path, KubeconfigEntry("ours", cluster_entry(login), {"token": login.key}))
        assert login_from_kubeconfig(path) == login


def test_a_ca_file_is_found_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    authority = ensure_certificates(tmp_path / "tls").ca_file
    assert authority is not None
    cluster = {"server": "https://a.test", "certificate-authority": "tls/ca.crt"}
    merge_into_file(tmp_path / "config", KubeconfigEntry("ours", cluster, {"token": "k"}))
    assert login_from_kubeconfig(tmp_path / "config").authority == authority.read_text()


def test_a_login_can_be_read_from_the_context_of_a_gateway(tmp_path: Path) -> None:
    path, login = tmp_path / "config", Login("https://a.test:8443", "k", PEM)
    merge_into_file(path, KubeconfigEntry("management", cluster_entry(login), {"token": "m"}))
    gateway = cluster_entry(login, "/kubernetes/project/shop/space/dev")
    merge_into_file(path, KubeconfigEntry("dev", gateway, {"token": "k"}))
    assert login_from_kubeconfig(path) == login
    assert login_from_kubeconfig(path, "management").key == "m"


def test_errors_name_the_file_and_the_context(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHER)
    with pytest.raises(FileProblem, match="config: the context 'other' has no token; select another one with --conte"):
        login_from_kubeconfig(path)
    with pytest.raises(FileProblem, match=r"config: no context 'x'; .*--context \(available: other\)"):
        login_from_kubeconfig(path, "x")
    with pytest.raises(FileProblem, match="no such file"):
        login_from_kubeconfig(tmp_path / "none")
    path.write_text("{}")
    with pytest.raises(FileProblem, match=r"config: no current context; .* \(available: none\)"):
        login_from_kubeconfig(path)
    merge_into_file(path, KubeconfigEntry("web", {"server": "https://a.test/web"}, {"token": "k"}))
    with pytest.raises(FileProblem, match=r"config: the server of the context 'web': 'https://a\.test/web' is not a"):
        login_from_kubeconfig(path)
    merge_into_file(path, KubeconfigEntry("web", {}, {"token": "k"}))
    with pytest.raises(FileProblem, match="the context 'web' has no server"):
        login_from_kubeconfig(path)
