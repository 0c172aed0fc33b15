"""Kubeconfig files: a login taken from one, and a context put into one that holds others already.

`fairlead kubeconfig` and `fairlead login --kubeconfig` call this. A file that people live by is changed with care: what
is not ours stays as it was, the state before is kept beside it, the new one appears at once or not at all, and the lock
of kubectl is respected, as it may be writing at the same moment.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.client.client import MANAGEMENT, normalized, read_authority
from fairlead.client.contexts import Login
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.files import FileProblem, private_folder, read_file, write_file
from fairlead.core.objects import Object, dig

SECTIONS = ("clusters", "users", "contexts")


@dataclass(frozen=True, slots=True)
class Entry:
    """A context with a cluster and a user of the same name. `user` is how to sign in, as kubeconfigs say it."""

    name: str
    cluster: Object
    user: Object
    namespace: str = ""

    @property
    def context(self) -> Object:
        place = {"namespace": self.namespace} if self.namespace else {}
        return {"cluster": self.name, "user": self.name, **place}


def cluster_of(login: Login, path: str = MANAGEMENT) -> Object:
    """The server of a login: its own API, or another one that it is the entrance to."""
    cluster: Object = {"server": login.url + path}
    if login.authority:
        cluster["certificate-authority-data"] = base64.b64encode(login.authority.encode()).decode()
    if login.insecure:
        cluster["insecure-skip-tls-verify"] = True
    return cluster


def merged(config: Object, entry: Entry, make_current: bool) -> Object:
    """The config with the entry in it: in the place of one that has its name, else at the end."""
    result = {"apiVersion": "v1", "kind": "Config", **config}
    for section, field, value in (
        ("clusters", "cluster", entry.cluster),
        ("users", "user", entry.user),
        ("contexts", "context", entry.context),
    ):
        result[section] = _with_named(config.get(section) or [], entry.name, field, value)
    if make_current or not config.get("current-context"):
        result["current-context"] = entry.name
    return result


def _with_named(listed: list[Object], name: str, field: str, value: Object) -> list[Object]:
    ours = {"name": name, field: value}
    replaced = [ours if each.get("name") == name else each for each in listed]
    return replaced if ours in replaced else [*listed, ours]


def merge_into(path: Path, entry: Entry, make_current: bool = True) -> Path | None:
    """Puts the entry into the file, made if there is none. Returns where the state before is kept, if it differs."""
    # A link stays a link: the file behind it is the one to replace.
    path = Path(os.path.realpath(path))
    private_folder(path.parent)
    with _locked(path):
        before = read_file(path)
        content = yaml.encode(merged(parsed(path, before), entry, make_current))
        if content == before:
            return None
        backup = path.with_name(f"{path.name}.bak") if before is not None else None
        if backup is not None:
            write_file(backup, before or b"")
        write_file(path, content)
    return backup


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock that kubectl takes on the same file."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise FileProblem(f"{lock}: another program is writing {path.name}; try again, or remove the lock") from None
    except OSError as error:
        raise FileProblem(f"{lock}: {error.strerror}; make the folder writable, or name another file") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def login_of(path: Path) -> Login:
    """The login of a kubeconfig's current context, whose user must have a token."""
    content = read_file(path)
    if content is None:
        raise FileProblem(f"{path}: no such file; name a kubeconfig")
    config = parsed(path, content)
    context = named(config, "contexts", "context", config.get("current-context"))
    cluster = named(config, "clusters", "cluster", dig(context, "cluster"))
    token = dig(named(config, "users", "user", dig(context, "user")), "token")
    server = dig(cluster, "server")
    if not isinstance(token, str) or not isinstance(server, str):
        raise FileProblem(f"{path}: its current context has no server with a token; log in with a key instead")
    return Login(normalized(server), token, _authority(path, cluster), bool(dig(cluster, "insecure-skip-tls-verify")))


def _authority(path: Path, cluster: Any) -> str:
    if file := dig(cluster, "certificate-authority"):
        return read_authority(path.parent / str(file))
    try:
        return base64.b64decode(dig(cluster, "certificate-authority-data") or "").decode("ascii")
    except ValueError:
        raise FileProblem(f"{path}: its certificate-authority-data cannot be read; give --ca-file instead") from None


def named(config: Object, section: str, field: str, name: Any) -> Any:
    return next((each.get(field) for each in config.get(section) or [] if each.get("name") == name), None)


def parsed(path: Path, content: bytes | None) -> Object:
    try:
        config, _ = yaml.decode(content or b"{}")
    except Malformed as error:
        raise FileProblem(f"{path}: {error}; mend it, or name another file") from None
    config = {} if config is None else config
    if not isinstance(config, dict) or not all(_has_objects(config.get(section)) for section in SECTIONS):
        raise FileProblem(f"{path}: not a kubeconfig; mend it, or name another file")
    return config


def _has_objects(listed: Any) -> bool:
    return listed is None or (isinstance(listed, list) and all(isinstance(each, dict) for each in listed))
