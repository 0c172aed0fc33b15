"""fairlead.client.admin_kubeconfig: the administrator's kubeconfig is complete, private, and kept."""

import base64
import stat
from pathlib import Path

import pytest
import structlog
import yaml

from fairlead.client.admin_kubeconfig import read_current_context, read_key, write_admin_kubeconfig
from fairlead.client.kubeconfig import KubeconfigEntry, merge_into_file
from fairlead.core.files import FileProblem

URL = "https://127.0.0.1:8443"


@pytest.fixture
def ca_file(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_bytes(b"a certificate")
    return path


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "admin.kubeconfig"


def test_a_new_key_writes_a_complete_and_private_file(kubeconfig: Path, ca_file: Path) -> None:
    assert write_admin_kubeconfig(kubeconfig, URL, ca_file, "a-key") == "a-key"
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert yaml.safe_load(kubeconfig.read_bytes()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "fairlead",
                "cluster": {
                    "server": f"{URL}/kubernetes/management",
                    "certificate-authority-data": base64.b64encode(b"a certificate").decode(),
                },
            }
        ],
        "users": [{"name": "fairlead", "user": {"token": "a-key"}}],
        "contexts": [{"name": "fairlead", "context": {"cluster": "fairlead", "user": "fairlead"}}],
        "current-context": "fairlead",
    }


def test_a_publicly_trusted_certificate_needs_no_ca_in_the_file(kubeconfig: Path) -> None:
    write_admin_kubeconfig(kubeconfig, URL, None, "a-key")
    (cluster,) = yaml.safe_load(kubeconfig.read_bytes())["clusters"]
    assert cluster["cluster"] == {"server": f"{URL}/kubernetes/management"}


def test_a_later_start_reads_the_key_and_leaves_the_file_unchanged(kubeconfig: Path, ca_file: Path) -> None:
    write_admin_kubeconfig(kubeconfig, URL, ca_file, "a-key")
    before = kubeconfig.stat()
    assert write_admin_kubeconfig(kubeconfig, URL, ca_file, None) == "a-key"
    after = kubeconfig.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_another_url_or_ca_is_written_with_the_same_key(kubeconfig: Path, ca_file: Path) -> None:
    write_admin_kubeconfig(kubeconfig, URL, ca_file, "a-key")
    ca_file.write_bytes(b"another certificate")
    assert write_admin_kubeconfig(kubeconfig, "https://fairlead.example.com", ca_file, None) == "a-key"
    (cluster,) = yaml.safe_load(kubeconfig.read_bytes())["clusters"]
    assert cluster["cluster"]["server"] == "https://fairlead.example.com/kubernetes/management"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"another certificate"


def test_a_new_key_replaces_an_existing_file(kubeconfig: Path, ca_file: Path) -> None:
    kubeconfig.write_text("not: [ours")
    assert write_admin_kubeconfig(kubeconfig, URL, ca_file, "a-key") == "a-key"
    assert read_key(kubeconfig) == "a-key"


def test_without_file_and_key_no_file_is_created(kubeconfig: Path, ca_file: Path) -> None:
    assert write_admin_kubeconfig(kubeconfig, URL, ca_file, None) is None
    assert not kubeconfig.exists()


def test_other_entries_and_the_current_context_stay(kubeconfig: Path, ca_file: Path) -> None:
    write_admin_kubeconfig(kubeconfig, URL, ca_file, "a-key")
    gateway = KubeconfigEntry("dev", {"server": f"{URL}/kubernetes/project/shop/space/dev"}, {"token": "other"})
    merge_into_file(kubeconfig, gateway)
    config = yaml.safe_load(kubeconfig.read_bytes()) | {"preferences": {"colors": True}}
    config["contexts"][0]["context"]["namespace"] = "service-p-shop"
    kubeconfig.write_text(yaml.safe_dump(config))
    for url, key in ((URL, None), ("https://fairlead.example.com", None), (URL, "a-new-key")):
        assert write_admin_kubeconfig(kubeconfig, url, ca_file, key) == (key or "a-key")
        config["clusters"][0]["cluster"]["server"] = f"{url}/kubernetes/management"
        config["users"][0]["user"]["token"] = key or "a-key"
        assert yaml.safe_load(kubeconfig.read_bytes()) == config
        assert read_current_context(kubeconfig) == "dev"
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert read_key(kubeconfig.with_name("admin.kubeconfig.1")) == "a-key"


def test_a_current_context_that_does_not_exist_is_replaced(kubeconfig: Path) -> None:
    kubeconfig.write_text("current-context: gone\nusers: [{name: fairlead, user: {token: a-key}}]\n")
    assert write_admin_kubeconfig(kubeconfig, URL, None, None) == "a-key"
    assert read_current_context(kubeconfig) == "fairlead"


@pytest.mark.parametrize(
    "content",
    ["text", "a: [b", "users: 5", "- a", "users: [text]", "current-context: [a]", "contexts: [{name: [a]}]"],
)
@pytest.mark.parametrize("key", [None, "a-key"])
def test_a_file_that_is_not_a_kubeconfig_is_renamed(kubeconfig: Path, content: str, key: str | None) -> None:
    kubeconfig.write_text(content)
    with pytest.raises(FileProblem, match=r"admin\.kubeconfig: .*; restore it from a backup, or remove it"):
        read_key(kubeconfig)
    with structlog.testing.capture_logs() as logs:
        assert write_admin_kubeconfig(kubeconfig, URL, None, key) == key
    copy = kubeconfig.with_name("admin.kubeconfig.1")
    assert copy.read_text() == content
    assert [each["copy"] for each in logs] == [str(copy)]
    assert read_key(kubeconfig) == key


@pytest.mark.parametrize("content", ["", "users: []", "users: [{name: fairlead}]", "users: [{name: a, user: {}}]"])
def test_a_kubeconfig_without_the_key_is_left_unchanged(kubeconfig: Path, content: str) -> None:
    kubeconfig.write_text(content)
    assert read_key(kubeconfig) is None
    assert write_admin_kubeconfig(kubeconfig, URL, None, None) is None
    assert kubeconfig.read_text() == content
