"""Single objects: made out of flags, told in words, and printed in the form that was asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.cli.ui.output import NamedOutput, Output, note, print_data, print_name, print_pairs
from fairlead.core.objects import Object, dig, name_of


def filled(spec: Mapping[str, Any]) -> Object:
    """What was said; the rest is for the server to fill in."""
    return {name: value for name, value in spec.items() if value is not None}


def body_of(kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {"kind": kind, "metadata": {"name": name}, "spec": filled(spec)}


def print_object(obj: Object, output: NamedOutput, pairs: Sequence[tuple[str, str]]) -> None:
    """`pairs` are the object for people; those without a value are left out."""
    if output is NamedOutput.TABLE:
        print_pairs([pair for pair in pairs if pair[1]])
    else:
        _print_for_programs(obj, output)


def print_made(made: Object, output: NamedOutput, told: str) -> None:
    """What a command has made: to people in a sentence, to programs as it is, too."""
    if output is not NamedOutput.TABLE:
        _print_for_programs(made, output)
    note(told)


def _print_for_programs(obj: Object, output: NamedOutput) -> None:
    if output is NamedOutput.NAME:
        print_name(str(obj.get("kind") or ""), name_of(obj))
    else:
        print_data(obj, Output(output))


def text(obj: Object, path: str) -> str:
    """What stands there, for a table: a dash where nothing does."""
    return str(dig(obj, path) or "-")


def joined(obj: Object, path: str) -> str:
    return ", ".join(map(str, dig(obj, path) or ())) or "-"


def owner_of(obj: Object) -> str:
    """A user by name, a team as such."""
    team = dig(obj, "spec.owner.team")
    return f"team {team}" if team else text(obj, "spec.owner.user")


def condition_of(obj: Object, type: str) -> Object:
    listed = dig(obj, "status.conditions") or ()
    return next((each for each in listed if dig(each, "type") == type), {})
