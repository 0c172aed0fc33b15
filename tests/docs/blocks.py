"""The command blocks of the documents, and the comments that say how they are run.

A command block is a fenced block in `sh`, `bash`, `shell` or `console`, or one without a language that has commands. It
is run, unless a comment directly before it says otherwise:

    <!-- not run: REASON -->                   none of its commands
    <!-- not run `COMMAND`: REASON -->         not those that begin with COMMAND
    <!-- run by tests/FILE.py -->              a test runs it that names the document
    <!-- exit code 1 -->                       the last command ends with this code
    <!-- exit code 1 of `COMMAND` -->          those that begin with COMMAND do
    <!-- example output -->                    it is run, but what it prints differs from what the document shows
    <!-- run in another terminal until TEXT -->   in the background; the next block waits until it has printed TEXT

A comment that begins with `run first:` anywhere contains commands for what the reader has and the test does not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = frozenset({"sh", "bash", "shell", "console"})
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>```+) *(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)(?P=ticks) *$", re.M | re.S
)
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.S)
COMMAND_LINE = re.compile(r"^ *(?:\$ |fairlead |kubectl |make |helm |curl |podman |pip )", re.M)
HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    output: tuple[str, ...] = ()
    """The lines that the document shows below it."""


@dataclass(slots=True)
class Block:
    document: str
    line: int
    language: str
    body: str
    not_run: str = ""
    run_by: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    exit_code: int = 0
    exit_codes: dict[str, int] = field(default_factory=dict)
    is_example_output: bool = False
    background_until: str = ""
    is_setup: bool = False
    unknown_comment: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    def commands(self) -> list[Command]:
        """The commands to run. A block that is a script is one command."""
        if self.language == "console" or (self.language not in LANGUAGES and "$ " in self.body):
            commands = list(split_console(self.body))
        else:
            commands = [Command(self.body)]
        return [each for each in commands if not each.text.startswith(tuple(self.left_out))]

    def exit_code_of(self, command: Command) -> int:
        for prefix, code in self.exit_codes.items():
            if command.text.startswith(prefix):
                return code
        return self.exit_code if command == self.commands()[-1] else 0


def split_console(body: str) -> Iterator[Command]:
    """The commands after `$ `, with the lines that they continue on and their output. `# ` is the prompt of root."""
    lines = body.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if not line.startswith(("$ ", "# ")):
            continue
        text = [line[2:]]
        while text[-1].endswith("\\") and number < len(lines):
            text.append(lines[number])
            number += 1
        if heredoc := HEREDOC.search("\n".join(text)):
            while text[-1] != heredoc[1]:
                text.append(lines[number])
                number += 1
        first = number
        while number < len(lines) and not lines[number].startswith(("$ ", "# ")):
            number += 1
        yield Command("\n".join(text), tuple(each for each in lines[first:number] if each.strip()))


def list_documents() -> list[str]:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in documents]


def read_blocks(document: str, text: str | None = None) -> list[Block]:
    """The command blocks of a document, and those in comments that begin with `run first:`."""
    text = (ROOT / document).read_text() if text is None else text
    blocks = []
    covered: list[tuple[int, int]] = []
    for match in FENCE.finditer(text):
        covered.append(match.span())
        body = re.sub(rf"^ {{0,{len(match['indent'])}}}", "", match["body"], flags=re.M)
        language = match["language"]
        if language in LANGUAGES or (not language and COMMAND_LINE.search(body)):
            block = Block(document, text.count("\n", 0, match.start()) + 1, language, body)
            for comment in comments_before(text, match.start()):
                apply_comment(block, comment)
            blocks.append(block)
    for match in COMMENT.finditer(text):
        inside = any(start <= match.start() < end for start, end in covered)
        if match[1].startswith("run first:") and not inside:
            line = text.count("\n", 0, match.start()) + 1
            setup = match[1].removeprefix("run first:").strip("\n")
            blocks.append(Block(document, line, "sh", setup + "\n", is_setup=True))
    return sorted(blocks, key=lambda block: block.line)


def comments_before(text: str, end: int) -> Iterator[str]:
    """The comments that directly precede a place, last one first."""
    before = text[:end].rstrip()
    while before.endswith("-->"):
        start = before.rindex("<!--")
        match = COMMENT.fullmatch(before[start:])
        if match:
            yield match[1]
        before = before[:start].rstrip()


def apply_comment(block: Block, comment: str) -> None:
    comment = " ".join(comment.split())
    if match := re.fullmatch(r"not run: (.+)", comment):
        block.not_run = match[1]
    elif match := re.fullmatch(r"not run `([^`]+)`: (.+)", comment):
        block.left_out[match[1]] = match[2]
    elif match := re.fullmatch(r"run by (tests/\S+\.py)", comment):
        block.run_by = match[1]
    elif match := re.fullmatch(r"exit code (\d+)", comment):
        block.exit_code = int(match[1])
    elif match := re.fullmatch(r"exit code (\d+) of `([^`]+)`", comment):
        block.exit_codes[match[2]] = int(match[1])
    elif comment == "example output":
        block.is_example_output = True
    elif match := re.fullmatch(r"run in another terminal until (.+)", comment):
        block.background_until = match[1]
    elif re.match(r"(not )?run\b(?! first:)|exit code|example", comment):
        block.unknown_comment = comment
