"""The page of the commands: what `--help` prints, for all commands."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from fairlead.cli import COMMANDS, HELP_FLAGS, load_command
from scripts.reference.text import code, escape, table

INTRODUCTION = """# Commands

All commands of `fairlead` with their arguments and flags, as `fairlead COMMAND --help` prints them.
[The command line](../cli.md) explains them with examples.

"""


def build_commands_page() -> str:
    sections = [build_command(path, command) for path, command in iterate_commands()]
    index = table(("command", "purpose"), ((f"[`fairlead {e.name}`](#fairlead-{e.name})", e.summary) for e in COMMANDS))
    return INTRODUCTION + index + "\n" + "\n".join(sections)


def iterate_commands() -> Iterator[tuple[str, Any]]:
    for entry in COMMANDS:
        yield from iterate_below(entry.name, load_command(entry.name))


def iterate_below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from iterate_below(f"{path} {name}", each)


def build_command(path: str, command: Any) -> str:
    level = "##" if " " not in path else "###"
    context = typer.Context(command, info_name=f"fairlead {path}", help_option_names=HELP_FLAGS)
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"{level} fairlead {path}\n", f"{describe_help(command.help or '')}\n"]
    if not getattr(command, "commands", None):
        parts.append(f"Usage: `fairlead {path} {usage}`\n")
    rows = [
        (code(record[0].strip()), escape(record[1]))
        for each in command.get_params(context)
        if not getattr(each, "hidden", False) and each.name != "help"
        for record in [describe_parameter(each, context)]
        if record
    ]
    if rows:
        parts.append(table(("argument or flag", "meaning"), rows))
    if command.epilog:
        examples = command.epilog.split("Examples:\n", 1)[1]
        lines = "\n".join(line.strip() for line in examples.splitlines())
        parts.append(f"Examples:\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


def describe_parameter(parameter: Any, context: typer.Context) -> tuple[str, str] | None:
    if record := parameter.get_help_record(context):
        return record[0], record[1]
    if parameter.param_type_name == "argument":
        return parameter.make_metavar(context), getattr(parameter, "help", None) or ""
    return None


def describe_help(text: str) -> str:
    """The help as paragraphs. Bold text in it are commands."""
    text = re.sub(r"\[bold\](.*?)\[/bold\]", r"`\1`", text.replace("\b", ""), flags=re.DOTALL)
    return "\n\n".join(escape(part) for part in re.split(r"\n\s*\n", text.strip()) if part.strip())
