"""The admin kubeconfig, for kubectl, Helm and the Python clients.

`up` and `serve` write it whenever the server is ready. The file is also the only place with the first access key, since
the store has only its digest: when the server's address or CA has changed, the key is read from the old file.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

from fairlead.core.files import FileProblem, read_file, write_file

CONTEXT_NAME = "fairlead"
MANAGEMENT_PATH = "/kubernetes/management"
HEADER = "# Written by fairlead, and again when the server's address or certificate authority changes.\n"


def write_admin_kubeconfig(path: Path, url: str, ca_file: Path | None, new_key: str | None) -> str | None:
    """Updates the file and returns the key in it, or None if there is neither a new key nor a file."""
    key = new_key or read_key(path)
    if key is None:
        return None
    content = render_kubeconfig(url, read_file(ca_file) if ca_file else None, key)
    if new_key is not None:
        _backup_existing(path)
    if content != read_file(path):
        write_file(path, content)
    return key


def _backup_existing(path: Path) -> None:
    """Renames the existing file: it may have the only copy of a key for a store that is restored later."""
    if not path.exists():
        return
    number = 1
    while (backup := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    path.rename(backup)


def render_kubeconfig(url: str, ca_pem: bytes | None, key: str) -> bytes:
    cluster = {"server": url + MANAGEMENT_PATH}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT_NAME, "cluster": cluster}],
        "users": [{"name": CONTEXT_NAME, "user": {"token": key}}],
        "contexts": [{"name": CONTEXT_NAME, "context": {"cluster": CONTEXT_NAME, "user": CONTEXT_NAME}}],
        "current-context": CONTEXT_NAME,
    }
    return (HEADER + yaml.safe_dump(config, sort_keys=False)).encode()


def read_key(path: Path) -> str | None:
    """The key in the file, or None if the file does not exist."""
    content = read_file(path)
    if content is None:
        return None
    try:
        return _find_token(yaml.safe_load(content))
    except (yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        advice = "restore it from a backup, or move it away to start without it"
        raise FileProblem(f"{path}: not a kubeconfig written by fairlead; {advice}") from error


def _find_token(config: Any) -> str:
    (key,) = [each["user"]["token"] for each in config["users"] if each["name"] == CONTEXT_NAME]
    return str(key)
