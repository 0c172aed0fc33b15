"""Reads Compose files of a repository in the holder, and what they name: further files, and files of variables.

A file counts only if it really is below the work folder: a link leads nowhere else. Sizes and numbers are bounded, and
all but the reading happens in a thread: YAML is parsed within a budget (`core/yaml.py`), but what services repeat of
each other multiplies what is in it.
"""

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.yaml import decode
from fairlead.runner.engines.contract import EngineError, Reason, invalid_configuration, policy_violation
from fairlead.runner.engines.devcontainer.compose.interpolation import MAX_CHARACTERS, Variables, parse_variables
from fairlead.runner.engines.devcontainer.compose.model import Service, merge_services, normalize_service
from fairlead.runner.engines.devcontainer.isolation.holder import Holder

MAX_FILES = 16
MAX_BYTES = 256 << 10
MAX_SERVICES = 32
MAX_EXTENDED = 8
"""How many services one may extend, each the one before."""
NOT_FOUND, OUTSIDE = 3, 4
READ = f"""
path=$(realpath -e -- "$2") && [ -f "$path" ] || exit {NOT_FOUND}
case $path in "$1"/*) ;; *) exit {OUTSIDE} ;; esac
exec head -c {MAX_BYTES + 1} -- "$path"
"""


@dataclass(slots=True)
class Reader:
    """Reads files of the repository, each once."""

    holder: Holder
    work_folder: str
    _known: dict[str, str | None] = field(default_factory=dict)

    async def read(self, path: str) -> str | None:
        """The text of a file; None if there is none. Raises EngineError."""
        if path not in self._known:
            if len(self._known) == MAX_FILES:
                raise invalid_configuration(f"the Compose files and what they name are more than {MAX_FILES} files")
            self._known[path] = await self._read(path)
        return self._known[path]

    async def _read(self, path: str) -> str | None:
        command = ("/bin/sh", "-c", READ, "read", self.work_folder, path)
        found = await self.holder.run(*command, max_output_bytes=2 * MAX_BYTES)
        if found.code == OUTSIDE or not path.startswith(f"{self.work_folder}/"):
            raise policy_violation(f"{path} is refused: Compose files name only files of the repository")
        if found.code == NOT_FOUND:
            return None
        if found.code != 0 or len(found.output.encode()) > MAX_BYTES:
            raise invalid_configuration(f"{path} is no file of at most {MAX_BYTES >> 10} KiB")
        return found.output


@dataclass(frozen=True, slots=True)
class Compose:
    """What Compose files say together."""

    services: Mapping[str, Service]
    missing: Sequence[str]
    """Variables without a value."""


def list_paths(named: Any, folder: str) -> Sequence[str]:
    """The paths of the files that a configuration in a folder names. Not many more than it may name, of which a
    repository could name half a million: that they are too many is found all the same."""
    files = named[: MAX_FILES + 1] if isinstance(named, list) else [named]
    return [posixpath.normpath(posixpath.join(folder, str(each))) for each in files]


async def load_compose(reader: Reader, paths: Sequence[str]) -> Compose:
    """The first file decides what relative paths start from, as in Compose. Raises EngineError.

    What is not reading happens in a thread, again from the begin with each file that it turns out to need.
    """
    if not 0 < len(paths) <= MAX_FILES:
        raise invalid_configuration(f"dockerComposeFile must name from 1 to {MAX_FILES} files")
    loader = _Loader(tuple(dict.fromkeys(paths)))
    while True:
        try:
            return await asyncio.to_thread(loader.load)
        except _FilesNeeded as needed:
            for path in needed.paths:
                loader.files[path] = await reader.read(path)


