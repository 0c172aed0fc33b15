"""Reads Compose files of a repository in the holder, and what they name: further files, and files of variables.

A file counts only if it really is below the work folder: a link leads nowhere else. Sizes and numbers are bounded,
YAML is parsed in a thread within a budget (`core/yaml.py`).
"""

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.yaml import decode
from fairlead.runner.engines.contract import EngineError, Reason, invalid_configuration, policy_violation
from fairlead.runner.engines.devcontainer.compose.interpolation import Variables, parse_variables
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

    async def expect(self, path: str) -> str:
        text = await self.read(path)
        if text is None:
            raise invalid_configuration(f"the repository has no {path}, which its configuration names")
        return text


@dataclass(frozen=True, slots=True)
class Compose:
    """What Compose files say together."""

    services: Mapping[str, Service]
    missing: Sequence[str]
    """Variables without a value."""


async def load_compose(reader: Reader, paths: Sequence[str]) -> Compose:
    """The first file decides what relative paths start from, as in Compose. Raises EngineError."""
    if not paths:
        raise invalid_configuration("dockerComposeFile names no file")
    folder = posixpath.dirname(paths[0])
    variables = Variables(parse_variables(await reader.read(f"{folder}/.env") or ""))
    loader = _Loader(reader, variables)
    merged: dict[str, Service] = {}
    for path in paths:
        for name, service in (await loader.load(path, folder)).items():
            merged[name] = merge_services(merged.get(name, {}), service)
    for name, service in merged.items():
        merged[name] = await loader.read_variables(name, service)
    return Compose(merged, sorted(variables.missing))


@dataclass(slots=True)
class _Loader:
    reader: Reader
    variables: Variables
    _parsed: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    async def load(self, path: str, folder: str) -> dict[str, Service]:
        """The services of a file, with those that they extend."""
        document = await self._parse(path)
        if document.get("include"):
            raise invalid_configuration(
                f"{path} has `include`, which is not supported; list the files in dockerComposeFile"
            )
        raw = document.get("services")
        if not isinstance(raw, Mapping) or not 0 < len(raw) <= MAX_SERVICES:
            raise invalid_configuration(f"{path} must have from 1 to {MAX_SERVICES} services")
        return {name: await self._extend(path, folder, name, 0) for name in raw}

    async def _extend(self, path: str, folder: str, name: str, depth: int) -> Service:
        if depth > MAX_EXTENDED:
            raise invalid_configuration(f"the service {name} in {path} extends more than {MAX_EXTENDED} others")
        services = (await self._parse(path)).get("services")
        if not isinstance(services, Mapping) or name not in services:
            raise invalid_configuration(f"there is no service {name} in {path}")
        service = normalize_service(name, services[name], folder)
        extended = service.pop("extends", None)
        if extended is None:
            return service
        target = extended["file"] or path
        base = posixpath.dirname(target) if extended["file"] else folder
        return merge_services(await self._extend(target, base, extended["service"], depth + 1), service)

    async def _parse(self, path: str) -> Mapping[str, Any]:
        if path not in self._parsed:
            text = await self.reader.expect(path)
            self._parsed[path] = await asyncio.to_thread(self._decode, path, text)
        return self._parsed[path]

    def _decode(self, path: str, text: str) -> Mapping[str, Any]:
        try:
            document, _ = decode(text.encode())
        except Malformed as error:
            raise EngineError(Reason.CONFIGURATION_INVALID, f"{path} cannot be read: {error}") from None
        if not isinstance(document, dict):
            raise invalid_configuration(f"{path} is no Compose file")
        replaced: Mapping[str, Any] = self.variables.replace_in(document)
        return replaced

    async def read_variables(self, name: str, service: Service) -> Service:
        """The service with what its files of variables say. Its own variables take precedence."""
        read: dict[str, str | None] = {}
        for each in service.get("env_file", ()):
            text = await self.reader.read(each["path"])
            if text is None and each["is_required"]:
                raise invalid_configuration(
                    f"the repository has no {each['path']}, which the service {name} names in env_file"
                )
            read.update(parse_variables(text or ""))
        own = service.get("environment", {})
        given = {
            variable: self.variables.values.get(variable) if value is None else value for variable, value in own.items()
        }
        return {**service, "environment": {**read, **given}}
