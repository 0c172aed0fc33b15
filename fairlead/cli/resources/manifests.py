"""Reads the objects in files, folders and stdin: YAML with several documents, JSON, and Lists of objects."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.ui.session import UsageError
from fairlead.core import json
from fairlead.core.body_errors import Malformed
from fairlead.core.files import read_file
from fairlead.core.objects import Object, get_path

STDIN = "-"
SUFFIXES = (".json", ".yaml", ".yml")
DOCUMENT_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)

FilesFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        help="File or folder with objects; - for stdin. Repeatable.",
        metavar="PATH",
        show_default=False,
    ),
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
    content = sys.stdin.buffer.read() if path == STDIN else read_file(Path(path))
    if content is None:
        raise UsageError(f"{path}: no such file; check the path")
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
