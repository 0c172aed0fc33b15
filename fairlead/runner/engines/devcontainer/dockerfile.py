"""Checks a Dockerfile before podman builds it.

Builds run with limits, in the network of the workspace. What a Dockerfile can ask for beyond that is refused: mounts of
the host's caches, secrets and agents, other networks and privileges, images of other workspaces, and files that podman
would fetch itself, in the network of the machine.
The Dockerfile that podman gets is the text that was checked, not the file that it came from.

Where versions of podman read a text differently, the check covers both readings: lines of here-documents, which old
versions take for instructions, are checked as instructions.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.runner.engines.devcontainer.images import FEATURE_CONTENT, own_image, resolve_image

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*[a-zA-Z]+\s*=")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::([-+])([^{}$]*))?\}|(\w+))")
_PLAIN_PATH = re.compile(r"[\w./*?+@%=,~ -]+")
_FEATURE_STAGE = re.compile(rf"^(FROM\s+){FEATURE_CONTENT}(?=\s)", re.MULTILINE)


@dataclass(slots=True)
class CheckedDockerfile:
    """What a Dockerfile uses. `text` is for podman."""

    text: str
    refused: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    """Names in the image store of the images that stages begin with, or that files come from."""
    sources: list[str] | None = field(default_factory=list)
    """Paths and patterns of the files of the context that it copies; None if that cannot be told: then all of them."""

    def add_image(self, name: str, uid: str) -> None:
        resolved = resolve_image(name, uid)
        if resolved is None:
            self.refused.append(f"the image {name!r} in the Dockerfile")
        elif resolved not in self.images:
            self.images.append(resolved)


def check_dockerfile(
    text: str, arguments: Mapping[str, str], uid: str, permissions: Sequence[str]
) -> CheckedDockerfile:
    # The CLI names the image with the files of features in the text itself.
    checked = CheckedDockerfile(_FEATURE_STAGE.sub(lambda match: match[1] + own_image(FEATURE_CONTENT, uid), text))
    variables: dict[str, str] = {}
    stages: list[str] = []
    for instruction in split_instructions(text):
        word, flags, operands = _split_instruction(instruction)
        if word == "ARG" and not stages:
            for name, _, value in (part.partition("=") for part in operands):
                variables[name] = arguments.get(name, _expand(value.strip("\"'"), variables) or "")
        elif word == "FROM":
            _check_stage(checked, operands, variables, stages, uid)
        elif word in ("COPY", "ADD"):
            _check_copy(checked, word, flags, operands, stages, uid)
        elif word == "RUN" and flags:
            checked.sources = None
            if "buildMounts" not in permissions:
                checked.refused += [f"RUN {flag} in the Dockerfile" for flag in flags]
    return checked


def check_deferred(instructions: Sequence[str], uid: str, permissions: Sequence[str]) -> list[str]:
    """What is refused of the instructions that an image defers to builds upon it: ONBUILD."""
    return check_dockerfile("\n".join(instructions), {}, uid, permissions).refused


def split_instructions(text: str) -> Iterator[str]:
    """One logical line per instruction, without comments."""
    escape = _find_escape(text)
    pending = ""
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.endswith(escape):
            pending += stripped[:-1] + " "
            continue
        yield pending + stripped
        pending = ""
    if pending.strip():
        yield pending


def _find_escape(text: str) -> str:
    """Directives are the first lines only."""
    for line in text.split("\n"):
        if match := _ESCAPE.match(line.strip()):
            return match[1]
        if not _DIRECTIVE.match(line.strip()):
            break
    return "\\"


def _split_instruction(instruction: str) -> tuple[str, list[str], list[str]]:
    """The instruction in capitals, its flags, and its other words. That of ONBUILD is the one that it defers."""
    word, *rest = instruction.split()
    while word.upper() == "ONBUILD" and rest:
        word, *rest = rest
    count = next((index for index, each in enumerate(rest) if not each.startswith("--")), len(rest))
    return word.upper(), rest[:count], rest[count:]


def _check_stage(
    checked: CheckedDockerfile, operands: Sequence[str], variables: Mapping[str, str], stages: list[str], uid: str
) -> None:
    image = operands[0] if operands else ""
    expanded = _expand(image.strip("\"'"), variables)
    if not expanded:
        checked.refused.append(f"the image {image!r} in the Dockerfile, whose variables cannot be resolved")
    elif expanded.lower() not in stages and expanded != "scratch":
        checked.add_image(expanded, uid)
    stages.append(operands[2].lower() if len(operands) > 2 else str(len(stages)))


def _check_copy(
    checked: CheckedDockerfile,
    word: str,
    flags: Sequence[str],
    operands: Sequence[str],
    stages: Sequence[str],
    uid: str,
) -> None:
    origins = [flag.partition("=")[2] for flag in flags if flag.startswith("--from")]
    for origin in origins:
        is_stage = int(origin) < len(stages) if origin.isdigit() else origin.lower() in stages
        if not is_stage:
            checked.add_image(origin, uid)
    paths = _parse_paths(operands)
    if word == "ADD" and paths is None:
        # Podman itself fetches what is not a file of the repository, in the network of the machine.
        checked.refused.append("ADD of anything but plain paths in the Dockerfile; use COPY, or RUN with a program")
    if not origins and checked.sources is not None:
        checked.sources = None if paths is None else [*checked.sources, *paths[:-1]]


def _parse_paths(operands: Sequence[str]) -> list[str] | None:
    """The paths of COPY or ADD; None if they are anything but plain ones."""
    text = " ".join(operands)
    paths: object = list(operands)
    if text.startswith("["):
        try:
            paths = json.loads(text)
        except ValueError:
            return None
    if isinstance(paths, list) and all(isinstance(path, str) and _PLAIN_PATH.fullmatch(path) for path in paths):
        return paths
    return None


def _expand(text: str, variables: Mapping[str, str]) -> str | None:
    """None if something in the text stays unresolved."""

    def replace(match: re.Match[str]) -> str:
        value = variables.get(match[1] or match[4], "")
        if match[2] == "-":
            return value or match[3]
        if match[2] == "+":
            return match[3] if value else ""
        return value

    expanded = _VARIABLE.sub(replace, text)
    return None if "$" in expanded or "\\" in expanded else expanded
