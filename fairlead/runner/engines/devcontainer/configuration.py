"""Finds and reads the devcontainer.json of a workspace, and applies the policy to it.

All of it happens in the holder: what links in the repository lead to there, the workspace could read anyway.
"""

import asyncio
import errno
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlead.core.body_errors import Malformed, TooManyValues
from fairlead.core.json import encode, parse_jsonc
from fairlead.core.validators import format_size
from fairlead.runner.engines.contract import EngineError, ImageSource, Reason, WorkspaceSpec
from fairlead.runner.engines.devcontainer.adaptation import adapt_configuration
from fairlead.runner.engines.devcontainer.compose.loading import Compose, Reader, list_paths, load_compose
from fairlead.runner.engines.devcontainer.compose.rendering import list_dockerfiles, list_images, render_compose
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.inside.services import PLAN
from fairlead.runner.engines.devcontainer.inside.shim import OMISSIONS, REFUSALS
from fairlead.runner.engines.devcontainer.isolation.cgroups import TOOLS_MEMORY_BYTES
from fairlead.runner.engines.devcontainer.isolation.disk import says_disk_is_full
from fairlead.runner.engines.devcontainer.isolation.holder import INSIDE_TARGET, PYTHON, Holder
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import DEFAULT_CONFIGURATION, SHIM, resolve_cli
from fairlead.runner.engines.devcontainer.policy import check_configuration
from fairlead.runner.engines.devcontainer.programs import MAX_ERROR_BYTES, parse_large_object, parse_object
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.specification import read_environment

PLACES = (".devcontainer/devcontainer.json", ".devcontainer.json")
ADAPTED_CONFIGURATION = "/run/devcontainer.json"
"""In the memory of the holder."""
COMPOSE_FILE = "dockerComposeFile"
MAX_BYTES = 1 << 20
FIND = """
cd "$1" 2>/dev/null || exit 3
shift
for place; do
    if [ -e "$place" ] || [ -L "$place" ]; then
        printf '%s\\n' "$place"
        [ -f "$place" ] || exit 4
        head -c 1048577 "$place"
        exit 0
    fi
done
exit 3
"""
NOT_FOUND = 3
WORDS_OF_BUILDS = ("features", "ocker", "build", "\\")
"""A file without them names neither features nor a Dockerfile. To merge a configuration, the CLI fetches the features,
so those are checked before. Names can have escapes."""
DEFAULT_IMAGE = "image"
"""The option of a template that names an image for repositories without a devcontainer.json."""
MAX_REFUSALS_BYTES = 1 << 16
MAX_REFUSALS = 100
MAX_ANSWER = 2 << 20
"""Of the CLI. To parse more would hold up other workspaces."""
MAX_BASE_IMAGES = 16
IMAGE = re.compile(r'"image"\s*:\s*"([^"\\$]{1,255})"')
DOCKERFILE = re.compile(r'"docker[fF]ile"\s*:\s*"([^"\\$]{1,255})"')
BASE_IMAGES = (
    *(PYTHON, "-ISc"),
    f"import sys; sys.path.insert(0, {posixpath.dirname(INSIDE_TARGET)!r}); "
    "from inside.base_images import main; main(sys.argv[1:])",
)
ERROR_LEVEL = 5
"""Of lines in the log of the CLI that say what is wrong."""
MAX_ERROR_LINES = 1000
"""Of the last that the CLI said: within 64 KiB, there may be very many lines."""
MAX_SHOWN_ERRORS = 3
MAX_SHOWN_VIOLATIONS = 50
MAX_SHOWN_CHARACTERS = 500
STACK_LINE = re.compile(r"\s+at ")
LAST_EXIT_CODE = 128
"""Higher ones are of programs that a signal has ended."""
REASONS = frozenset({Reason.POLICY_VIOLATION, Reason.PLATFORM_MISMATCH, Reason.IMAGE_PULL_FAILED, Reason.START_FAILED})
FAULTS = frozenset({Reason.IMAGE_PULL_FAILED, Reason.START_FAILED})
"""What the shim did not refuse, but could not do."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Where the CLI finds the configuration."""

    options: Sequence[str]
    text: str
    path: str = ""
    warnings: Sequence[str] = ()
    """What was changed or left out of that of the repository."""
    is_adapted: bool = False
    """It is not that of the repository as it is, so the CLI finds it in the memory of the holder."""
    services: Mapping[str, Any] | None = None
    """What Compose files say of the containers beside that of the workspace (`compose/rendering.py`)."""

    @property
    def digest(self) -> str:
        content = [list(self.options), self.text, *([self.services] if self.services is not None else [])]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def has_build(self) -> bool:
        """Whether something may have to be built."""
        return any(word in self.text for word in WORDS_OF_BUILDS)


