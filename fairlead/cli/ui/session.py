"""Sessions with a server, and error reporting, for every command that uses the client.

Exit codes: 0 for success, 1 for an error of the server or the machine (or a negative result), 2 for a usage error.
Typer exits with 2 for the errors it detects; `UsageError` is for those that only the command can detect.
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
    """Contradictory flags, or a prompt without a terminal. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Session:
    """The client of one command. `name` is the name of the stored login; empty if it comes from the environment."""

    client: Client
    login: Login
    name: str

    def keep_key(self, key: str) -> bool:
        """Replaces the key of the stored login. Returns False if the login is not stored."""
        path = contexts_path()
        stored = load(path)
        if not self.name or self.name not in stored.contexts:
            return False
        contexts = stored.contexts | {self.name: replace(stored.contexts[self.name], key=key)}
        save(path, replace(stored, contexts=contexts))
        return True


@contextmanager
def connected(context: str | None) -> Iterator[Session]:
    """Opens a session with the selected server. Errors inside the block are printed and end the command."""
    with failures_told():
        selected = chosen_login(context)
        with selected.login.client() as client:
            client.on_warning = lambda text: note(f"warning: {text}")
            try:
                yield Session(client, selected.login, selected.name)
            except ApiProblem as problem:
                if problem.code != 401 or selected.name:
                    raise
                # `fairlead login` would not help: the variable takes precedence over stored logins.
                advice = f"set {KEY} to a key that is neither disabled nor expired"
                raise ClientError(
                    f"{client.url} does not accept the key in {KEY} ({problem.message}); {advice}"
                ) from None


def namespace_of(session: Session, project: str) -> str:
    """The namespace of a project; the server determines its prefix."""
    return namespace_prefix(session.client) + project


def namespace_prefix(client: Client) -> str:
    """The prefix of project namespaces."""
    prefix = client.whoami().get("projectNamespacePrefix")
    if not isinstance(prefix, str):
        raise ClientError("the server did not return the prefix of project namespaces; use --namespace instead")
    return prefix


def chosen_login(context: str | None) -> Chosen:
    try:
        return chosen(context)
    except NoLogin as problem:
        local = own_kubeconfig()
        if context is not None or local is None:
            raise
        raise NoLogin(f"{problem}; {own_server(local)}") from None


def own_server(kubeconfig: Path) -> str:
    return f"for the server on this machine: `fairlead login --kubeconfig {shlex.quote(str(kubeconfig))}`"


def own_kubeconfig() -> Path | None:
    """The admin kubeconfig that `fairlead up` wrote on this machine, if this user may read it."""
    try:
        folder = Path(os.environ.get("FAIRLEAD_DATA") or Settings().data)
    except StartError:
        return None
    path = folder / "admin.kubeconfig"
    return path if os.access(path, os.R_OK) else None


@contextmanager
def failures_told() -> Iterator[None]:
    """Prints client, file and usage errors in one line and exits with code 1 or 2."""
    try:
        yield
    except (ClientError, FileProblem) as error:
        raise failed(str(error)) from None
    except WrongUsage as error:
        raise failed(str(error), code=2) from None


def failed(text: str, code: int = 1) -> typer.Exit:
    """Prints an error on stderr and returns the exception to raise."""
    typer.echo(f"fairlead: {plain(text)}", err=True)
    return typer.Exit(code)
