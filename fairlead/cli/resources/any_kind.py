"""Shared by `fairlead get`, `apply` and `delete`: which objects of any kind are meant, and in which namespaces.

They are named in arguments, or are in files, folders and stdin: YAML with several documents, JSON, and Lists.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.ui.completion import complete_targets
from fairlead.cli.ui.describe import text_of
from fairlead.cli.ui.flags import NamespaceFlag, ProjectNamespaceFlag, flag
from fairlead.cli.ui.session import Session, UsageError, project_namespace, read_input
from fairlead.client import ApiStatusError, ClientError
from fairlead.client.discovery import ApiResource, list_resources, select_resource
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.objects import Object, get_path

NOUNS = {
    "appinstance": "appinstances",
    "environment": "devpodenvironmenttemplates",
    "key": "ownedaccesskeys",
    "preset": "devpodworkspacepresets",
    "space": "spaceinstances",
    "vcluster": "virtualclusterinstances",
    "vclustertemplate": "virtualclustertemplates",
    "workspace": "devpodworkspaceinstances",
    "workspacetemplate": "devpodworkspacetemplates",
}
"""The nouns of other commands, with the resources that they stand for."""

NAMESPACES = ApiResource(group="", version="v1", plural="namespaces")

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="KIND, KIND NAME... or KIND/NAME...",
        metavar="KIND[/NAME]",
        show_default=False,
        autocompletion=complete_targets,
    ),
]


@dataclass(frozen=True, slots=True)
class NamespaceOptions:
    project: ProjectNamespaceFlag = None
    namespace: NamespaceFlag = None

    def resolve(self, session: Session) -> str:
        """The namespace of the flags; empty without them."""
        if self.project and self.namespace:
            raise UsageError("--namespace and --project are mutually exclusive; choose one")
        if self.namespace:
            _require_namespace(session, self.namespace)
        return project_namespace(session, self.project) if self.project else self.namespace or ""


def _require_namespace(session: Session, namespace: str) -> None:
    """Raises ClientError if the namespace does not exist: that of a project has another name than the project. Does
    nothing if the user may not know."""
    try:
        session.client.send("GET", NAMESPACES.path(namespace))
    except ApiStatusError as problem:
        if problem.code == 403:
            return
        if problem.code != 404:
            raise
        advice = "for the objects of a project, use --project PROJECT"
        raise ClientError(f"there is no namespace {namespace!r}; {advice}") from None


@dataclass(frozen=True, slots=True)
class Target:
    """An object, or all objects of a resource if the name is empty."""

    resource: ApiResource
    name: str = ""
    namespace: str = ""

    @property
    def path(self) -> str:
        return self.resource.path(self.name, self.namespace)

    @property
    def label(self) -> str:
        return f"{self.resource.kind.lower()}/{self.name}"


def served_resources(session: Session) -> list[ApiResource]:
    return list(list_resources(session.client))


def parse_targets(session: Session, words: Sequence[str], namespace: str) -> list[Target]:
    """Parses `apps`, `apps,projects`, `app one two` and `app/one project/two`."""
    served = served_resources(session)

    def find(text: str) -> ApiResource:
        return select_resource(served, NOUNS.get(text.removesuffix("s"), text), session.client.group)

    if "" in words[1:]:
        raise UsageError("a name is empty; leave it out for all objects")
    if any("/" in each for each in words):
        pairs = list(_split_pairs(words))
    else:
        pairs = [(kind, name) for kind in words[0].split(",") for name in words[1:] or [""]]
    return [_build_target(find(kind), name, namespace) for kind, name in pairs]


def _split_pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in words:
        kind, slash, name = each.partition("/")
        if not kind or not slash or not name:
            raise UsageError(f"{each!r} is not in the form KIND/NAME, like app/nginx")
        yield kind, name


def _build_target(resource: ApiResource, name: str, namespace: str) -> Target:
    if name and resource.namespaced and not namespace:
        raise UsageError(f"{resource.plural} are in namespaces; add --project P, or --namespace NS")
    return Target(resource, name, namespace if resource.namespaced else "")


def object_namespace(resource: ApiResource, body: Object, namespace: str) -> str:
    """The namespace of a manifest: its own, else that of the flags."""
    own = text_of(body, "metadata.namespace")
    if not resource.namespaced:
        return ""
    if own and namespace and own != namespace:
        raise UsageError(f"its metadata.namespace is {own}, which is not that of the flags, {namespace}")
    if not own and not namespace:
        raise UsageError("it needs a namespace; add --project P, or set metadata.namespace")
    return own or namespace


STDIN = "-"
SUFFIXES = (".json", ".yaml", ".yml")
DOCUMENT_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)

FilesFlag = Annotated[
    list[str] | None,
    flag("--filename", "-f", help="File or folder with objects; - for stdin. Repeatable.", metavar="PATH"),
]
RecursiveFlag = Annotated[bool, typer.Option("--recursive", "-R", help="Read the folders in a folder, too.")]


REFERRED_KINDS = ("Namespace", "User", "Team", "Secret", "Cluster", "Runner", "Project")
"""Kinds that others refer to, in the order in which they are applied; then templates, presets, and all others."""
REFERRED_ENDINGS = ("Template", "Preset")


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object, and the file that it is from."""

    body: Object
    origin: str

    @property
    def label(self) -> str:
        return f"{str(self.body.get('kind')).lower()}/{get_path(self.body, 'metadata.name')}"


