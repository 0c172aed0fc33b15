"""The administrator's kubeconfig: one file that lets kubectl, Helm and the Python clients in.

`up` and `serve` settle it each time the server is ready. It is also where the first access key is kept, because the
store has only a digest of it: a later start takes the key from here when the address or the authority have changed.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

from fairlead.core.files import FileProblem, read_file, write_file

NAME = "fairlead"
MANAGEMENT = "/kubernetes/management"
HEADER = "# Written by fairlead, and again when the server's address or certificate authority changes.\n"


def settle(path: Path, url: str, ca_file: Path | None, new_key: str | None) -> str | None:
    """Makes the file fit the server and returns the key in it, or None where neither file nor key is to be had."""
    key = new_key or read_key(path)
    if key is None:
        return None
    content = render(url, read_file(ca_file) if ca_file else None, key)
    if new_key is not None:
        _keep_aside(path)
    if content != read_file(path):
        write_file(path, content)
    return key


def _keep_aside(path: Path) -> None:
    """A file from before a new key may hold the only copy of another one, of a store that comes back later."""
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    path.rename(aside)


def render(url: str, authority: bytes | None, key: str) -> bytes:
    cluster = {"server": url + MANAGEMENT}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": key}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }
    return (HEADER + yaml.safe_dump(config, sort_keys=False)).encode()


def read_key(path: Path) -> str | None:
    """The key in the file, or None where there is no file."""
    content = read_file(path)
    if content is None:
        return None
    try:
        return _token(yaml.safe_load(content))
    except (yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        advice = "restore it from a backup, or move it away and go on without it"
        raise FileProblem(f"{path}: not the kubeconfig that fairlead wrote; {advice}") from error


def _token(config: Any) -> str:
    (key,) = [each["user"]["token"] for each in config["users"] if each["name"] == NAME]
    return str(key)
