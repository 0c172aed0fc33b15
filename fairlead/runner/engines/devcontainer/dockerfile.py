"""Checks a Dockerfile before podman builds it.

Builds run with limits, in the network of the workspace. What a Dockerfile can ask for beyond that is refused: mounts of
the host's caches, secrets and agents, other networks and privileges, images of other workspaces, and files that podman
would fetch itself, in the network of the machine.
The Dockerfile that podman gets is the text that was checked, not the file that it came from.

The check must read the text as podman does: lines are joined without anything in between, and nothing but a backslash,
with blanks after it at most, continues a line. What versions of podman read differently, and what the check does not
understand, is refused: other escape characters, here-documents, unknown instructions and flags, quotes in flags.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.runner.engines.devcontainer.images import FEATURE_CONTENT, own_image, resolve_image

INSTRUCTIONS = frozenset(
    (
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
        *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    )
)
FLAGS: Mapping[str, Sequence[str]] = {
    "ADD": ("--checksum", "--chmod", "--chown", "--exclude", "--keep-git-dir", "--link"),
    "COPY": ("--chmod", "--chown", "--exclude", "--from", "--link", "--parents"),
    "FROM": ("--platform",),
}
CLI_ARGUMENTS = "_DEV_CONTAINERS_"
"""How the arguments begin with which the CLI names images. They reach podman with the names of the image store."""

_ESCAPE = re.compile(r"^\s*#\s*escape\s*=", re.IGNORECASE | re.MULTILINE)
_CONTINUATION = re.compile(r"\\[ \t]*\Z")
_BLANKS = re.compile(r"[\t\r ]+")
_UNREADABLE = re.compile(r"\A\ufeff|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""A byte order mark, control characters, separators of lines, and bytes that are not UTF-8: podman takes some of them
for blanks, in some places only."""
_HEREDOC = re.compile(r"(?<!<)<<(?!<)|\$\{[^}]*<")
_EXPRESSION = re.compile(r"\$\{[^}]*\}|\$\w+")
_PLAIN_FLAG = re.compile(r"--[a-z-]+(?:=[!#-&(-\[\]-~]*)?")
_ARGUMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?")
_AUTOMATIC = re.compile(r"(?:BUILD|TARGET)(?:PLATFORM|OS|ARCH|VARIANT)|\w+_PROXY|SOURCE_DATE_EPOCH", re.IGNORECASE)
"""Variables whose values podman chooses."""
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^{}$]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
_STAGE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_PLAIN_PATH = re.compile(r"[\w./*?+@%=,~ -]+")
_REPOSITORY = re.compile(r"-|github\.com/.*|.*\.git.*")
"""Paths that versions of podman take for a repository, or the standard input."""
_FEATURE_STAGE = re.compile(rf"^(FROM[ \t]+){FEATURE_CONTENT}(?=\s)", re.MULTILINE)


