"""Kubeconfig files: reads a login from one, and merges a context into an existing one.

`fairlead kubeconfig` and `fairlead login --kubeconfig` call this. Other entries of the file are preserved, a backup is
written, the file is replaced atomically, and kubectl's lock file is honoured.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.client.client import MANAGEMENT, normalize_url, read_ca_file
from fairlead.client.contexts import Login
from fairlead.client.errors import ClientError
from fairlead.core.body_errors import Malformed
from fairlead.core.files import FileProblem, MissingFile, ensure_private_folder, read_file, write_file
from fairlead.core.objects import Object, get_path

SECTIONS = ("clusters", "users", "contexts")


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """A context with a cluster and a user of the same name. `cluster` and `user` are in kubeconfig format."""

    name: str
    cluster: Object
    user: Object
    namespace: str = ""

    @property
    def context(self) -> Object:
        namespace = {"namespace": self.namespace} if self.namespace else {}
        return {"cluster": self.name, "user": self.name, **namespace}


def cluster_entry(login: Login, path: str = MANAGEMENT) -> Object:
    """The kubeconfig cluster for a login: the management API, or the gateway at `path`."""
    cluster: Object = {"server": login.url + path}
    if login.authority:
        cluster["certificate-authority-data"] = base64.b64encode(login.authority.encode()).decode()
    if login.insecure:
        cluster["insecure-skip-tls-verify"] = True
    return cluster


def merge_entry(config: Object, entry: KubeconfigEntry, make_current: bool) -> Object:
    """Returns the config with the entry. Replaces an entry of the same name, else appends it."""
    result = {"apiVersion": "v1", "kind": "Config", **config}
    for section, field, value in (
        ("clusters", "cluster", entry.cluster),
        ("users", "user", entry.user),
        ("contexts", "context", entry.context),
    ):
        result[section] = _replace_or_append(config.get(section) or [], entry.name, field, value)
    if make_current or not config.get("current-context"):
        result["current-context"] = entry.name
    return result


def _replace_or_append(listed: list[Object], name: str, field: str, value: Object) -> list[Object]:
    entry = {"name": name, field: value}
    replaced = [entry if each.get("name") == name else each for each in listed]
    return replaced if entry in replaced else [*listed, entry]


def merge_into_file(path: Path, entry: KubeconfigEntry, make_current: bool = True) -> Path | None:
    """Merges the entry into the file, creating it if needed. Returns the path of the backup, if the file changed."""
    from fairlead.core import yaml

    # Resolve symbolic links: replace the target, not the link.
    path = Path(os.path.realpath(path))
    ensure_private_folder(path.parent)
    with _lock_file(path):
        before = read_file(path)
        merged = merge_entry(parse_kubeconfig(path, before), entry, make_current)
        content = _leading_comments(before or b"") + yaml.encode(merged)
        if content == before:
            return None
        backup = path.with_name(f"{path.name}.bak") if before is not None else None
        if backup is not None:
            write_file(backup, before or b"")
        write_file(path, content)
    return backup


def _leading_comments(content: bytes) -> bytes:
    """The first lines of a file, if they are comments: they say what the file is."""
    comments: list[bytes] = []
    for line in content.splitlines(keepends=True):
        if not line.startswith(b"#"):
            break
        comments.append(line)
    return b"".join(comments)


@contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Holds kubectl's lock file."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise FileProblem(f"{lock}: another program is writing {path.name}; try again, or remove the lock") from None
    except OSError as error:
        raise FileProblem(f"{lock}: {error.strerror}; make the directory writable, or specify another file") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def login_from_kubeconfig(path: Path, context_name: str | None = None) -> Login:
    """Reads a login from a context of a kubeconfig, by default the current one. Its user must have a token."""
    content = read_file(path)
    if content is None:
        raise MissingFile(f"{path}: no such file; specify a kubeconfig")
    config = parse_kubeconfig(path, content)
    name = config.get("current-context") if context_name is None else context_name
    if not name:
        raise FileProblem(f"{path}: no current context; select one with --context ({_context_names(config)})")
    context = find_entry(config, "contexts", "context", name)
    if context is None:
        raise FileProblem(f"{path}: no context {name!r}; select another one with --context ({_context_names(config)})")
    cluster = find_entry(config, "clusters", "cluster", get_path(context, "cluster"))
    token = get_path(find_entry(config, "users", "user", get_path(context, "user")), "token")
    server = get_path(cluster, "server")
    if not isinstance(token, str) or not isinstance(server, str):
        missing = "server" if not isinstance(server, str) else "token"
        advice = "select another one with --context, or log in with an access key instead"
        raise FileProblem(f"{path}: the context {name!r} has no {missing}; {advice}")
    try:
        url = normalize_url(server)
    except ClientError as problem:
        raise FileProblem(f"{path}: the server of the context {name!r}: {problem}") from None
    return Login(url, token, _read_ca_data(path, cluster), bool(get_path(cluster, "insecure-skip-tls-verify")))


def _context_names(config: Object) -> str:
    names = [str(each.get("name")) for each in config.get("contexts") or []]
    return f"available: {', '.join(names) or 'none'}"


def _read_ca_data(path: Path, cluster: Any) -> str:
    if file := get_path(cluster, "certificate-authority"):
        return read_ca_file(path.parent / str(file))
    try:
        return base64.b64decode(get_path(cluster, "certificate-authority-data") or "").decode("ascii")
    except ValueError:
        raise FileProblem(f"{path}: certificate-authority-data is not valid base64; use --ca-file instead") from None


def find_entry(config: Object, section: str, field: str, name: Any) -> Any:
    return next((each.get(field) for each in config.get(section) or [] if each.get("name") == name), None)


def parse_kubeconfig(path: Path, content: bytes | None) -> Object:
    from fairlead.core import yaml

    try:
        config, _ = yaml.decode(content or b"{}")
    except Malformed as error:
        raise FileProblem(f"{path}: {error}; fix it, or specify another file") from None
    config = {} if config is None else config
    if not isinstance(config, dict) or not all(_is_object_list(config.get(section)) for section in SECTIONS):
        raise FileProblem(f"{path}: not a kubeconfig; fix it, or specify another file")
    return config


def _is_object_list(listed: Any) -> bool:
    return listed is None or (isinstance(listed, list) and all(isinstance(each, dict) for each in listed))
