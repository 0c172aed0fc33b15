"""The admin kubeconfig, for kubectl, Helm and the Python clients.

`up` and `serve` write it whenever the server is ready. The file is also the only place with the first access key, since
the store has only its digest: when the server's address or CA has changed, the key is read from the old file. Other
entries of the file, such as contexts of gateways, belong to the user and stay as they are.
"""

import base64
import os
from pathlib import Path
from typing import Any

from fairlead.client.kubeconfig import SECTIONS, KubeconfigEntry, find_entry, merge_entry
from fairlead.core import yaml
from fairlead.core.files import FileProblem, read_file, write_file
from fairlead.core.objects import Object, get_path

KUBECONFIG_NAME = "admin.kubeconfig"
CONTEXT_NAME = "fairlead"
MANAGEMENT_PATH = "/kubernetes/management"
HEADER = f"""\
# Fairlead writes the cluster, the user and the context {CONTEXT_NAME!r}, again when the server's address or certificate
# authority changes. Other entries stay as they are.
"""


def write_admin_kubeconfig(path: Path, url: str, ca_file: Path | None, new_key: str | None) -> str | None:
    """Updates the file and returns the key in it, or None if there is neither a new key nor one in the file."""
    existing = _read_or_move_away(path)
    key = new_key or _find_token(existing)
    if key is None:
        return None
    config = merge_own_entries(existing, url, read_file(ca_file) if ca_file else None, key)
    if config == existing:
        return key
    if new_key is not None and (content := read_file(path)) is not None:
        # It may have the only copy of a key for a store that is restored later.
        write_file(_free_path(path), content)
    write_file(path, HEADER.encode() + yaml.encode(config))
    return key


def _read_or_move_away(path: Path) -> Object:
    """The kubeconfig. A file that is none is renamed: the server must start, and a new key needs a place."""
    try:
        return _read_kubeconfig(path)
    except NotAKubeconfig as error:
        import structlog  # takes longer than a command that only reads the file

        copy = _free_path(path)
        path.rename(copy)
        log = structlog.get_logger(__name__)
        log.warning("the kubeconfig of the administrator cannot be read", why=str(error), copy=str(copy))
        return {}


def _free_path(path: Path) -> Path:
    number = 1
    while (copy := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return copy


def merge_own_entries(existing: Object, url: str, ca_pem: bytes | None, key: str) -> Object:
    """The kubeconfig with the entries of the server. The current context changes only if it does not exist."""
    cluster = {"server": url + MANAGEMENT_PATH}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem).decode()
    namespace = get_path(find_entry(existing, "contexts", "context", CONTEXT_NAME), "namespace") or ""
    contexts = {CONTEXT_NAME, *(each.get("name") for each in existing.get("contexts") or ())}
    entry = KubeconfigEntry(CONTEXT_NAME, cluster, {"token": key}, namespace)
    return merge_entry(existing, entry, make_current=existing.get("current-context") not in contexts)


def is_server_file(path: Path) -> bool:
    """Whether a file is the admin kubeconfig of a server on this machine, by its name or by its first lines."""
    target = Path(os.path.realpath(path))
    return target.name == KUBECONFIG_NAME or (read_file(target) or b"").startswith(HEADER.encode())


def read_key(path: Path) -> str | None:
    """The key in the file, or None if it has none or does not exist. Raises FileProblem if it is not a kubeconfig."""
    return _find_token(_read_kubeconfig(path))


def read_current_context(path: Path) -> str:
    """The name of the current context; empty if there is none."""
    return str(_read_kubeconfig(path).get("current-context") or "")


def read_server_url(path: Path) -> str:
    """The URL of the server as of its last start; empty if the file has none or does not exist. Raises FileProblem if
    it cannot be read."""
    url = str(get_path(find_entry(_read_kubeconfig(path), "clusters", "cluster", CONTEXT_NAME), "server") or "")
    return url.removesuffix(MANAGEMENT_PATH)


class NotAKubeconfig(FileProblem):
    """The content of the file is not a kubeconfig."""


def _read_kubeconfig(path: Path) -> Object:
    """Empty if the file does not exist."""
    try:
        config, _ = yaml.decode(read_file(path) or b"")
    except yaml.Malformed as error:
        raise NotAKubeconfig(f"{path}: {error}; restore it from a backup, or remove it") from None
    config = {} if config is None else config
    if not isinstance(config, dict) or not _is_kubeconfig(config):
        raise NotAKubeconfig(f"{path}: not a kubeconfig; restore it from a backup, or remove it")
    return config


def _is_kubeconfig(config: Object) -> bool:
    has_name = isinstance(config.get("current-context"), str | None)
    return has_name and all(_is_entry_list(config.get(section)) for section in SECTIONS)


def _is_entry_list(listed: Any) -> bool:
    if listed is None:
        return True
    return isinstance(listed, list) and all(
        isinstance(each, dict) and isinstance(each.get("name"), str | None) for each in listed
    )


def _find_token(config: Object) -> str | None:
    token = get_path(find_entry(config, "users", "user", CONTEXT_NAME), "token")
    return token if isinstance(token, str) and token else None
