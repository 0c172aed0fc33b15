"""fairlead.cli.server.admin_kubeconfig: the administrator's kubeconfig is complete, private, and kept."""

import base64
import stat
from pathlib import Path

import pytest
import yaml

from fairlead.cli.server.admin_kubeconfig import read_key, write_admin_kubeconfig
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


@pytest.mark.parametrize("content", ["", "text", "users: []", "users: [{name: fairlead}]", "a: [b", "users: 5", "- a"])
def test_a_file_not_written_by_fairlead_is_rejected(kubeconfig: Path, content: str) -> None:
    kubeconfig.write_text(content)
    with pytest.raises(FileProblem, match="not a kubeconfig written by fairlead; restore it"):
        read_key(kubeconfig)
