"""Shell completion of object names from the server, and of login names.

Typer calls these functions on Tab. Errors are suppressed and complete to nothing, because output would garble the
command line.
"""

from collections.abc import Callable, Sequence
from itertools import islice

import typer

from fairlead.cli.ui.session import project_namespace_prefix, resolve_login
from fairlead.client import Client, ClientError
from fairlead.client.contexts import contexts_path, load_contexts
from fairlead.client.discovery import find_resource, list_resources
from fairlead.core.files import FileProblem
from fairlead.core.objects import name_of

COMPLETION_TIMEOUT = 2.0
"""Seconds to wait for the server; the terminal is blocked meanwhile."""

MAX_NAMES = 500

Completer = Callable[[typer.Context, str], list[str]]


def complete_names(plural: str, project: str = "") -> Completer:
    """Builds a completer for object names. `project` is the command's parameter with their project, if it has one."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            names = _list_names(ctx.params.get("context"), plural, ctx.params.get(project) or "")
        except (ClientError, FileProblem):
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


def _list_names(context: str | None, plural: str, project: str) -> list[str]:
    with resolve_login(context).login.create_client() as client:
        client.timeout = COMPLETION_TIMEOUT
        namespace = project_namespace_prefix(client) + project if project else ""
        return sorted({name_of(each) for each in islice(client.list(plural, namespace=namespace), MAX_NAMES)})


def complete_targets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the arguments of commands for any kind: a kind, then the names of its objects."""
    words = ctx.params.get("targets") or []
    try:
        with resolve_login(ctx.params.get("context")).login.create_client() as client:
            client.timeout = COMPLETION_TIMEOUT
            project, namespace = ctx.params.get("project"), ctx.params.get("namespace") or ""
            if project:
                namespace = project_namespace_prefix(client) + project
            found = _list_targets(client, words, namespace)
            return sorted({each for each in found if each.startswith(incomplete)})
    except (ClientError, FileProblem):
        return []


def _list_targets(client: Client, words: Sequence[str], namespace: str) -> list[str]:
    if not words:
        return [each.plural for each in list_resources(client) if "list" in each.verbs]
    resource = find_resource(client, words[0])
    path = resource.path(namespace=namespace if resource.namespaced else "")
    items = client.send("GET", path, query={"limit": str(MAX_NAMES)}).get("items") or ()
    return [name_of(each) for each in items]


def complete_logins(incomplete: str) -> list[str]:
    try:
        stored = load_contexts(contexts_path())
    except FileProblem:
        return []
    return sorted(name for name in stored.contexts if name.startswith(incomplete))