class _FilesNeeded(Exception):
    """These files were not read yet."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self.paths = paths


@dataclass(slots=True)
class _Loader:
    """Without I/O: `files` has what was read so far. Nothing is parsed or extended twice."""

    paths: Sequence[str]
    files: dict[str, str | None] = field(default_factory=dict)
    _variables: Variables | None = None
    _parsed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _extended: dict[tuple[str, str, str], Service] = field(default_factory=dict)
    _assignments: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def load(self) -> Compose:
        """Raises EngineError, and _FilesNeeded."""
        folder = posixpath.dirname(self.paths[0])
        dot_env = f"{folder}/.env"
        self._require(*self.paths, dot_env)
        if self._variables is None:
            self._variables = Variables(parse_variables(self.files[dot_env] or ""))
        merged: dict[str, Service] = {}
        for path in self.paths:
            for name, service in self._load_file(path, folder).items():
                merged[name] = merge_services(merged.get(name, {}), service)
        if len(merged) > MAX_SERVICES:
            raise invalid_configuration(f"the Compose files have more than {MAX_SERVICES} services")
        self._require(*(each["path"] for service in merged.values() for each in service.get("env_file", ())))
        services = {name: self._read_variables(name, service) for name, service in merged.items()}
        characters = sum(
            len(name) + len(text or "") for each in services.values() for name, text in each["environment"].items()
        )
        if characters > MAX_CHARACTERS:
            raise invalid_configuration(f"the variables of all services have more than {MAX_CHARACTERS >> 20} MiB")
        return Compose(services, sorted(self._variables.missing))

    def _require(self, *paths: str) -> None:
        if missing := [path for path in dict.fromkeys(paths) if path not in self.files]:
            raise _FilesNeeded(missing)

    def _load_file(self, path: str, folder: str) -> dict[str, Service]:
        """The services of a file, with those that they extend."""
        document = self._parse(path)
        if document.get("include"):
            raise invalid_configuration(
                f"{path} has `include`, which is not supported; list the files in dockerComposeFile"
            )
        raw = document.get("services")
        if not isinstance(raw, Mapping) or not 0 < len(raw) <= MAX_SERVICES:
            raise invalid_configuration(f"{path} must have from 1 to {MAX_SERVICES} services")
        return {name: self._extend(path, folder, name, 0) for name in raw}

    def _extend(self, path: str, folder: str, name: str, depth: int) -> Service:
        if depth > MAX_EXTENDED:
            raise invalid_configuration(f"the service {name} in {path} extends more than {MAX_EXTENDED} others")
        if (path, folder, name) in self._extended:
            return self._extended[path, folder, name]
        services = self._parse(path).get("services")
        if not isinstance(services, Mapping) or name not in services:
            raise invalid_configuration(f"there is no service {name} in {path}")
        service = normalize_service(name, services[name], folder)
        extended = service.pop("extends", None)
        if extended is not None:
            target = extended["file"] or path
            base = posixpath.dirname(target) if extended["file"] else folder
            service = merge_services(self._extend(target, base, extended["service"], depth + 1), service)
        self._extended[path, folder, name] = service
        return service

    def _parse(self, path: str) -> Mapping[str, Any]:
        if path not in self._parsed:
            self._require(path)
            text = self.files[path]
            if text is None:
                raise invalid_configuration(f"the repository has no {path}, which its configuration names")
            self._parsed[path] = self._decode(path, text)
        return self._parsed[path]

    def _decode(self, path: str, text: str) -> Mapping[str, Any]:
        try:
            document, _ = decode(text.encode())
        except Malformed as error:
            raise EngineError(Reason.CONFIGURATION_INVALID, f"{path} cannot be read: {error}") from None
        if not isinstance(document, dict):
            raise invalid_configuration(f"{path} is no Compose file")
        assert self._variables is not None
        replaced: Mapping[str, Any] = self._variables.replace_in(document)
        return replaced

    def _read_variables(self, name: str, service: Service) -> Service:
        """The service with what its files of variables say. Its own variables take precedence."""
        read: dict[str, str | None] = {}
        if len(service.get("env_file", ())) > MAX_FILES:
            raise invalid_configuration(f"the service {name} has more than {MAX_FILES} files in env_file")
        for each in service.get("env_file", ()):
            path = each["path"]
            if self.files[path] is None and each["is_required"]:
                raise invalid_configuration(f"the repository has no {path}, which the service {name} names in env_file")
            if path not in self._assignments:
                self._assignments[path] = parse_variables(self.files[path] or "")
            read.update(self._assignments[path])
        assert self._variables is not None
        values = self._variables.values
        own = service.get("environment", {})
        given = {variable: values.get(variable) if value is None else value for variable, value in own.items()}
        return {**service, "environment": {**read, **given}}
