"""`fairlead project usage`: what a project uses of its quotas, and what is stored in it."""

from collections.abc import Iterator
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.flags import ContextFlag, ObjectOutputFlag
from fairlead.cli.ui.output import TABLE, print_table, print_value
from fairlead.cli.ui.session import open_session
from fairlead.core.objects import Object, get_path

PROJECTS = "projects"
COLUMNS = ("WHOSE", "WHAT", "USED", "LIMIT")
STORED = (("objects", "stored objects"), ("bytes", "stored bytes"))

Row = tuple[str, str, str, str]


def command(
    name: Annotated[str, typer.Argument(help="Name of the project.", autocompletion=complete_names(PROJECTS))],
    context: ContextFlag = None,
    output: ObjectOutputFlag = TABLE,
) -> None:
    """Show what a project uses: its quotas, what is stored in it by whom, and what you store in all projects."""
    with open_session(context) as session:
        usage = session.client.get(PROJECTS, name, "usage")
        if not output.is_table:
            print_value(usage, output)
        else:
            rows = [*_quota_rows(usage), *_storage_rows(usage)]
            print_table(COLUMNS, rows, f"the server does not report what the project {name} uses")


def _quota_rows(usage: Object) -> Iterator[Row]:
    project, user = (get_path(usage, f"quotas.{part}") or {} for part in ("project", "user"))
    for key, limit in (project.get("limit") or {}).items():
        yield "project", key, str((project.get("used") or {}).get(key, 0)), str(limit)
    limits = user.get("limit") or {}
    for kind in ("user", "team"):
        for name, used in sorted((get_path(user, f"used.{kind}s") or {}).items()):
            yield from ((f"{kind} {name}", key, str(used.get(key, 0)), str(limit)) for key, limit in limits.items())


def _storage_rows(usage: Object) -> Iterator[Row]:
    storage = usage.get("storage") or {}
    requester = usage.get("requester") or {}
    for field, what in STORED if storage else ():
        yield "project", what, _number(storage, "used", field), _number(storage, "limit", field)
    for each in storage.get("users") or ():
        for field, what in STORED:
            yield f"user {each.get('user')}", f"{what} in the project", str(each.get(field, 0)), "-"
    for field, what in STORED if requester else ():
        yield "you", f"{what} in all", _number(requester, "used", field), _number(requester, "limit", field)


def _number(part: Object, side: str, field: str) -> str:
    return str(get_path(part, f"{side}.{field}") or 0)