@dataclass(slots=True)
class CheckedDockerfile:
    """What a Dockerfile uses. `text` is for podman."""

    text: str
    refused: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    """Names in the image store of the images that stages begin with, or that files come from."""
    sources: list[str] | None = field(default_factory=list)
    """Paths and patterns of the files of the context that it copies; None if that cannot be told: then all of them."""

    def refuse(self, what: str) -> None:
        self.refused.append(f"{what} in the Dockerfile")

    def add_image(self, name: str, uid: str) -> None:
        """Podman looks for the name as it is written. A name that stands for an image of the workspace could lead it to
        that of another one."""
        if resolve_image(name, uid) != name:
            self.refuse(f"the image {name!r}")
        elif name not in self.images:
            self.images.append(name)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, in capitals. That of ONBUILD is the one that it defers."""

    word: str
    flags: Sequence[str]
    operands: Sequence[str]
    is_deferred: bool
    line: str


@dataclass(slots=True)
class DockerfileCheck:
    checked: CheckedDockerfile
    arguments: Mapping[str, str]
    uid: str
    permissions: Sequence[str]
    variables: dict[str, str] = field(default_factory=dict)
    stages: list[str] = field(default_factory=list)
    """Names of the stages, the current one included; empty if it has none."""

    def check(self, instruction: Instruction) -> None:
        word = instruction.word
        if word not in INSTRUCTIONS or word == "ONBUILD" or (instruction.is_deferred and word == "FROM"):
            self.checked.refuse(f"the instruction {instruction.line[:80]!r}")
        elif word in ("RUN", "COPY", "ADD") and _has_heredoc(instruction.line):
            self.checked.refuse(f"<< after {word}: here-documents are not supported")
        elif word == "ARG" and not self.stages and not instruction.is_deferred:
            self._declare(instruction)
        elif word == "FROM":
            self._check_stage(instruction)
        elif word in ("COPY", "ADD"):
            self._check_copy(instruction)
        elif word == "RUN":
            self._check_run(instruction)

    def _declare(self, instruction: Instruction) -> None:
        """ARG before the first stage. One without a value keeps the value that an earlier one gave."""
        for operand in (*instruction.flags, *instruction.operands):
            match = _ARGUMENT.fullmatch(operand)
            value = _expand(match[2] or "", self.variables) if match else None
            if match is None or value is None:
                self.checked.refuse(f"ARG {operand}, which is not plain,")
            elif _AUTOMATIC.fullmatch(match[1]):
                continue
            elif match[1] in self.arguments:
                self.variables[match[1]] = self.arguments[match[1]]
            elif match[2] is not None or match[1] not in self.variables:
                self.variables[match[1]] = value

    def _check_stage(self, instruction: Instruction) -> None:
        self._check_flags(instruction)
        image, *rest = instruction.operands or ("",)
        has_name = len(rest) == 2 and rest[0].upper() == "AS"
        expanded = _expand(image, self.variables)
        if rest and not (has_name and _STAGE_NAME.fullmatch(rest[1])):
            self.checked.refuse(f"the stage {' '.join(rest)!r}")
        elif not expanded:
            self.checked.refuse(f"the image {image!r}, whose variables cannot be resolved,")
        elif expanded not in self.stages and expanded != "scratch":
            self.checked.add_image(expanded, self.uid)
        self.stages.append(rest[1] if has_name else "")

    def _check_copy(self, instruction: Instruction) -> None:
        self._check_flags(instruction)
        flags = [flag.partition("=") for flag in instruction.flags if instruction.word == "COPY"]
        origins = [value for name, _, value in flags if name == "--from"]
        for origin in origins:
            self._check_origin(origin, instruction)
        paths = _parse_paths(instruction.operands)
        if instruction.word == "ADD" and (paths is None or any(_REPOSITORY.fullmatch(path) for path in paths[:-1])):
            # Podman itself fetches what is not a file of the repository, in the network of the machine.
            self.checked.refuse("ADD of anything but plain paths (use COPY, or RUN with a program)")
        if not origins and self.checked.sources is not None:
            self.checked.sources = None if paths is None else [*self.checked.sources, *paths[:-1]]

    def _check_run(self, instruction: Instruction) -> None:
        for flag in instruction.flags:
            self.checked.sources = None
            is_plain = flag.startswith("--mount=") and _PLAIN_FLAG.fullmatch(flag) and "$" not in flag
            if not is_plain or "buildMounts" not in self.permissions:
                self.checked.refuse(f"RUN {flag}")
                continue
            for option in flag.removeprefix("--mount=").split(","):
                if option.partition("=")[0] == "from":
                    self._check_origin(option.partition("=")[2], instruction)

    def _check_flags(self, instruction: Instruction) -> None:
        """Podman removes quotes and expands variables, which could turn one flag into another."""
        known = FLAGS[instruction.word]
        for flag in instruction.flags:
            if flag.partition("=")[0] not in known or not _PLAIN_FLAG.fullmatch(flag):
                self.checked.refuse(f"{instruction.word} {flag}")

    def _check_origin(self, origin: str, instruction: Instruction) -> None:
        """A stage is an earlier one, by its number or its exact name: podman takes others for images. What is deferred
        runs in another build, with other stages."""
        earlier = [] if instruction.is_deferred else self.stages[:-1]
        if origin not in (*(name for name in earlier if name), *map(str, range(len(earlier)))):
            self.checked.add_image(origin, self.uid)


def check_dockerfile(
    text: str, arguments: Mapping[str, str], uid: str, permissions: Sequence[str]
) -> CheckedDockerfile:
    # The CLI names the image with the files of features in the text itself.
    text = _FEATURE_STAGE.sub(lambda match: match[1] + own_image(FEATURE_CONTENT, uid), text)
    checked = CheckedDockerfile(text)
    resolved = {
        name: (resolve_image(value, uid) or value) if name.startswith(CLI_ARGUMENTS) else value
        for name, value in arguments.items()
    }
    if _is_readable(checked):
        check = DockerfileCheck(checked, resolved, uid, permissions)
        for line in split_instructions(text):
            instruction = _split_instruction(line)
            if not check.stages and instruction.word not in ("ARG", "FROM"):
                checked.refuse(f"{instruction.word[:80]!r} before the first FROM")
            else:
                check.check(instruction)
    return checked


def check_deferred(instructions: Sequence[str], uid: str, permissions: Sequence[str]) -> list[str]:
    """What is refused of the instructions that an image defers to builds upon it: ONBUILD."""
    refused: list[str] = []
    for text in instructions:
        checked = CheckedDockerfile(text)
        if _is_readable(checked):
            for line in split_instructions(text):
                DockerfileCheck(checked, {}, uid, permissions).check(_split_instruction(f"ONBUILD {line}"))
        refused += checked.refused
    return refused


def split_instructions(text: str) -> Iterator[str]:
    """One logical line per instruction, without comments, joined as podman does it. Comments and empty lines do not end
    an instruction that continues."""
    pending: str | None = None
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        stripped = line.lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        joined = stripped if pending is None else pending + line
        if _CONTINUATION.search(line):
            pending = _CONTINUATION.sub("", joined)
            continue
        yield joined.strip()
        pending = None
    if pending is not None:
        yield pending.strip()


def _is_readable(checked: CheckedDockerfile) -> bool:
    if match := _UNREADABLE.search(checked.text):
        checked.refuse(f"the character {match[0]!r}")
    if _ESCAPE.search(checked.text):
        checked.refuse("the directive escape")
    return not checked.refused


def _split_instruction(line: str) -> Instruction:
    word, *rest = _BLANKS.split(line)
    is_deferred = word.upper() == "ONBUILD" and bool(rest)
    if is_deferred:
        word, *rest = rest
    count = next((index for index, each in enumerate(rest) if not each.startswith("--")), len(rest))
    name = word.upper() if word.isascii() else word
    return Instruction(name, rest[:count], rest[count:], is_deferred, line)


def _has_heredoc(line: str) -> bool:
    """Some versions of podman expand variables, which have no values there, before they look for here-documents."""
    return bool(_HEREDOC.search(line) or _HEREDOC.search(_EXPRESSION.sub("", line)))


def _parse_paths(operands: Sequence[str]) -> list[str] | None:
    """The paths of COPY or ADD; None if they are anything but plain ones."""
    text = " ".join(operands)
    paths: object = list(operands)
    if text.startswith("["):
        try:
            paths = json.loads(text)
        except (ValueError, RecursionError):
            return None
    if isinstance(paths, list) and all(isinstance(path, str) and _PLAIN_PATH.fullmatch(path) for path in paths):
        return paths
    return None


def _expand(text: str, variables: Mapping[str, str]) -> str | None:
    """None if something in the text is not plain: unknown variables, escapes, or quotes but around all of it."""
    if text[:1] in ("'", '"') and len(text) > 1 and text[-1] == text[0]:
        if text[0] == "'" and "$" in text:
            return None
        text = text[1:-1]
    if any((match[1] or match[4]) not in variables for match in _VARIABLE.finditer(text)):
        return None

    def replace(match: re.Match[str]) -> str:
        value = variables[match[1] or match[4]]
        if match[2] == "-":
            return value or match[3]
        if match[2] == "+":
            return match[3] if value else ""
        return value

    expanded = _VARIABLE.sub(replace, text)
    return None if any(character in expanded for character in "$\\\"'") else expanded
