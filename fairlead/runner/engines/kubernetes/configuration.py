"""Reads a devcontainer.json, which is untrusted, into what a Pod is made of. Pure.

The dev container CLI is not used: it needs a container engine. So `${localEnv:...}` is always the default of the
expression, and there is no machine whose values could get into a workspace.
"""

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.body_errors import Malformed
from fairlead.core.json import encode, parse_jsonc
from fairlead.runner.engines.contract import (
    EngineError,
    ImageSource,
    Reason,
    WorkspaceSpec,
    invalid_configuration,
    is_variable_name,
)
from fairlead.runner.engines.kubernetes.policy import SECCOMP_UNCONFINED, SHM_SIZE, find_violations, parse_mount
from fairlead.runner.engines.kubernetes.settings import Options

PLACES = (".devcontainer/devcontainer.json", ".devcontainer.json")
MAX_BYTES = 1 << 20
CREATION_COMMANDS = ("onCreateCommand", "updateContentCommand", "postCreateCommand")
"""They run in every new Pod, before `postStartCommand`."""
COMMANDS = (*CREATION_COMMANDS, "postStartCommand")

_VARIABLE = re.compile(r"\$\{([A-Za-z]+)(?::([^{}]*))?\}")
_CONTAINER_VARIABLE = re.compile(r"\$\{containerEnv:([A-Za-z_][A-Za-z0-9_]*)(?::([^{}]*))?\}")
"""No part of them begins another one, or a text of many begins without an end would be read to its end for each."""
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SHM_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume of the workspace, or memory if it has no source."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class DevContainer:
    """Of a devcontainer.json, what has a meaning in a cluster."""

    image: str
    folder: str
    """Where sessions begin."""
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    remote_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of sessions, as expressions of a shell."""
    overrides_command: bool = True
    commands: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Scripts by lifecycle command. Those of one command run at the same time, each under its own name."""
    mounts: tuple[Mount, ...] = ()
    is_privileged: bool = False
    capabilities: tuple[str, ...] = ()
    is_seccomp_unconfined: bool = False
    shared_memory_bytes: int = 0


def list_places(spec: WorkspaceSpec) -> tuple[str, ...]:
    """Where the devcontainer.json may be, below the folder of the source."""
    if not spec.dev_container_path:
        return PLACES
    if spec.dev_container_path.startswith("/") or ".." in spec.dev_container_path.split("/"):
        raise invalid_configuration(f"the path {spec.dev_container_path!r} leaves the repository")
    return (spec.dev_container_path,)


def read_dev_container(content: bytes | None, spec: WorkspaceSpec, options: Options, work_folder: str) -> DevContainer:
    """`content` is None if the source has no devcontainer.json. Raises EngineError."""
    parsed = _default_configuration(spec, options) if content is None else parse_configuration(content)
    folder = _find_session_folder(parsed, spec, work_folder)
    variables = {
        "localWorkspaceFolder": work_folder,
        "containerWorkspaceFolder": folder,
        "localWorkspaceFolderBasename": posixpath.basename(work_folder),
        "containerWorkspaceFolderBasename": posixpath.basename(folder),
        "devcontainerId": spec.uid,
    }
    configuration = substitute(parsed, variables)
    if violations := find_violations(configuration, spec.permissions):
        raise EngineError(Reason.POLICY_VIOLATION, "; ".join(violations))
    if not configuration.get("image"):
        if not options.image:
            raise invalid_configuration("the devcontainer.json has no image, and neither has the template")
        configuration["image"] = options.image
    return _build(configuration, folder)


def parse_configuration(content: bytes) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise invalid_configuration("the devcontainer.json is larger than 1 MiB")
    try:
        value = parse_jsonc(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, Malformed) as error:
        raise invalid_configuration(f"the devcontainer.json is not valid: {error}") from None
    if b"\\u0000" in encode(value):
        raise invalid_configuration("the devcontainer.json contains a NUL character")
    return value


def default_image(spec: WorkspaceSpec, options: Options) -> str:
    """The image for what has no devcontainer.json. It may be empty."""
    return spec.source.image if isinstance(spec.source, ImageSource) else options.image


def _default_configuration(spec: WorkspaceSpec, options: Options) -> dict[str, Any]:
    image = default_image(spec, options)
    if not image or spec.dev_container_path:
        wanted = spec.dev_container_path or " or ".join(PLACES)
        raise invalid_configuration(
            f"the repository has no {wanted}, and the template names no image for such repositories"
        )
    return {"image": image}


