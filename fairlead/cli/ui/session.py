"""A server to talk to, and failures as one line: the frame of every command that uses the client.

Exit codes: 0 done, 1 the server or the machine refused (or the answer to a question is no), 2 the command was typed
wrongly. Typer ends with 2 by itself; `WrongUsage` is for what only the command can see.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from fairlead.cli.ui.output import note, plain
from fairlead.client import ApiProblem, Client, ClientError
from fairlead.client.contexts import KEY, Chosen, Login, NoLogin, chosen, contexts_path, load, save
from fairlead.core.files import FileProblem
from fairlead.settings import Settings, StartError


class WrongUsage(Exception):
    """Flags that contradict each other, or a question that cannot be put because nobody is there to answer."""


@dataclass(frozen=True, slots=True)
class Session:
    """The client of one command. `name` is what its login is kept under; empty where it came from the environment."""

    client: Client
    login: Login
    name: str

    def keep_key(self, key: str) -> bool:
        """Stores another key for this login. False where there is nothing stored to change."""
        path = contexts_path()
        kept = load(path)
        if not self.name or self.name not in kept.contexts:
            return False
        contexts = kept.contexts | {self.name: replace(kept.contexts[self.name], key=key)}
        save(path, replace(kept, contexts=contexts))
        return True


@contextmanager
def connected(context: str | None) -> Iterator[Session]:
    """The chosen server, until the command is done. What goes wrong meanwhile is told, and the command ends."""
    with failures_told():
        found = chosen_login(context)
        with found.login.client() as client:
            client.on_warning = lambda text: note(f"warning: {text}")
            try:
                yield Session(client, found.login, found.name)
            except ApiProblem as problem:
                if problem.code != 401 or found.name:
                    raise
                # Another login would not help: the variable would still be there.
                advice = f"set {KEY} to a key that is neither disabled nor expired"
                raise ClientError(
                    f"{client.url} does not accept the key in {KEY} ({problem.message}); {advice}"
                ) from None


def namespace_of(session: Session, project: str) -> str:
    """The namespace of a project, whose name the server decides on."""
    return namespace_prefix(session.client) + project


def namespace_prefix(client: Client) -> str:
    """What the namespaces of projects begin with."""
    prefix = client.whoami().get("projectNamespacePrefix")
    if not isinstance(prefix, str):
        raise ClientError("the server did not say how namespaces of projects are named; give the namespace itself")
    return prefix


def chosen_login(context: str | None) -> Chosen:
    try:
        return chosen(context)
    except NoLogin as problem:
        own = own_kubeconfig()
        if context is not None or own is None:
            raise
        raise NoLogin(f"{problem}; {own_server(own)}") from None


def own_server(kubeconfig: Path) -> str:
    return f"for the server on this machine: `fairlead login --kubeconfig {shlex.quote(str(kubeconfig))}`"


def own_kubeconfig() -> Path | None:
    """The administrator's kubeconfig that `fairlead up` has left on this machine, if this user may read it."""
    try:
        folder = Path(os.environ.get("FAIRLEAD_DATA") or Settings().data)
    except StartError:
        return None
    path = folder / "admin.kubeconfig"
    return path if os.access(path, os.R_OK) else None


@contextmanager
def failures_told() -> Iterator[None]:
    try:
        yield
    except (ClientError, FileProblem) as error:
        raise failed(str(error)) from None
    except WrongUsage as error:
        raise failed(str(error), code=2) from None


def failed(text: str, code: int = 1) -> typer.Exit:
    """One line on stderr. Raise what it returns."""
    typer.echo(f"fairlead: {plain(text)}", err=True)
    return typer.Exit(code)
