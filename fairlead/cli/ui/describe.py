"""Single objects: build them from flags, change lists in them, format their fields, print them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fairlead.cli.ui.durations import age
from fairlead.cli.ui.output import Format, ObjectOutput, format_cell, print_name, print_note, print_pairs, print_value
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core.objects import Object, get_path, name_of


def drop_none(spec: Mapping[str, Any]) -> Object:
    """The fields that are set; the server defaults the others."""
    return {name: value for name, value in spec.items() if value is not None}


def build_object(kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {"kind": kind, "metadata": {"name": name}, "spec": drop_none(spec)}


def print_object(obj: Object, output: ObjectOutput, pairs: Sequence[tuple[str, str]]) -> None:
    """Prints an object. `pairs` are the label-value rows of the table format; rows without a value are omitted."""
    if output.is_table:
        print_pairs([pair for pair in pairs if pair[1]])
    else:
        _print_machine_readable(obj, output)


def print_created(obj: Object, output: ObjectOutput, message: str) -> None:
    """Prints a created object in the requested format, and the message `message` on stderr."""
    print_object_data(obj, output)
    print_note(message)


def print_object_data(obj: Object, output: ObjectOutput) -> None:
    """Prints an object for programs; nothing if the output is for people."""
    if not output.is_table:
        _print_machine_readable(obj, output)


def _print_machine_readable(obj: Object, output: ObjectOutput) -> None:
    if output.format is Format.NAME:
        print_name(str(obj.get("kind") or ""), name_of(obj))
    else:
        print_value(obj, output)


def cell(obj: Object, path: str) -> str:
    """The field as a table cell; `-` if it is not set."""
    return format_cell(get_path(obj, path))


def joined_cell(obj: Object, path: str) -> str:
    return ", ".join(map(str, get_path(obj, path) or ())) or "-"


def owner_cell(obj: Object) -> str:
    """The owner as a table cell: the user name, or `team NAME`."""
    team = get_path(obj, "spec.owner.team")
    return f"team {team}" if team else cell(obj, "spec.owner.user")


def age_cell(obj: Object, now: datetime) -> str:
    return age(get_path(obj, "metadata.creationTimestamp"), now)


def text_of(obj: Object, path: str) -> str:
    """The field as text; empty if it is not set."""
    return str(get_path(obj, path) or "")


def label_first(label: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
    """A row for each value, of which the first has the label."""
    return (("" if number else label, each) for number, each in enumerate(values))


def condition_rows(obj: Object, message: str = "") -> Iterator[tuple[str, str]]:
    """A row for each condition. Several often have the same message, also that of the status, or the one that a caller
    prints itself: each is printed once."""
    return label_first("conditions", _describe_conditions(obj, message))


def _describe_conditions(obj: Object, message: str) -> Iterator[str]:
    printed = {get_path(obj, "status.message"), message}
    for each in get_path(obj, "status.conditions") or ():
        yield describe_condition({**each, "message": ""} if each.get("message") in printed else each)
        printed.add(each.get("message"))


def describe_condition(condition: Object) -> str:
    """The condition in a line: `Ready is False (NoRunnerUsable): no runner is usable`."""
    reason = condition.get("reason")
    message = condition.get("message")
    state = f"{condition.get('type')} is {condition.get('status')}" + (f" ({reason})" if reason else "")
    return f"{state}: {message}" if message else state


def find_condition(obj: Object, type: str) -> Object:
    """The condition of that type; empty if it is not set."""
    conditions = get_path(obj, "status.conditions") or ()
    return next((each for each in conditions if get_path(each, "type") == type), {})


MAX_ATTEMPTS = 5


def update_list(client: Client, plural: str, name: str, field: str, update: Callable[[list[Any]], list[Any]]) -> bool:
    """Updates a list in the spec of an object. Returns False if that changes nothing.

    With optimistic locking: without resourceVersion, a concurrent change would be lost.
    """
    for _ in range(MAX_ATTEMPTS):
        current = client.get(plural, name)
        before = get_path(current, f"spec.{field}") or []
        after = update(before)
        if after == before:
            return False
        version = get_path(current, "metadata.resourceVersion")
        try:
            client.patch(plural, name, {"metadata": {"resourceVersion": version}, "spec": {field: after}})
            return True
        except ApiStatusError as problem:
            if problem.reason != "Conflict":
                raise
    kind = plural.removesuffix("s")
    raise ClientError(
        f"the {kind} {name} was changed concurrently {MAX_ATTEMPTS} times; change spec.{field} with `kubectl edit "
        f"{kind} {name}`"
    )
