"""Checks a Dockerfile before podman builds it.

Builds run with limits, in the network of the workspace. What a Dockerfile can ask for beyond that is refused: mounts of
the host's caches, secrets and agents, other networks and privileges, and images of other workspaces.
The Dockerfile that podman gets is the text that was checked, not the file that it came from.

Where versions of podman read a text differently, the check covers both readings: lines of here-documents, which old
versions take for instructions, are checked as instructions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from fairlead.runner.engines.devcontainer.images import FEATURE_CONTENT, own_image, resolve_image

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*[a-zA-Z]+\s*=")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::([-+])([^{}$]*))?\}|(\w+))")
_FEATURE_STAGE = re.compile(rf"^(FROM\s+){FEATURE_CONTENT}(?=\s)", re.MULTILINE)


def check_dockerfile(
    text: str, arguments: Mapping[str, str], uid: str, permissions: Sequence[str]
) -> tuple[str, list[str]]:
    """The text for podman, and what is refused."""
    refused: list[str] = []
    variables: dict[str, str] = {}
    stages: list[str] = []
    for instruction in split_instructions(text):
        word, flags, operands = _split_instruction(instruction)
        if word == "ARG" and not stages:
            for name, _, value in (part.partition("=") for part in operands):
                variables[name] = arguments.get(name, _expand(value.strip("\"'"), variables) or "")
        elif word == "FROM":
            refused += _check_stage(operands, variables, stages, uid)
        elif word in ("COPY", "ADD"):
            origins = [flag.partition("=")[2] for flag in flags if flag.startswith("--from")]
            refused += [f"--from={each} in the Dockerfile" for each in origins if not _is_origin(each, stages, uid)]
        elif word == "RUN" and "buildMounts" not in permissions:
            refused += [f"RUN {flag} in the Dockerfile" for flag in flags]
    # The CLI names the image with the files of features in the text itself.
    return _FEATURE_STAGE.sub(lambda match: match[1] + own_image(FEATURE_CONTENT, uid), text), refused


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


def _check_stage(operands: Sequence[str], variables: Mapping[str, str], stages: list[str], uid: str) -> Iterator[str]:
    image = operands[0] if operands else ""
    expanded = _expand(image.strip("\"'"), variables)
    if not expanded:
        yield f"the image {image!r} in the Dockerfile, whose variables cannot be resolved"
    elif expanded.lower() not in stages and expanded != "scratch" and resolve_image(expanded, uid) is None:
        yield f"the image {expanded!r} in the Dockerfile"
    stages.append(operands[2].lower() if len(operands) > 2 else str(len(stages)))


def _is_origin(image: str, stages: Sequence[str], uid: str) -> bool:
    if image.isdigit():
        return int(image) < len(stages)
    return image.lower() in stages or resolve_image(image, uid) is not None


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
