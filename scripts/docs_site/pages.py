"""Prepares the pages: a copy of docs/ and the documents in the root folder, in which the engines find everything.

The sources are written for GitHub, and the engines use Python-Markdown, which differs: it needs four spaces below an
item of a list and a blank line before a list, and makes other anchors of headings. Links to files outside of docs/ lead
to a page with the contents of the file.
"""

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT_DOCUMENTS = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Documents in the root folder, and the names of their pages."""
FILES = "files"
"""The folder of the pages that show files."""

FENCE = re.compile(r"^( *)(```+)")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
HEADING = re.compile(r"^(#+) +(.+?) *$")
ITEM = re.compile(r"^( *)([-*]|\d+\.)( +)(?=\S)")
INLINE_CODE = re.compile(r"(`+)(?!`)(?:(?!\1).)*\1")
LANGUAGES = {".yaml": "yaml", ".json": "json", ".sh": "sh", ".py": "python", ".service": "ini", ".tpl": "yaml"}
MAX_FILE_BYTES = 200_000


@dataclass(slots=True)
class Pages:
    """Writes the pages below a folder. `root` is the checkout."""

    root: Path
    folder: Path
    shown: dict[PurePosixPath, str] = field(default_factory=dict)
    """Folders and files outside of docs/ that pages link to, and the name of the page that shows them."""

    def write(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.root / "docs", self.folder)
        for source in sorted((self.root / "docs").rglob("*.md")):
            name = source.relative_to(self.root / "docs").as_posix()
            self._write_page(source, PurePosixPath("docs"), name)
        for document, name in ROOT_DOCUMENTS.items():
            self._write_page(self.root / document, PurePosixPath(), name)
        for path, name in self.shown.items():
            page = self.folder / name
            page.parent.mkdir(exist_ok=True)
            page.write_text(show_files(self.root, path))

    def _write_page(self, source: Path, base: PurePosixPath, name: str) -> None:
        """`base` is the folder in the checkout to which the names of pages are relative."""
        lines = add_anchors(convert_lists(remove_comments(source.read_text().splitlines())))
        here = base / PurePosixPath(name).parent if base.parts else base
        text = "\n".join(self._convert_links(lines, here, name)) + "\n"
        (self.folder / name).write_text(text)

    def _convert_links(self, lines: list[str], here: PurePosixPath, name: str) -> Iterator[str]:
        depth = len(PurePosixPath(name).parts) - 1
        # The text of a link may go over several lines.
        for is_code, group in itertools.groupby(mark_code(lines), key=lambda each: each[1]):
            text = "\n".join(line for line, _ in group)
            yield (
                text
                if is_code
                else convert_outside_code(
                    text, lambda prose: LINK.sub(lambda match: self._convert_link(match, here, depth), prose)
                )
            )

    def _convert_link(self, match: re.Match[str], here: PurePosixPath, depth: int) -> str:
        target, _, anchor = match[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = normalize(here / target)
        page = self._find_page(path)
        if not anchor and page.startswith(FILES) and (self.root / path).is_file():
            anchor = anchor_of(path.name)
        return f"{match[1]}{'../' * depth}{page}{'#' * bool(anchor)}{anchor}{match[3]}"

    def _find_page(self, path: PurePosixPath) -> str:
        """The page of a file of the checkout, relative to the folder of the pages."""
        if path.parts[:1] == ("docs",):
            return PurePosixPath(*path.parts[1:]).as_posix()
        if path.as_posix() in ROOT_DOCUMENTS:
            return ROOT_DOCUMENTS[path.as_posix()]
        parent = path if (self.root / path).is_dir() or len(path.parts) == 1 else path.parent
        return self.shown.setdefault(parent, f"{FILES}/{'-'.join(parent.parts).lower()}.md")


def show_files(root: Path, path: PurePosixPath) -> str:
    """A page with the contents of a file, or of the files in a folder."""
    files = (
        sorted(each for each in (root / path).iterdir() if each.is_file()) if (root / path).is_dir() else [root / path]
    )
    parts = [f"# {path}\n"]
    for file in files:
        text = file.read_text() if file.stat().st_size <= MAX_FILE_BYTES else "(too long for this page)\n"
        fence = "````" if "```" in text else "```"
        heading = f"## `{file.name}` {{#{anchor_of(file.name)}}}\n"
        parts.append(f"{heading}\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n{fence}\n")
    return "\n".join(parts)


def normalize(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading: lower case, without punctuation, hyphens for spaces."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def mark_code(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Each line, with whether it belongs to a fenced code block."""
    fence = ""
    for line in lines:
        match = FENCE.match(line)
        if not fence and match:
            fence = match[2]
            yield line, True
        elif fence:
            yield line, True
            if match and match[2].startswith(fence) and line.strip() == match[2]:
                fence = ""
        else:
            yield line, False


def convert_outside_code(text: str, convert: Callable[[str], str]) -> str:
    """Converts a text without touching its inline code, except where the code is the text of a link."""
    held: list[str] = []

    def hold(match: re.Match[str]) -> str:
        held.append(match[0])
        return f"\0{len(held) - 1}\0"

    converted = convert(INLINE_CODE.sub(hold, text))
    return re.sub(r"\0(\d+)\0", lambda match: held[int(match[1])], converted)


def remove_comments(lines: list[str]) -> list[str]:
    """Without comments, which are for the tests of commands and for the programs that write parts of a page."""
    result: list[str] = []
    is_comment = False
    for line, is_code in mark_code(lines):
        if is_code and not is_comment:
            result.append(line)
            continue
        is_comment = is_comment or line.lstrip().startswith("<!--")
        if not is_comment:
            result.append(line)
        elif "-->" in line:
            is_comment = False
    return result


def add_anchors(lines: list[str]) -> list[str]:
    used: set[str] = set()
    result = []
    for line, is_code in mark_code(lines):
        match = None if is_code else HEADING.match(line)
        if match:
            anchor = unique = anchor_of(match[2])
            number = 0
            while unique in used:
                number += 1
                unique = f"{anchor}-{number}"
            used.add(unique)
            line = f"{match[1]} {match[2]} {{#{unique}}}"
        result.append(line)
    return result


def convert_lists(lines: list[str]) -> list[str]:
    """Indents what belongs to a list item by four spaces for each level, and puts a blank line before a list."""
    result: list[str] = []
    levels: list[int] = []  # the column of the text of each open item
    for line, is_code in mark_code(lines):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text:
            result.append("")
            continue
        item = None if is_code else ITEM.match(line)
        while levels and indent < levels[-1] and not (is_code and FENCE.match(line) is None):
            levels.pop()
        if not levels and not item:
            result.append(line)
            continue
        if levels and 0 < indent - levels[-1] < 4 and (not is_code or FENCE.match(line)):
            levels[-1] = indent  # the text of an item may be indented further than its first line
        inner = indent - (levels[-1] if levels else 0)
        if item:
            if not levels and result and result[-1].strip() and not ITEM.match(result[-1]) and not was_item(result):
                result.append("")
            result.append(" " * (4 * len(levels)) + text)
            levels.append(indent + len(item[2]) + len(item[3]))
        else:
            result.append(" " * (4 * len(levels) + max(inner, 0)) + text)
    return result


def was_item(lines: list[str]) -> bool:
    """Whether the last line belongs to a list item."""
    return lines[-1].startswith("    ")
