"""Services of Compose files in one form, whichever of the spellings they use. Pure.

Paths are those that the holder sees. What has no other form is left as it is, and understood or left out later.
"""

import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairlead.runner.engines.contract import invalid_configuration
from fairlead.runner.engines.devcontainer.adaptation import BIND, MACHINE_PATHS, VOLUME, parse_volume

Service = dict[str, Any]
REPLACED = frozenset({"command", "entrypoint", "test"})
"""Lists that a later file replaces. Others are joined."""
TMPFS, STARTED = "tmpfs", "service_started"
MAX_PROPERTIES, MAX_ENTRIES = 100, 1000
"""Of a service, and of each of its properties, with what it extends."""
MAX_COMMAND_CHARACTERS = 1 << 16
REMOTE_CONTEXTS = ("git@", "github.com/", "docker-image://")


def normalize_service(name: str, raw: Any, folder: str) -> Service:
    """A service with its properties in one form. `folder` is what its paths are relative to. Raises EngineError."""
    if not isinstance(raw, Mapping):
        raise invalid_configuration(f"the service {name} in the Compose files is no mapping")
    if len(raw) > MAX_PROPERTIES:
        what = f"the service {name} in the Compose files"
        raise invalid_configuration(f"{what} has more than {MAX_PROPERTIES} properties")
    where = f"services.{name}"
    return {
        key: FORMS[key](value, f"{where}.{key}", folder) if key in FORMS else value
        for key, value in raw.items()
        if value is not None
    }


def merge_services(below: Service, above: Service) -> Service:
    """What a service is when a later file, or the service that extends it, says more."""
    merged = dict(below)
    for key, value in above.items():
        earlier = merged.get(key)
        if isinstance(earlier, dict) and isinstance(value, dict):
            merged[key] = merge_services(earlier, value)
        elif isinstance(earlier, list) and isinstance(value, list) and key not in REPLACED:
            merged[key] = [*earlier, *value]
        else:
            merged[key] = value
        if isinstance(merged[key], dict | list) and len(merged[key]) > MAX_ENTRIES:
            raise invalid_configuration(f"{key} of the Compose files has more than {MAX_ENTRIES} entries")
    return merged


def resolve_path(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def read_text(value: Any, where: str) -> str:
    """A text, as YAML may write it as a number or a switch."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise invalid_configuration(f"{where} of the Compose files must be a text")


def read_words(value: Any, where: str, folder: str = "") -> list[str]:
    """A command, as a list or as in a shell."""
    if isinstance(value, list):
        return [read_text(each, where) for each in value]
    text = read_text(value, where)
    if len(text) > MAX_COMMAND_CHARACTERS:
        raise invalid_configuration(f"{where} of the Compose files has more than {MAX_COMMAND_CHARACTERS} characters")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise invalid_configuration(f"{where} of the Compose files is no command: {error}") from None


def read_list(value: Any, where: str, folder: str = "") -> list[str]:
    return [read_text(each, where) for each in (value if isinstance(value, list) else [value])]


def is_on(value: Any) -> bool:
    return value is True or str(value).lower() == "true"


def _read_assignments(value: Any, where: str, folder: str) -> dict[str, str | None]:
    """None is for a variable that has no value there: that of the machine would count, which is never asked."""
    if isinstance(value, Mapping):
        return {str(name): None if each is None else read_text(each, where) for name, each in value.items()}
    pairs = (each.partition("=") for each in read_list(value, where))
    return {name: text if has_value else None for name, has_value, text in pairs}


def _read_build(value: Any, where: str, folder: str) -> dict[str, Any]:
    build = dict(value) if isinstance(value, Mapping) else {"context": value}
    context = read_text(build.get("context") or ".", f"{where}.context")
    is_remote = "://" in context or context.startswith(REMOTE_CONTEXTS)
    build["context"] = context if is_remote else resolve_path(folder, context)
    build["args"] = _read_assignments(build.get("args") or [], f"{where}.args", folder)
    return build


def _read_dependencies(value: Any, where: str, folder: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(name): dict(each) if isinstance(each, Mapping) else {} for name, each in value.items()}
    return {each: {} for each in read_list(value, where)}


def _read_files(value: Any, where: str, folder: str) -> list[dict[str, Any]]:
    """Files of variables, each with its path."""
    found = []
    for each in value if isinstance(value, list) else [value]:
        fields = each if isinstance(each, Mapping) else {"path": each}
        path = read_text(fields.get("path") or "", where)
        found.append({"path": resolve_path(folder, path), "is_required": fields.get("required") is not False})
    return found


def _read_volumes(value: Any, where: str, folder: str) -> dict[str, dict[str, Any]]:
    """Mounts by their target."""
    listed = value if isinstance(value, list) else [value]
    return dict(_read_volume(each, where, folder) for each in listed)


def _read_volume(value: Any, where: str, folder: str) -> tuple[str, dict[str, Any]]:
    if isinstance(value, Mapping):
        kind = str(value.get("type") or VOLUME)
        source = read_text(value.get("source") or "", where)
        target = read_text(value.get("target") or "", where)
        is_read_only = is_on(value.get("read_only"))
    else:
        volume = parse_volume(read_text(value, where))
        kind, source, target, is_read_only = volume.kind, volume.source, volume.target, volume.is_read_only
    if kind == BIND and not source.startswith(MACHINE_PATHS):
        source = resolve_path(folder, source)
    return target, {"type": kind, "source": source, "is_read_only": is_read_only}


def _read_extended(value: Any, where: str, folder: str) -> dict[str, str]:
    fields = value if isinstance(value, Mapping) else {"service": value}
    path = fields.get("file")
    return {
        "service": read_text(fields.get("service") or "", where),
        "file": resolve_path(folder, read_text(path, where)) if path else "",
    }


FORMS: Mapping[str, Callable[[Any, str, str], Any]] = {
    "build": _read_build,
    "cap_add": read_list,
    "command": read_words,
    "depends_on": _read_dependencies,
    "devices": read_list,
    "entrypoint": read_words,
    "env_file": _read_files,
    "environment": _read_assignments,
    "extends": _read_extended,
    "links": read_list,
    "profiles": read_list,
    "security_opt": read_list,
    "tmpfs": read_list,
    "volumes": _read_volumes,
}


def list_dependencies(service: Service) -> Iterator[tuple[str, str]]:
    """The services that one needs, and the condition that each has to meet first."""
    for name, fields in service.get("depends_on", {}).items():
        yield name, str(fields.get("condition") or STARTED)
    for link in service.get("links", ()):
        yield link.partition(":")[0], STARTED
    mode = str(service.get("network_mode") or "")
    if mode.startswith("service:"):
        yield mode.removeprefix("service:"), STARTED
