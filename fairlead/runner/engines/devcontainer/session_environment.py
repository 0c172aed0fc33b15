"""Variables of sessions: `remoteEnv` of the configuration, and the secrets that the template gives to sessions.

What refers to variables of the container is resolved when the container is there. Secrets are read for each session
from their files: they are not part of the container, and not stored by the runner.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.runner.engines.contract import EngineError, Reason, is_variable_name
from fairlead.runner.engines.devcontainer.grant import CONTAINER
from fairlead.runner.engines.devcontainer.isolation.holder import Holder
from fairlead.runner.engines.devcontainer.programs import parse_large_object

SESSION_PROPERTIES = ("remoteUser", "containerUser", "remoteEnv")
"""Of the merged configuration, what sessions depend on."""
SECRET_VARIABLES = "secretVariables"
"""The option of a template that names secrets of `workspaceEnv` which sessions get as variables, too; `*` for all."""
ALL = "*"
MAX_VARIABLES = 256
MAX_VALUE = 32 << 10
MAX_TOTAL = 128 << 10
MAX_INSPECTED = 1 << 20
FORMAT = '{"Env":{{json .Config.Env}}}'
READ_SECRETS = (
    'cd /private/secrets || exit 1; for name; do if [ -f "$name" ]; then '
    f'printf \'%s \' "$name"; head -c {MAX_VALUE} "$name" | base64 -w0; echo; fi; done'
)
_REFERENCE = re.compile(r"\$\{containerEnv:([^{}:]{1,256})(?::([^{}]*))?\}")
"""No part of it begins another one, or a text of many begins without an end would be read to its end for each."""


def select_session_properties(merged: Any) -> dict[str, Any]:
    found = merged if isinstance(merged, Mapping) else {}
    return {name: found[name] for name in SESSION_PROPERTIES if name in found}


def resolve_variables(remote: Any, container: Mapping[str, str]) -> dict[str, str]:
    """`remoteEnv`, with the variables of the container that it refers to. A value of null, which removes a variable,
    has no effect: the session has those of the container."""
    resolved: dict[str, str] = {}
    total = 0
    for name, value in remote.items() if isinstance(remote, Mapping) else ():
        if not is_variable_name(name) or not isinstance(value, str) or len(resolved) == MAX_VARIABLES:
            continue
        text = _resolve_references(value[:MAX_VALUE], container)
        total += len((text or "").encode(errors="replace"))
        if text is None or total > MAX_TOTAL or "\0" in text:
            continue
        resolved[name] = text
    return resolved


def _resolve_references(value: str, container: Mapping[str, str]) -> str | None:
    """None if the result is too long. It is not built then: thousands of references may each be to a long value."""
    parts: list[str] = []
    length = 0
    end = 0
    for found in _REFERENCE.finditer(value):
        added = (value[end : found.start()], container.get(found[1], found[2] or ""))
        length += sum(map(len, added))
        if length > MAX_VALUE:
            return None
        parts += added
        end = found.end()
    parts.append(value[end:])
    return "".join(parts) if length + len(parts[-1]) <= MAX_VALUE else None


async def read_container_environment(holder: Holder, podman: str) -> dict[str, str]:
    """The variables that the container was created with; none if podman does not say them, or too many."""
    found = await holder.run(
        podman, "container", "inspect", f"--format={FORMAT}", CONTAINER, max_output_bytes=2 * MAX_INSPECTED
    )
    if found.code != 0 or len(found.output) > MAX_INSPECTED:
        return {}
    listed = (parse_large_object(found.output) or {}).get("Env")
    pairs = [str(each).partition("=") for each in listed] if isinstance(listed, list) else []
    return {name: value for name, _, value in pairs}


def choose_secret_variables(options: Mapping[str, str], secrets: Sequence[str]) -> list[str]:
    """The secrets that sessions get as variables. Raises EngineError."""
    named = [each.strip() for each in options.get(SECRET_VARIABLES, "").split(",") if each.strip()]
    if named == [ALL]:
        return sorted(name for name in secrets if is_variable_name(name))[:MAX_VARIABLES]
    for name in named:
        if not is_variable_name(name) or name not in secrets:
            raise EngineError(
                Reason.CONFIGURATION_INVALID,
                f"the option {SECRET_VARIABLES} of the template's provider names {name[:100]!r}, which is no variable "
                f"of workspaceEnv with a value from a secret; name such ones, or {ALL} for all",
            )
    return named[:MAX_VARIABLES]


async def read_secrets(holder: Holder, names: Sequence[str]) -> dict[str, str]:
    """Their values, from the files of the workspace."""
    if not names:
        return {}
    found = await holder.run("/bin/sh", "-c", READ_SECRETS, "read", *names, max_output_bytes=4 * MAX_TOTAL)
    values: dict[str, str] = {}
    for line in found.output.splitlines()[:MAX_VARIABLES]:
        name, _, encoded = line.partition(" ")
        try:
            value = base64.b64decode(encoded, validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):  # the workspace is root of its holder, and may replace what is there
            continue
        if name in names and "\0" not in value:
            values[name] = value
    return values
