"""Exports one kubeconfig context as a self-contained kubeconfig, for `fairlead cluster add`.

A local kubeconfig refers to files and to credential plugins, which the server does not have. Files are inlined;
whatever cannot be exported is rejected, with advice. Files are merged as kubectl does: the first file that defines a
name wins, and relative paths are relative to their own file. The server validates the result again
(`upstream/kubeconfig.py`).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fairlead.client.errors import ClientError
from fairlead.client.kubeconfig import find_entry, parse_kubeconfig
from fairlead.client.tls import build_ssl_context
from fairlead.core.files import FileProblem, MissingFile, read_file
from fairlead.core.objects import Object

EXPORTED_NAME = "cluster"
"""Name of the cluster, user and context in the exported kubeconfig."""

UNSUPPORTED_CREDENTIALS = {
    "exec": "uses a credential plugin (exec), which the server does not run",
    "auth-provider": "uses an auth-provider, which the server does not support",
    "username": "uses a password, which Kubernetes no longer supports",
    "as": "impersonates a user (as), which the server does itself for each request",
}
"""Types of credentials that cannot be exported."""


class NotExportable(ClientError):
    """The context cannot be exported. `needs_token`: whether a token instead of its credential would fix that."""

    def __init__(self, context: KubeconfigContext, problems: Sequence[str], needs_token: bool) -> None:
        super().__init__(f"the context {context.name!r} cannot be used by the server: {'; '.join(problems)}")
        self.context = context
        self.needs_token = needs_token


@dataclass(frozen=True, slots=True)
class KubeconfigSection:
    """A cluster, user or context, and the directory that its relative paths refer to."""

    folder: Path
    value: Object = field(repr=False)

    def read_data(self, name: str) -> bytes:
        """Reads inline data, such as `client-key-data`, or else the referenced file, such as `client-key`."""
        if data := self.value.get(f"{name}-data"):
            try:
                return base64.b64decode(str(data), validate=True)
            except ValueError:
                raise ClientError(f"{name}-data is not valid base64; export the kubeconfig again") from None
        return self.read_referenced_file(name)

    def read_referenced_file(self, name: str) -> bytes:
        """Reads the file that a field refers to. Empty if the field is not set."""
        if not (path := self.value.get(name)):
            return b""
        content = read_file(self.folder / str(path))
        if content is None:
            raise FileProblem(f"{self.folder / str(path)}: no such file; the kubeconfig refers to it as {name}")
        return content


@dataclass(frozen=True, slots=True)
class KubeconfigContext:
    """A context with its cluster and user, as found in the files."""

    name: str
    cluster_name: str
    cluster: KubeconfigSection
    user: KubeconfigSection


@dataclass(frozen=True, slots=True)
class ExportedKubeconfig:
    """A self-contained kubeconfig with one context."""

    context: str
    server: str
    content: bytes = field(repr=False)


def kubeconfig_paths(path: Path | None, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The kubeconfig files that kubectl would use."""
    if path is not None:
        return [path.expanduser()]
    listed = [Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    return listed or [Path("~/.kube/config").expanduser()]


def paths_with_context(context: str | None, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The files that kubectl would use, or ~/.kube/config if only that has the context: $KUBECONFIG may have been set
    for something else meanwhile."""
    listed = kubeconfig_paths(None, environment)
    default = Path("~/.kube/config").expanduser()
    if context and default not in listed and not _has_context(listed, context) and _has_context([default], context):
        return [default]
    return listed


def _has_context(paths: Sequence[Path], context: str) -> bool:
    return _find_section(_read_files(paths), "contexts", "context", context) is not None


def _read_files(paths: Sequence[Path]) -> list[tuple[Path, Object]]:
    return [(path, parse_kubeconfig(path, content)) for path in paths if (content := read_file(path)) is not None]


def export_context(paths: Sequence[Path], context: str | None) -> ExportedKubeconfig:
    """Exports the named context, else the current one. Raises NotExportable, ClientError and FileProblem."""
    from fairlead.core import yaml

    selected = find_context(paths, context)
    # Report all problems at once.
    cluster_problems = list(_cluster_problems(selected.cluster))
    user_problems = list(_user_problems(selected.user))
    if cluster_problems or user_problems:
        raise NotExportable(selected, (*cluster_problems, *user_problems), needs_token=bool(user_problems))
    cluster = _export_cluster(selected.cluster)
    user = _export_user(selected.user)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": EXPORTED_NAME, "cluster": cluster}],
        "users": [{"name": EXPORTED_NAME, "user": user}],
        "contexts": [{"name": EXPORTED_NAME, "context": {"cluster": EXPORTED_NAME, "user": EXPORTED_NAME}}],
        "current-context": EXPORTED_NAME,
    }
    return ExportedKubeconfig(selected.name, cluster["server"], yaml.encode(config))


def find_context(paths: Sequence[Path], context: str | None) -> KubeconfigContext:
    files = _read_files(paths)
    if not files:
        raise MissingFile(f"{paths[0]}: no such file; name an existing one with --kubeconfig")
    name = context or next((str(each["current-context"]) for _, each in files if each.get("current-context")), "")
    where = ", ".join(str(path) for path, _ in files)
    if not name:
        raise ClientError(f"{where}: no current context; select one with --kube-context from {_context_names(files)}")
    part = _find_section(files, "contexts", "context", name)
    if part is None:
        raise ClientError(f"{where}: no context {name!r}; select one with --kube-context from {_context_names(files)}")
    cluster_name = str(part.value.get("cluster") or "")
    cluster = _find_section(files, "clusters", "cluster", cluster_name)
    user = _find_section(files, "users", "user", str(part.value.get("user") or ""))
    if cluster is None or user is None:
        raise ClientError(f"{where}: the context {name!r} refers to a missing cluster or user; fix the kubeconfig")
    return KubeconfigContext(name, cluster_name, cluster, user)


def _find_section(files: Sequence[tuple[Path, Object]], section: str, kind: str, name: str) -> KubeconfigSection | None:
    found = ((path, find_entry(config, section, kind, name)) for path, config in files)
    return next((KubeconfigSection(path.parent, value) for path, value in found if isinstance(value, dict)), None)


def _context_names(files: Sequence[tuple[Path, Object]]) -> str:
    return ", ".join(str(each.get("name")) for _, config in files for each in config.get("contexts") or ()) or "none"


def _cluster_problems(cluster: KubeconfigSection) -> Iterator[str]:
    if cluster.value.get("insecure-skip-tls-verify"):
        yield "it does not verify certificates; set certificate-authority instead of insecure-skip-tls-verify"
    if not _is_server_url(cluster.value.get("server")):
        yield "its server is not a URL like https://cluster.example.com:6443, with https and without user or password"


def _is_server_url(value: Any) -> bool:
    try:
        parts = urlsplit(str(value or ""))
        fine = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return fine and "@" not in parts.netloc and not parts.query and not parts.fragment


def _user_problems(user: KubeconfigSection) -> Iterator[str]:
    has = user.value
    refused = [text for name, text in UNSUPPORTED_CREDENTIALS.items() if has.get(name)]
    yield from (f"it {text}" for text in refused)
    by_certificate = [has.get(f"{part}-data") or has.get(part) for part in ("client-certificate", "client-key")]
    if not refused and not (has.get("token") or has.get("tokenFile") or all(by_certificate)):
        yield "it has neither a token nor a client certificate with its key"


def _export_cluster(cluster: KubeconfigSection) -> Object:
    exported = {"server": str(cluster.value["server"])}
    if name := cluster.value.get("tls-server-name"):
        exported["tls-server-name"] = str(name)
    if proxy := cluster.value.get("proxy-url"):
        exported["proxy-url"] = str(proxy)
    if authority := cluster.read_data("certificate-authority"):
        try:
            build_ssl_context(authority.decode("ascii", "replace"))
        except ValueError as error:
            raise ClientError(f"the kubeconfig's certificate-authority {error}; fix the kubeconfig") from None
        exported["certificate-authority-data"] = base64.b64encode(authority).decode()
    return exported


def _export_user(user: KubeconfigSection) -> Object:
    """A token takes precedence, as with kubectl; a token file takes precedence over an inline token."""
    token = user.read_referenced_file("tokenFile").decode("ascii", "replace").strip() or str(
        user.value.get("token") or ""
    )
    if token:
        return {"token": token}
    parts = ("client-certificate", "client-key")
    return {f"{part}-data": base64.b64encode(user.read_data(part)).decode() for part in parts}