def default_image(spec: WorkspaceSpec) -> str:
    return spec.source.image if isinstance(spec.source, ImageSource) else spec.options.get(DEFAULT_IMAGE, "")


def cli_options(grant: Grant, configuration: Configuration) -> list[str]:
    """Options that all commands of the CLI get."""
    return [
        *("--docker-path", SHIM),
        *("--docker-compose-path", "/bin/false"),  # Compose files are read here (`compose/`)
        *("--workspace-folder", grant.work_folder),
        *configuration.options,
        *("--id-label", grant.id_label),
        *("--mount-workspace-git-root", "false"),
        *("--log-format", "json"),
        *("--user-data-folder", "/ws/home"),
    ]


def describe_override(spec: WorkspaceSpec) -> str:
    """The configuration that the CLI finds outside of the repository: the environment of the workspace, else one for
    repositories that have none. Raises EngineError."""
    if spec.dev_container:
        return read_environment(spec, default_image(spec)).decode()
    return json.dumps({"image": default_image(spec)})


async def find_configuration(holder: Holder, spec: WorkspaceSpec, grant: Grant) -> Configuration:
    found = await _compose(holder, grant, await _find_configuration(holder, spec, grant))
    adapted = await asyncio.to_thread(adapt_configuration, found.text, grant)
    if adapted.text:
        found = replace(found, text=adapted.text, warnings=(*found.warnings, *adapted.warnings), is_adapted=True)
    if not found.is_adapted:
        return found
    location = ("--config", found.path) if found.path else ()
    return replace(found, options=(*location, "--override-config", ADAPTED_CONFIGURATION))


async def place_configuration(holder: Holder, configuration: Configuration) -> None:
    """Puts into the holder what the CLI and the shim read there."""
    files = {ADAPTED_CONFIGURATION: configuration.text if configuration.is_adapted else ""}
    if configuration.services is not None:
        files[PLAN] = json.dumps(configuration.services)
    for path, text in files.items():
        if text:
            await holder.expect("/bin/sh", "-c", f"cat >{path}", stdin=text.encode())


async def _compose(holder: Holder, grant: Grant, found: Configuration) -> Configuration:
    """The configuration of one container, in place of one with Compose files."""
    if COMPOSE_FILE not in found.text:
        return found
    try:
        parsed = await asyncio.to_thread(parse_jsonc, found.text)
    except (Malformed, TooManyValues):  # the CLI says what is wrong with it
        return found
    if not parsed.get(COMPOSE_FILE):
        return found
    paths = list_paths(parsed[COMPOSE_FILE], posixpath.dirname(found.path))
    compose = await load_compose(Reader(holder, grant.work_folder), paths)
    return await asyncio.to_thread(_render_compose, found, parsed, compose, grant)


def _render_compose(found: Configuration, parsed: Mapping[str, Any], compose: Compose, grant: Grant) -> Configuration:
    composed = render_compose(parsed, compose, posixpath.dirname(found.path), grant)
    text = encode(composed.configuration).decode()
    if max(len(text), len(encode(composed.plan))) > MAX_BYTES:  # services may repeat much of each other
        raise EngineError(Reason.CONFIGURATION_INVALID, "the Compose files come to more than 1 MiB with all services")
    return replace(found, text=text, warnings=composed.warnings, services=composed.plan, is_adapted=True)


