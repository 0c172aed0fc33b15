"""Sessions with a server, and error reporting, for every command that uses the client.

Exit codes: 0 for success, 1 for an error of the server or the machine (or a negative result), 2 for a usage error.
Typer exits with 2 for the errors it detects; `UsageError` is for those that only the command can detect.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import typer

from fairlead.cli.ui.durations import age, parse_time
from fairlead.cli.ui.output import escape_control, print_note
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.client.contexts import (
    KEY_ENV,
    Login,
    NotLoggedIn,
    SelectedLogin,
    contexts_path,
    load_contexts,
    save_contexts,
    select_login,
)
from fairlead.client.errors import UNKNOWN_KEY, UNKNOWN_KEY_CAUSES
from fairlead.core.files import FileProblem, MissingFile, read_file


class UsageError(Exception):
    """Contradictory flags, or a prompt without a terminal. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Session:
    """The client of one command. `name` is the name of the stored login; empty if it comes from the environment."""

    client: Client
    login: Login
    name: str

    def save_key(self, key: str) -> bool:
        """Replaces the key of the stored login. Returns False if the login is not stored."""
        path = contexts_path()
        stored = load_contexts(path)
        if not self.name or self.name not in stored.contexts:
            return False
        contexts = stored.contexts | {self.name: replace(stored.contexts[self.name], key=key)}
        save_contexts(path, replace(stored, contexts=contexts))
        return True


@contextmanager
def open_session(context: str | None) -> Iterator[Session]:
    """Opens a session with the selected server. Errors inside the block are printed and end the command."""
    with report_errors():
        selected = resolve_login(context)
        with selected.login.create_client() as client:
            client.on_warning = lambda text: print_note(f"warning: {text}")
            try:
                yield Session(client, selected.login, selected.name)
            except ApiStatusError as problem:
                if problem.code != 401:
                    raise
                raise ClientError(_explain_rejection(selected, problem)) from None


def _explain_rejection(selected: SelectedLogin, problem: ApiStatusError) -> str:
    """Why the server does not accept the key of a login, as far as it is known, and what to do."""
    login, name = selected.login, selected.name
    if not name:
        # `fairlead login` would not help: the variable takes precedence over stored logins.
        advice = f"set {KEY_ENV} to a key that is neither disabled nor expired"
        return f"{login.url} does not accept the key in {KEY_ENV} ({problem.message}); {advice}"
    is_current = name == load_contexts(contexts_path()).current
    command = "fairlead login" if is_current else f"fairlead login --context {shlex.quote(name)}"
    now = datetime.now(UTC)
    expires = parse_time(login.expires)
    if expires is not None and expires <= now:
        reason = f"the key of the login {name!r} expired {age(login.expires, now)} ago"
    elif problem.message == UNKNOWN_KEY:
        reason = f"{login.url} does not know the key of the login {name!r}: {UNKNOWN_KEY_CAUSES}"
    else:
        reason = problem.message
    return f"{reason}; log in again with `{command}`"


def project_namespace(session: Session, project: str) -> str:
    """The namespace of a project; the server determines its prefix."""
    return project_namespace_prefix(session.client) + project


def project_namespace_prefix(client: Client) -> str:
    """The prefix of project namespaces."""
    prefix = client.whoami().get("projectNamespacePrefix")
    if not isinstance(prefix, str):
        raise ClientError("the server did not return the prefix of project namespaces; use --namespace instead")
    return prefix


def resolve_login(context: str | None) -> SelectedLogin:
    try:
        return select_login(context)
    except NotLoggedIn as problem:
        local = find_local_kubeconfig()
        if context is not None or local is None:
            raise
        raise NotLoggedIn(f"{problem}; {local_server_hint(local)}") from None


def local_server_hint(kubeconfig: Path) -> str:
    return f"for the server on this machine: `fairlead login --kubeconfig {shlex.quote(str(kubeconfig))}`"


def find_local_kubeconfig() -> Path | None:
    """The admin kubeconfig that `fairlead up` wrote on this machine, if this user may read it."""
    from fairlead.settings import Settings, StartError

    try:
        folder = Path(os.environ.get("FAIRLEAD_DATA") or Settings().data)
    except StartError:
        return None
    path = folder / "admin.kubeconfig"
    return path if os.access(path, os.R_OK) else None


@contextmanager
def report_errors() -> Iterator[None]:
    """Prints client, file and usage errors and exits with code 1 or 2."""
    try:
        yield
    except (UsageError, MissingFile) as error:
        raise exit_with_error(str(error), code=2) from None
    except (ClientError, FileProblem) as error:
        raise exit_with_error(str(error)) from None


def read_input(path: Path, advice: str) -> bytes:
    """The content of a file that the user names. Raises UsageError with the advice if it does not exist."""
    content = read_file(path)
    if content is None:
        raise UsageError(f"{path}: no such file; {advice}")
    return content


def exit_with_error(message: str, code: int = 1) -> typer.Exit:
    """Prints an error on stderr and returns the exception to raise.

    Further lines are indented, so that text from the server cannot look like another message.
    """
    first, *others = (escape_control(line) for line in message.split("\n"))
    typer.echo("\n".join((f"fairlead: {first}", *(f"  {line.strip()}" for line in others))), err=True)
    return typer.Exit(code)