def _find_session_folder(configuration: dict[str, Any], spec: WorkspaceSpec, work_folder: str) -> str:
    chosen = configuration.get("workspaceFolder")
    if not chosen:
        return f"{work_folder}/{getattr(spec.source, 'subfolder', '')}".rstrip("/")
    base = {"localWorkspaceFolderBasename": posixpath.basename(work_folder), "containerWorkspaceFolder": work_folder}
    folder = substitute(chosen, base)
    if not isinstance(folder, str) or not folder.startswith("/"):
        raise invalid_configuration(f"workspaceFolder {chosen!r} is not an absolute path")
    return folder


def _build(configuration: dict[str, Any], folder: str) -> DevContainer:
    remote = _read_variables(configuration.get("remoteEnv"), "remoteEnv")
    mounts = (parse_mount(each) for each in _as_list(configuration.get("mounts")))
    return DevContainer(
        image=str(configuration["image"]),
        folder=folder,
        user=_read_user(configuration.get("remoteUser") or configuration.get("containerUser") or ""),
        environment=_read_variables(configuration.get("containerEnv"), "containerEnv"),
        remote_environment={name: quote_expression(value) for name, value in remote.items()},
        overrides_command=configuration.get("overrideCommand") is not False,
        commands={name: _read_command(configuration[name], name) for name in COMMANDS if configuration.get(name)},
        mounts=tuple(Mount(source, target) for _, source, target in mounts),
        is_privileged=bool(configuration.get("privileged")),
        capabilities=tuple(_as_list(configuration.get("capAdd"))),
        is_seccomp_unconfined=SECCOMP_UNCONFINED in _as_list(configuration.get("securityOpt")),
        shared_memory_bytes=_read_shared_memory(configuration.get("runArgs")),
    )


def substitute(value: Any, variables: Mapping[str, str]) -> Any:
    """Replaces the variables of devcontainer.json in all strings, except for those of the container. Raises EngineError
    if that makes it too long: it may name a long folder very often."""
    left = MAX_BYTES

    def replace(match: re.Match[str]) -> str:
        nonlocal left
        name, argument = match[1], match[2]
        text = (argument or "").partition(":")[2] if name == "localEnv" else variables.get(name, match[0])
        left -= len(text)
        if left < 0:
            raise invalid_configuration("the devcontainer.json is larger than 1 MiB with the values of its variables")
        return text

    def substitute_all(each: Any) -> Any:
        if isinstance(each, Mapping):
            return {name: substitute_all(inner) for name, inner in each.items()}
        if isinstance(each, list):
            return [substitute_all(inner) for inner in each]
        return _VARIABLE.sub(replace, each) if isinstance(each, str) else each

    return substitute_all(value)


def quote_expression(text: str) -> str:
    """A word of a shell with the value of `text`, in which `${containerEnv:...}` are variables."""
    parts, end = [], 0
    for match in _CONTAINER_VARIABLE.finditer(text):
        default = re.sub(r'[\\"$`]', r"\\\g<0>", match[2] or "")
        parts += [shlex.quote(text[end : match.start()]), f'"${{{match[1]}:-{default}}}"']
        end = match.end()
    return "".join(each for each in (*parts, shlex.quote(text[end:])) if each != "''") or "''"


def _read_variables(value: Any, name: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(is_variable_name(each) for each in value):
        raise invalid_configuration(f"{name} must be an object with names of variables")
    return {each: str(text) for each, text in value.items() if text is not None}


def _read_command(value: Any, name: str) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(each): _read_script(script, name) for each, script in value.items()}
    return {"": _read_script(value, name)}


def _read_script(value: Any, name: str) -> str:
    if isinstance(value, str):
        return _CONTAINER_VARIABLE.sub(lambda match: f"${{{match[1]}:-{match[2] or ''}}}", value)
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return " ".join(quote_expression(each) for each in value)
    raise invalid_configuration(f"{name} must be a string, a list of strings, or an object of those")


def _read_user(value: Any) -> str:
    if not isinstance(value, str) or (value and not _USER.fullmatch(value)):
        raise invalid_configuration(f"{value!r} is not the name or number of a user")
    return value


def _read_shared_memory(value: Any) -> int:
    for argument in _as_list(value):
        if match := SHM_SIZE.fullmatch(str(argument)):
            return int(match[1]) * _SHM_UNITS[match[2].lower()]
    return 0


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value in (None, "", False) else [value]