async def _find_configuration(holder: Holder, spec: WorkspaceSpec, grant: Grant) -> Configuration:
    subfolder = getattr(spec.source, "subfolder", "") or ""
    if spec.dev_container:
        return _use_environment(spec, f"{grant.work_folder}/{subfolder}".rstrip("/"))
    places = (spec.dev_container_path,) if spec.dev_container_path else PLACES
    if any(".." in place.split("/") or place.startswith("/") for place in places):
        raise EngineError(Reason.CONFIGURATION_INVALID, f"the path {places[0]!r} leaves the repository")
    base = f"{grant.work_folder}/{subfolder}".rstrip("/")
    found = await holder.run("/bin/sh", "-c", FIND, "find", base, *places, max_output_bytes=2 * MAX_BYTES)
    if found.code == NOT_FOUND:
        return _use_image(spec)
    place, _, content = found.output.partition("\n")
    if found.code != 0 or len(content) > MAX_BYTES:
        raise EngineError(Reason.CONFIGURATION_INVALID, f"{place} is not a file of at most 1 MiB")
    return Configuration(("--config", f"{base}/{place}"), content, f"{base}/{place}")


def _use_environment(spec: WorkspaceSpec, base: str) -> Configuration:
    """Paths in it are relative to the place that it would have in the repository."""
    path = f"{base}/{PLACES[0]}"
    return Configuration(("--config", path, "--override-config", DEFAULT_CONFIGURATION), describe_override(spec), path)


def _use_image(spec: WorkspaceSpec) -> Configuration:
    if not default_image(spec) or spec.dev_container_path:
        wanted = spec.dev_container_path or " or ".join(PLACES)
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the repository has no {wanted}, and the template names no image for such repositories",
        )
    return Configuration(("--override-config", DEFAULT_CONFIGURATION), describe_override(spec))


async def read_configuration(
    settings: Settings, holder: Holder, grant: Grant, configuration: Configuration
) -> dict[str, Any]:
    """The configuration, and merged with what it refers to. Raises an error if the CLI cannot read it, or if something
    in it is refused."""
    command = [*resolve_cli(settings.cli), "read-configuration", *cli_options(grant, configuration)]
    if configuration.has_build:
        await _read_and_check(command, holder, grant)
    return await _read_and_check([*command, "--include-merged-configuration"], holder, grant)


async def list_base_images(holder: Holder, configuration: Configuration) -> list[str]:
    """The images that a configuration seems to name, itself or in its Dockerfile. Only a hint what to pull: the CLI has
    not read the file yet, and would pull them into the store of the workspace itself."""
    images = IMAGE.findall(configuration.text)
    folder = posixpath.dirname(configuration.path)
    named = [] if images else [posixpath.join(folder, name) for name in DOCKERFILE.findall(configuration.text)[:1]]
    if configuration.services is not None:
        images += list_images(configuration.services)
        named += list_dockerfiles(configuration.services)
    found = [await holder.run(*BASE_IMAGES, name) for name in named]
    return [*images, *(image for each in found for image in each.output.split())][:MAX_BASE_IMAGES]


async def _read_and_check(command: Sequence[str], holder: Holder, grant: Grant) -> dict[str, Any]:
    found = await holder.run(*command, max_output_bytes=2 * MAX_ANSWER)
    await raise_refusals(holder)
    if found.code != 0 and len(found.output) <= MAX_ANSWER:
        message = describe_cli_error(found.output, found.errors, found.code)
        if says_disk_is_full(found.errors):  # the pull of an image, of which the CLI says only that it failed
            message = f"{message}: {os.strerror(errno.ENOSPC)}"
        raise EngineError(Reason.CONFIGURATION_INVALID, message)
    if len(found.output) > MAX_ANSWER:
        raise EngineError(
            Reason.CONFIGURATION_INVALID,
            f"the configuration, with what features and labels of the image add, is longer than {MAX_ANSWER >> 20} MiB",
        )
    return await asyncio.to_thread(_check_answer, found.output, grant)


