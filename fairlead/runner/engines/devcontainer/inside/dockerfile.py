"""Which images and files a Dockerfile uses, as far as that is plain. Builds that are not plain are not shared.

What versions of podman could read in different ways is not plain.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

INSTRUCTIONS = frozenset(
    (
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
        *("RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    )
)
"""Without ONBUILD: what a later stage makes of it depends on the version."""
FLAGS: Mapping[str, frozenset[str]] = {
    "FROM": frozenset(),  # an image for another platform is not the one that is in the key
    "COPY": frozenset({"--from", "--chown", "--chmod"}),
    "ADD": frozenset({"--chown", "--chmod"}),
    "RUN": frozenset({"--mount", "--network", "--security"}),
}
_ESCAPE = re.compile(r"^[ \t\r]*#[ \t\r]*escape[ \t\r]*=", re.IGNORECASE | re.MULTILINE)
_CONTINUATION = re.compile(r"\\[ \t]*\Z")
_HERE_DOCUMENT = re.compile(r"<\S*<")
_PLAIN_FLAG = re.compile(r"(--[a-z-]+)(?:=([^\"'\\]*))?")
_ARGUMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?")
_PREDEFINED = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)|.*_proxy", re.IGNORECASE)
"""Arguments with values of podman's own."""
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_PLAIN_PATH = re.compile(r"(?!.*\*\*)[\w./*?+@%=,~ -]+")
_REMOTE = re.compile(r"git@.*|github\.com/.*|.*\.git")

Variables = dict[str, str | None]
"""None: the value is not known."""


@dataclass(slots=True)
class UsedByDockerfile:
    images: list[str] = field(default_factory=list)
    """Images that stages begin with, or that files come from."""
    sources: list[str] | None = field(default_factory=list)
    """Paths and patterns of the files of the context that it copies; None if that cannot be told: then all of them."""

    def add_image(self, name: str) -> None:
        if name not in self.images:
            self.images.append(name)


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    flags: Sequence[tuple[str, str]]
    """Names and values."""
    operands: str


def read_dockerfile(text: str, arguments: Mapping[str, str]) -> UsedByDockerfile | None:
    """None if something in it is not understood. `arguments` are those of the build."""
    if _ESCAPE.search(text) or any(each.isspace() and each not in " \t\r\n" for each in text):
        return None
    used = UsedByDockerfile()
    variables: Variables = {}
    stages: list[str] = []
    for line in split_instructions(text):
        instruction = _parse_instruction(line)
        if instruction is None:
            return None
        is_understood = True
        match instruction.word:
            case "ARG" if not stages:
                is_understood = _declare(instruction.operands.split(), variables, arguments)
            case "FROM":
                is_understood = _read_from(instruction.operands.split(), variables, stages, used)
            case "COPY" | "ADD":
                is_understood = _read_copy(instruction, stages[:-1], used)
            case "RUN":
                is_understood = _read_run(instruction, used)
        if not is_understood:
            return None
    return used


def split_instructions(text: str) -> Iterator[str]:
    """One logical line per instruction, without comments."""
    pending: list[str] = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if _CONTINUATION.search(line):
            pending.append(_CONTINUATION.sub("", line))
            continue
        yield "".join([*pending, line]).strip()
        pending = []
    if rest := "".join(pending).strip():
        yield rest


def _parse_instruction(line: str) -> Instruction | None:
    word, _, rest = line.replace("\t", " ").replace("\r", " ").partition(" ")
    word = word.upper()
    rest = rest.lstrip()
    if word not in INSTRUCTIONS or _HERE_DOCUMENT.search(line):
        return None
    flags: list[tuple[str, str]] = []
    while word in FLAGS and rest.startswith("--"):
        flag, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        match = _PLAIN_FLAG.fullmatch(flag)
        if match is None or match[1] not in FLAGS[word]:
            return None
        flags.append((match[1], match[2] or ""))
    return Instruction(word, flags, rest)


def _declare(operands: Sequence[str], variables: Variables, arguments: Mapping[str, str]) -> bool:
    for operand in operands:
        match = _ARGUMENT.fullmatch(operand)
        if match is None or match[1] in variables:  # versions differ in which of two counts
            return False
        name, default = match[1], match[2]
        if name in arguments:
            variables[name] = arguments[name]
        elif default is None or _PREDEFINED.fullmatch(name):
            variables[name] = None
        else:
            variables[name] = _expand(default, variables)
    return True


def _read_from(operands: Sequence[str], variables: Variables, stages: list[str], used: UsedByDockerfile) -> bool:
    image = _expand(operands[0], variables) if operands else None
    match operands[1:]:
        case []:
            name = ""
        case [keyword, name] if keyword.upper() == "AS" and not name.isdigit() and "$" not in name:
            pass
        case _:
            return False
    if not image or image.isdigit() or (name and name in stages):
        return False
    if image != "scratch" and image not in stages:
        used.add_image(image)
    stages.append(name)
    return True


def _read_copy(instruction: Instruction, earlier_stages: Sequence[str], used: UsedByDockerfile) -> bool:
    origins = [value for name, value in instruction.flags if name == "--from"]
    for origin in origins:
        if not origin or "$" in origin:
            return False
        if origin.isdigit():
            if not origin.isascii() or int(origin) >= len(earlier_stages):
                return False
        elif origin not in earlier_stages:
            used.add_image(origin)
    paths = _parse_paths(instruction.operands)
    if instruction.word == "ADD" and (paths is None or any(_REMOTE.fullmatch(path) for path in paths)):
        return False  # what a server sends may change
    if not origins and used.sources is not None:
        used.sources = None if paths is None else [*used.sources, *paths[:-1]]
    return True


def _read_run(instruction: Instruction, used: UsedByDockerfile) -> bool:
    mounts = [value for name, value in instruction.flags if name == "--mount"]
    if mounts:
        used.sources = None
    return not any("from" in mount or "$" in mount for mount in mounts)


def _parse_paths(text: str) -> list[str] | None:
    """The paths of COPY or ADD; None if they are anything but plain ones. A URL is not plain."""
    paths: object = text.split()
    if text.startswith("["):
        try:
            paths = json.loads(text)
        except (ValueError, RecursionError):
            return None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        return None
    return paths if all(_PLAIN_PATH.fullmatch(path) for path in paths) else None


def _expand(text: str, variables: Mapping[str, str | None]) -> str | None:
    """None if something in the text is not plain: unknown variables, defaults, escapes, or quotes but around all."""
    if text[:1] in ("'", '"') and len(text) > 1 and text[-1] == text[0]:
        if text[0] == "'" and "$" in text:
            return None
        text = text[1:-1]
    values = {match[0]: variables.get(match[1] or match[2]) for match in _VARIABLE.finditer(text)}
    if None in values.values():
        return None
    expanded = _VARIABLE.sub(lambda match: values[match[0]] or "", text)
    return None if any(character in expanded for character in "$\\\"'") else expanded