def read_manifests(paths: Sequence[str], recursive: bool) -> list[Manifest]:
    """Reads all objects, and sorts them: what others need comes first.

    Raises UsageError before anything is sent, if a part of the input is not usable.
    """
    manifests = [
        manifest
        for path in paths
        for file in _list_files(path, recursive)
        for value in _decode(_read_text(file), file)
        for manifest in _split_list(value, file)
    ]
    if not manifests:
        raise UsageError(
            f"{', '.join(paths)}: no objects found; in a folder, files that end in .yaml or .json are read"
        )
    return sorted(manifests, key=_apply_rank)


def _apply_rank(manifest: Manifest) -> int:
    kind = str(manifest.body["kind"])
    if kind in REFERRED_KINDS:
        return REFERRED_KINDS.index(kind)
    ranks = [rank for rank, ending in enumerate(REFERRED_ENDINGS) if kind.endswith(ending)]
    return len(REFERRED_KINDS) + (ranks[0] if ranks else len(REFERRED_ENDINGS))


def _list_files(path: str, recursive: bool) -> list[str]:
    if path == STDIN or not os.path.isdir(path):
        return [path]
    try:
        found = list(Path(path).rglob("*") if recursive else Path(path).iterdir())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; make it readable, or use another path") from None
    return sorted(str(each) for each in found if each.suffix in SUFFIXES and os.path.isfile(each))


def _read_text(path: str) -> str:
    content = sys.stdin.buffer.read() if path == STDIN else read_input(Path(path), "check the path")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8; encode it as UTF-8") from None


def _decode(text: str, path: str) -> Iterator[Any]:
    """The values in a text: one of JSON, or those of the YAML documents."""
    from fairlead.core import yaml

    try:
        if text.lstrip()[:1] in ("{", "["):
            yield json.decode(text.encode())
            return
        for document in _split_documents(text):
            value, duplicates = yaml.decode(document.encode())
            if duplicates:
                raise UsageError(f"{path}: the field {duplicates[0]} is there twice; keep one")
            if value is not None:
                yield value
    except Malformed as error:
        raise UsageError(f"{path}: {error}") from None


def _split_documents(text: str) -> Iterator[str]:
    """The YAML documents. Empty lines before each keep the line numbers of errors."""
    position = 0
    for match in DOCUMENT_START.finditer(text):
        yield "\n" * text.count("\n", 0, position) + text[position : match.start()]
        position = match.end()
    yield "\n" * text.count("\n", 0, position) + text[position:]


def _split_list(value: Any, path: str) -> Iterator[Manifest]:
    """The objects of a List, or of a JSON list; else the object itself."""
    items = value if isinstance(value, list) else _list_items(value)
    for each in [value] if items is None else items:
        if not isinstance(each, dict) or not isinstance(each.get("kind"), str) or not each.get("apiVersion"):
            raise UsageError(f"{path}: not an object of the API; it needs apiVersion and kind")
        if not get_path(each, "metadata.name"):
            raise UsageError(f"{path}: an object of the kind {each['kind']} has no metadata.name; set it")
        yield Manifest(each, "stdin" if path == STDIN else path)


def _list_items(value: Any) -> list[Any] | None:
    if isinstance(value, dict) and str(value.get("kind")).endswith("List") and isinstance(value.get("items"), list):
        return list(value["items"])
    return None