def _check_answer(answer: str, grant: Grant) -> dict[str, Any]:
    result = parse_large_object(answer)
    if result is None:
        raise EngineError(Reason.CONFIGURATION_INVALID, "the dev container CLI gave no answer that is understood")
    violations = check_configuration(result, grant)
    if violations:
        shown = [each[:MAX_SHOWN_CHARACTERS] for each in violations[:MAX_SHOWN_VIOLATIONS]]
        further = [f"and {len(violations) - len(shown)} more"] if len(violations) > len(shown) else []
        raise EngineError(Reason.POLICY_VIOLATION, "; ".join([*shown, *further]))
    return result


async def read_omissions(holder: Holder) -> list[str]:
    """What the shim left out of the container: features and images ask for it."""
    found = await holder.run("/usr/bin/head", "-c", str(MAX_REFUSALS_BYTES), OMISSIONS)
    return list(dict.fromkeys(found.output.splitlines()))[:MAX_REFUSALS]


async def raise_refusals(holder: Holder) -> None:
    """Raises what the shim refused, or why an image could not be pulled."""
    found = await holder.run("/usr/bin/head", "-c", str(MAX_REFUSALS_BYTES), REFUSALS)
    lines = [line for line in found.output.splitlines() if line.startswith("{")][:MAX_REFUSALS]
    refusals = [each for line in lines if (each := _parse_refusal(line)) is not None]
    if refusals:
        reason = refusals[0][0]
        messages = "; ".join(dict.fromkeys(message for _, message in refusals))
        raise EngineError(reason, messages if reason in FAULTS else f"refused: {messages}")


def _parse_refusal(line: str) -> tuple[str, str] | None:
    fields = parse_object(line) or {}
    reason = next((each for each in REASONS if each == fields.get("reason")), None)
    return (reason, str(fields.get("message", ""))) if reason is not None else None


def describe_cli_error(output: str, errors: str, code: int) -> str:
    """What the CLI says of its failure: a JSON object on stdout, or lines on stderr."""
    result = (parse_object(output) if len(output) <= MAX_ERROR_BYTES else None) or {}
    if said := result.get("description") or result.get("message"):
        return str(said)
    lines = [line for line in errors.splitlines() if line.strip()]
    if len(errors) >= MAX_ERROR_BYTES:  # only the end is there, which begins within a line
        lines = lines[1:]
    entries = [_parse_entry(line) for line in lines[-MAX_ERROR_LINES:]]
    is_killed = code < 0 or code > LAST_EXIT_CODE
    shown = [entry for entry in entries if entry.get("level") == ERROR_LEVEL][-MAX_SHOWN_ERRORS:]
    if not is_killed:  # else it did not come to say why
        shown += entries[-1:]
    messages = [_remove_stack(str(entry.get("text", ""))) for entry in shown]
    if is_killed:
        allowed = format_size(TOOLS_MEMORY_BYTES)
        messages.insert(
            0, f"the dev container CLI was killed; it may need more memory than {allowed}, which it can have"
        )
    return "; ".join(filter(None, dict.fromkeys(messages))) or f"the dev container CLI ended with code {code}"


def _parse_entry(line: str) -> dict[str, Any]:
    """A line of the log of the CLI. Others are text."""
    return (parse_object(line) if line.startswith("{") else None) or {"text": line}


def _remove_stack(text: str) -> str:
    """Without the lines on where in the CLI an error occurred."""
    lines = [line.strip() for line in text.splitlines() if not STACK_LINE.match(line)]
    return " ".join(filter(None, lines))[:MAX_SHOWN_CHARACTERS]
