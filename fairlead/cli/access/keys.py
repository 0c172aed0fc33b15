"""Access keys as objects: their scopes, from flags or a file and in words, and when they expire."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.ui.completion import SCOPE_COMPLETERS
from fairlead.cli.ui.durations import parse_time
from fairlead.cli.ui.field_flags import name_flags
from fairlead.cli.ui.flags import flag
from fairlead.cli.ui.session import UsageError, read_input
from fairlead.client import Client
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, get_path

ENTRY_FORMATS = (
    # Field of the scope, fields of an entry, and the noun for descriptions.
    ("projects", ("project",), "project"),
    ("spaces", ("project", "space"), "space"),
    ("virtualClusters", ("project", "virtualCluster"), "virtual cluster"),
    ("clusters", ("cluster",), "cluster"),
)
CLI_FLAG = "allowServiceCli"


@dataclass(frozen=True, slots=True)
class ScopeOptions:
    """The flags that say what a key or token may be used for."""

    project: Annotated[
        list[str] | None,
        flag(
            "--project", help="A project with all its objects; * for all. Repeatable.", metavar="P", complete="projects"
        ),
    ] = None
    space: Annotated[
        list[str] | None,
        flag("--space", help="A space of a project. Repeatable.", metavar="P/S", complete=SCOPE_COMPLETERS["--space"]),
    ] = None
    virtual_cluster: Annotated[
        list[str] | None,
        flag(
            "--virtual-cluster",
            help="A virtual cluster of a project. Repeatable.",
            metavar="P/V",
            complete=SCOPE_COMPLETERS["--virtual-cluster"],
        ),
    ] = None
    cluster: Annotated[
        list[str] | None,
        flag("--cluster", help="A connected cluster; * for all. Repeatable.", metavar="C", complete="clusters"),
    ] = None
    allow_cli: Annotated[bool, typer.Option("--allow-cli", help="Also the read requests of command-line tools.")] = (
        False
    )
    scope_file: Annotated[
        Path | None, flag("--scope-file", help="YAML or JSON file with the whole scope.", metavar="FILE")
    ] = None

    def build(self) -> Object | None:
        """The scope; None if no flag is set."""
        chosen = {
            "projects": self.project,
            "spaces": self.space,
            "virtualClusters": self.virtual_cluster,
            "clusters": self.cluster,
        }
        scope: Object = {
            name: [_parse_entry(parts, text) for text in chosen[name] or ()]
            for name, parts, _ in ENTRY_FORMATS
            if chosen[name]
        }
        if self.allow_cli:
            scope[CLI_FLAG] = True
        if self.scope_file is None:
            return scope or None
        if scope:
            raise UsageError(
                "--scope-file contains the whole scope and excludes the other scope flags; use either the file or the "
                "flags"
            )
        return _load_scope(self.scope_file)

    def name_flags(self, client: Client) -> AbstractContextManager[None]:
        """Replaces fields in messages by flags, unless the fields are those of the scope file."""
        return nullcontext() if self.scope_file else name_flags(client)


def _parse_entry(parts: Sequence[str], text: str) -> Object:
    values = text.split("/")
    if len(values) != len(parts) or not all(values):
        form = "/".join(part.upper() for part in parts)
        raise UsageError(f"{text!r} is not a valid scope entry; use the format {form}")
    return dict(zip(parts, values, strict=True))


def _load_scope(path: Path) -> Object:
    from fairlead.core import yaml

    try:
        value, duplicates = yaml.decode(read_input(path, "set a YAML or JSON file with a scope"))
    except Malformed as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(value, dict) or duplicates:
        raise UsageError(
            f"{path}: must contain one scope without duplicate fields, such as `projects: [{{project: demo}}]`"
        )
    return value


def describe_scope(scope: Any, owner: str) -> list[str]:
    """Describes a scope, one line per entry."""
    if not isinstance(scope, dict):
        return [f"all permissions of {owner}"]
    lines = [
        f"{word} {_format_entry(entry, parts)}"
        for name, parts, word in ENTRY_FORMATS
        for entry in _entries(scope, name)
    ]
    lines += [_describe_role(entry) for entry in _entries(scope, "roles")]
    lines += [_describe_rule(entry) for entry in _entries(scope, "rules")]
    if scope.get(CLI_FLAG):
        lines.append("read requests of command-line tools")
    return lines or ["only whoami"]


def _entries(scope: Object, name: str) -> list[Object]:
    return [entry for entry in scope.get(name) or () if isinstance(entry, dict)]


def _format_entry(entry: Object, parts: Sequence[str]) -> str:
    return "/".join(str(entry.get(part, "")) for part in parts)


def _describe_role(entry: Object) -> str:
    return f"the role {entry.get('role', '')}"


def _describe_rule(entry: Object) -> str:
    """Summarizes a rule in one line; `key show -o yaml` has all of it."""
    verbs = ", ".join(entry.get("verbs") or ("all verbs",))
    resources = [
        (f"{name}.{each['group']}" if each.get("group") else name) + _describe_names(each)
        for each in entry.get("resources") or ()
        for name in each.get("resources") or ("*",)
    ]
    objects = resources + list(entry.get("nonResourceURLs") or ())
    limits = "".join(_describe_limits(entry))
    return f"rule: {verbs} on {', '.join(objects) or 'everything'}{limits}"


def _describe_names(entry: Object) -> str:
    names = entry.get("resourceNames")
    return f" named {' or '.join(names)}" if names else ""


def _describe_limits(entry: Object) -> Iterator[str]:
    """The restrictions of a rule. Omitting them would make it look more permissive than it is."""
    yield _describe_names(entry)
    if namespaces := entry.get("namespaces"):
        yield f" in {', '.join(each or 'no namespace' for each in namespaces)}"
    if targets := entry.get("requestTargets"):
        yield f" of {', '.join(targets)}"
    if cluster := entry.get("cluster"):
        yield f" through cluster {cluster}"
    if clusters := entry.get("virtualClusters"):
        yield f" through virtual cluster {', '.join(_format_entry(each, ('namespace', 'name')) for each in clusters)}"


# The columns of the server's tables follow the same rules about when a key expires.
FIRST_KEY_ANNOTATION = "service.sh/expires-unless-replaced"
"""When the key of the first administrator expires, unless there is another way in by then."""


def expiry_time(key: Object) -> datetime | None:
    """When the key expires; None for never. With ttlAfterLastActivity, each use extends the lifetime."""
    ttl = get_path(key, "spec.ttl")
    created = parse_time(get_path(key, "metadata.creationTimestamp"))
    used = parse_time(get_path(key, "status.lastActivity")) if get_path(key, "spec.ttlAfterLastActivity") else None
    start = max((each for each in (created, used) if each), default=None)
    return start + timedelta(seconds=int(ttl)) if ttl and start else None


def temporary_until(key: Object) -> datetime | None:
    """When the first administrator's key expires, unless it is replaced; None for any other key."""
    annotations = get_path(key, "metadata.annotations")
    return parse_time(annotations.get(FIRST_KEY_ANNOTATION)) if isinstance(annotations, dict) else None


def find_expiry(key: Object) -> tuple[datetime | None, bool]:
    """When the key expires or has expired, None for never; and whether another way in prevents that."""
    if expired := parse_time(get_path(key, "status.expired")):
        return expired, False
    end = expiry_time(key)
    temporary = temporary_until(key)
    if temporary is not None and (end is None or temporary < end):
        return temporary, True
    return end, False
