"""Names that the shell completes: those that the server knows, and those of the logins.

Flags and arguments name these functions, and Typer calls them while somebody presses Tab. Whatever goes wrong then is
nobody's question, so it is no name, and nothing is said.
"""

from collections.abc import Callable
from itertools import islice

import typer

from fairlead.cli.ui.session import chosen_login, namespace_prefix
from fairlead.client import ClientError
from fairlead.client.contexts import contexts_path, load
from fairlead.core.files import FileProblem
from fairlead.core.objects import name_of

PATIENCE = 2.0
"""Seconds that somebody waits after Tab before believing that the terminal is stuck."""

MOST = 500

Complete = Callable[[typer.Context, str], list[str]]


def names_of(plural: str, project: str = "") -> Complete:
    """Names of objects. `project` is the command's parameter that says which project they are in, if any does."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            found = _asked(ctx.params.get("context"), plural, ctx.params.get(project) or "")
        except (ClientError, FileProblem):
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


def _asked(context: str | None, plural: str, project: str) -> list[str]:
    with chosen_login(context).login.client() as client:
        client.timeout = PATIENCE
        namespace = namespace_prefix(client) + project if project else ""
        return sorted({name_of(each) for each in islice(client.list(plural, namespace=namespace), MOST)})


def logins(incomplete: str) -> list[str]:
    try:
        kept = load(contexts_path())
    except FileProblem:
        return []
    return sorted(name for name in kept.contexts if name.startswith(incomplete))
