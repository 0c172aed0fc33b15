"""Shell completion of object names from the server, and of login names.

Typer calls these functions on Tab. Errors are suppressed and complete to nothing, because output would garble the
command line. `cli/server/completion.py` prints the scripts for the shells, which quote the names.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

import typer

from fairlead.cli.ui.session import project_namespace_prefix, resolve_login
from fairlead.client import Client, ClientError
from fairlead.client.contexts import contexts_path, load_contexts
from fairlead.client.discovery import find_resource, list_resources
from fairlead.core.files import FileProblem
from fairlead.core.objects import metadata, name_of

COMPLETION_TIMEOUT = 2.0
"""Seconds to wait for the server; the terminal is blocked meanwhile."""

COMPLETION_DEADLINE = 4.0
"""Seconds after which a completion ends without a result, also if it waits for a name server."""

MAX_NAMES = 500

COMPLETION_VARIABLE = "_FAIRLEAD_COMPLETE"
"""The shell sets it when it runs the program for a completion. Its value says for which shell."""

Completer = Callable[[typer.Context, str], list[str]]


@contextmanager
def _open_client(context: str | None) -> Iterator[Client]:
    """A client that waits only shortly, with the stored key.

    The key is not refreshed: if the process ended before it has stored the new refresh token, the login would end.
    """
    timer = threading.Timer(COMPLETION_DEADLINE, os._exit, (0,))
    timer.daemon = True
    if COMPLETION_VARIABLE in os.environ:
        timer.start()
    try:
        login = resolve_login(context).login
        with login.create_client(login.stored_key()) as client:
            client.timeout = COMPLETION_TIMEOUT
            yield client
    finally:
        timer.cancel()


def _offer(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that begin like this, sorted.

    Without those that would change the terminal or be several lines, and those that the command would take for flags.
    """
    return sorted(
        {name for name in names if name.startswith(incomplete) and name.isprintable() and name[:1] not in ("", "-")}
    )


def complete_names(plural: str, project: str = "") -> Completer:
    """Builds a completer for object names. `project` is the command's parameter with their project, if it has one."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            names = _list_names(ctx.params.get("context"), plural, ctx.params.get(project) or "")
        except (ClientError, FileProblem):
            return []
        return _offer(names, incomplete)

    return complete


def _list_names(context: str | None, plural: str, project: str) -> list[str]:
    with _open_client(context) as client:
        namespace = project_namespace_prefix(client) + project if project else ""
        return [name_of(each) for each in islice(client.list(plural, namespace=namespace), MAX_NAMES)]


def complete_paths(plural: str) -> Completer:
    """Builds a completer for objects of projects, as PROJECT/NAME."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            with _open_client(ctx.params.get("context")) as client:
                prefix = project_namespace_prefix(client)
                items = list(islice(client.list(plural), MAX_NAMES))
        except (ClientError, FileProblem):
            return []
        places = ((str(metadata(each).get("namespace") or ""), name_of(each)) for each in items)
        paths = (f"{place.removeprefix(prefix)}/{name}" for place, name in places if place.startswith(prefix))
        return _offer(paths, incomplete)

    return complete


def complete_namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    try:
        with _open_client(ctx.params.get("context")) as client:
            return _offer(_list_targets(client, ["namespaces"], ""), incomplete)
    except (ClientError, FileProblem):
        return []


SCOPE_COMPLETERS: Mapping[str, Completer] = {
    "--project": complete_names("projects"),
    "--space": complete_paths("spaceinstances"),
    "--virtual-cluster": complete_paths("virtualclusterinstances"),
    "--cluster": complete_names("clusters"),
}
"""The completers of the flags that name what a key is for."""


def complete_targets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes the arguments of commands for any kind: a kind, then the names of its objects."""
    words = ctx.params.get("targets") or []
    try:
        with _open_client(ctx.params.get("context")) as client:
            project = ctx.params.get("project")
            namespace = ctx.params.get("namespace") or ""
            if project:
                namespace = project_namespace_prefix(client) + project
            return _offer(_list_targets(client, words, namespace), incomplete)
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
    return _offer(stored.contexts, incomplete)
