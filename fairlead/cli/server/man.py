"""`fairlead man`: writes a manual page for each command, in the format of man(7), from its help."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead import __version__

ENVIRONMENT = (
    ("FAIRLEAD_KEY", "The access key for `fairlead login`."),
    ("FAIRLEAD_CONTEXT", "The name of the login to use, instead of the current one."),
)
STATUSES = (
    ("0", "Success; or yes."),
    ("1", "The server has rejected the request or cannot be reached, or a wait has failed; or no."),
    ("2", "The command line is wrong, a file is missing, or there is no terminal for a prompt."),
    ("130", "Interrupted by Ctrl-C while waiting."),
)


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder to write the pages to; a folder `man1` of man.", metavar="DIR")
    ],
) -> None:
    """Write a manual page for each command into a folder.

    A package that is installed with pip, pipx or uv has them already, in its folder share/man/man1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in build_pages():
        (folder / name).write_text(text, encoding="utf-8")


def build_pages() -> Iterator[tuple[str, str]]:
    """The names of the files and their contents."""
    from fairlead.cli import COMMANDS, load_command

    summaries = {entry.name: entry.summary for entry in COMMANDS}
    yield "fairlead.1", "\n".join(_overview(summaries)) + "\n"
    for name, summary in summaries.items():
        yield f"fairlead-{name}.1", "\n".join(_command_page(name, summary, load_command(name))) + "\n"


def _overview(summaries: dict[str, str]) -> Iterator[str]:
    from fairlead.cli import root

    yield from _header("fairlead", "manage fleets of Kubernetes clusters")
    yield from (".SH SYNOPSIS", r".B fairlead", r".I COMMAND", r"[\fIOPTION\fR]...", ".SH DESCRIPTION")
    yield from _paragraphs(root.__doc__ or "")
    yield ".SH COMMANDS"
    for name, summary in summaries.items():
        yield from (".TP", rf".BR fairlead\-{escape(name, is_literal=True)} (1)", escape(summary))
    yield ".SH EXIT STATUS"
    yield from _definitions(STATUSES)
    yield ".SH ENVIRONMENT"
    yield from _definitions(ENVIRONMENT)
    yield ".SH FILES"
    yield from _definitions((("~/.config/fairlead/config.yaml", "The stored logins."),))


def _command_page(name: str, summary: str, command: Any) -> Iterator[str]:
    yield from _header(f"fairlead-{name}", summary[:1].lower() + summary[1:].rstrip("."))
    subcommands = {key: each for key, each in getattr(command, "commands", {}).items() if not each.hidden}
    yield ".SH SYNOPSIS"
    for path, each in [(f"{name} {key}", each) for key, each in subcommands.items()] or [(name, command)]:
        yield from (*_synopsis(path, each), ".br")
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.help or summary)
    if subcommands:
        yield ".SH COMMANDS"
    else:
        yield from _options(name, command, ".SH")
    for key, each in subcommands.items():
        yield rf'.SS "fairlead {escape(name, is_literal=True)} {escape(key, is_literal=True)}"'
        yield from _paragraphs(each.help or "")
        yield from _options(f"{name} {key}", each, "")
        yield from _examples(f"{name} {key}")
    if not subcommands:
        yield from _examples(name, ".SH EXAMPLES")
    yield from (".SH EXIT STATUS", "See", ".BR fairlead (1).", ".SH SEE ALSO", ".BR fairlead (1)")


def _header(name: str, summary: str) -> Iterator[str]:
    # Without a date: the same version has the same bytes whenever it is built.
    yield rf'.TH {escape(name.upper(), is_literal=True)} 1 "" "fairlead {__version__}" "Fairlead"'
    yield from (".SH NAME", rf"{escape(name, is_literal=True)} \- {escape(summary)}")


def _synopsis(path: str, command: Any) -> Iterator[str]:
    pieces = command.collect_usage_pieces(_new_context(path, command))
    yield rf".B {escape(f'fairlead {path}', is_literal=True)}"
    yield from (
        escape(re.sub(r"[{}]", "", piece.replace("[OPTIONS]", "[OPTION]...")), is_literal=True) for piece in pieces
    )


def _new_context(path: str, command: Any) -> typer.Context:
    from fairlead.cli import HELP_FLAGS

    return typer.Context(command, info_name=f"fairlead {path}", help_option_names=HELP_FLAGS)


def _options(path: str, command: Any, heading: str) -> Iterator[str]:
    context = _new_context(path, command)
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    if records and heading:
        yield f"{heading} OPTIONS"
    yield from _definitions(records)


def _definitions(entries: Any) -> Iterator[str]:
    for term, text in entries:
        yield from (".TP", rf"\fB{escape(term, is_literal=True)}\fR", escape(" ".join(text.split())) or r"\&")


def _examples(path: str, heading: str = "") -> Iterator[str]:
    from fairlead.cli.examples import EXAMPLES

    lines = EXAMPLES.get(path, ())
    if not lines:
        return
    yield from ((heading,) if heading else (".PP", "Examples:"))
    yield from (".PP", ".nf", ".RS 4", *(escape(line, is_literal=True) for line in lines), ".RE", ".fi")


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text. Those that begin with a backspace keep their lines."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines() if line.strip() != "\b"]
        keeps_lines = paragraph.lstrip(" \n").startswith("\b")
        yield ".PP"
        if keeps_lines:
            yield from (".nf", *(escape(line) for line in lines), ".fi")
        else:
            yield escape(" ".join(lines))


def escape(text: str, *, is_literal: bool = False) -> str:
    """Text as roff. In literal text, hyphens are minus signs, so that it can be copied; else, code is bold."""
    text = text.replace("\b", "").replace("\\", r"\(rs")
    text = text.replace("-", r"\-") if is_literal else re.sub(r"`([^`]+)`", _bold, text)
    text = text.replace("'", r"\(aq").replace("~", r"\(ti").replace("^", r"\(ha").replace("`", r"\(ga")
    return rf"\&{text}" if text.startswith(".") else text


def _bold(match: "re.Match[str]") -> str:
    return r"\fB" + match[1].replace("-", r"\-") + r"\fR"
