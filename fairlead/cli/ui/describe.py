"""Single objects: build them from flags, format their fields, print them in the requested output format."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.cli.ui.output import NamedOutput, Output, note, print_data, print_name, print_pairs
from fairlead.core.objects import Object, dig, name_of


def filled(spec: Mapping[str, Any]) -> Object:
    """The fields that are set; the server defaults the others."""
    return {name: value for name, value in spec.items() if value is not None}


def body_of(kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {"kind": kind, "metadata": {"name": name}, "spec": filled(spec)}


def print_object(obj: Object, output: NamedOutput, pairs: Sequence[tuple[str, str]]) -> None:
    """Prints an object. `pairs` are the label-value rows of the table format; rows without a value are omitted."""
    if output is NamedOutput.TABLE:
        print_pairs([pair for pair in pairs if pair[1]])
    else:
        _print_for_programs(obj, output)


def print_made(made: Object, output: NamedOutput, told: str) -> None:
    """Prints a created object in the requested format, and the message `message` on stderr."""
    if output is not NamedOutput.TABLE:
        _print_for_programs(made, output)
    note(told)


def _print_for_programs(obj: Object, output: NamedOutput) -> None:
    if output is NamedOutput.NAME:
        print_name(str(obj.get("kind") or ""), name_of(obj))
    else:
        print_data(obj, Output(output))


def text(obj: Object, path: str) -> str:
    """The field as a table cell; `-` if it is not set."""
    return str(dig(obj, path) or "-")


def joined(obj: Object, path: str) -> str:
    return ", ".join(map(str, dig(obj, path) or ())) or "-"


def owner_of(obj: Object) -> str:
    """The owner as a table cell: the user name, or `team NAME`."""
    team = dig(obj, "spec.owner.team")
    return f"team {team}" if team else text(obj, "spec.owner.user")


def condition_of(obj: Object, type: str) -> Object:
    """The condition of that type; empty if it is not set."""
    conditions = dig(obj, "status.conditions") or ()
    return next((each for each in conditions if dig(each, "type") == type), {})
