"""Interactive prompts: secrets and confirmations.

Secrets are read from the terminal without echo, or from stdin with a flag. They are not taken as arguments, which are
visible to all users of the machine and stored in the shell history.
"""

import getpass
import sys

from fairlead.cli.ui.output import escape_control
from fairlead.cli.ui.session import UsageError

MAX_SECRET_LENGTH = 4096


def is_interactive() -> bool:
    return sys.stdin.isatty()


def read_hidden(label: str, hint: str) -> str:
    """Reads a line from the terminal without echo. `hint` is the advice if stdin is not a terminal."""
    if not is_interactive():
        raise UsageError(f"cannot prompt for the {label}: stdin is not a terminal; {hint}")
    return getpass.getpass(f"{label.capitalize()}: ")


def prompt_secret(label: str, hint: str) -> str:
    """Prompts for a secret and rejects an empty one."""
    return _require_nonempty(read_hidden(label, hint), label)


def prompt_new_secret(label: str, hint: str) -> str:
    """Prompts for a new secret twice."""
    first = prompt_secret(label, hint)
    if read_hidden(f"{label}, again", hint) != first:
        raise UsageError(f"the two entries do not match; try again and enter the same {label} twice")
    return first


def read_line_from_stdin() -> str:
    return sys.stdin.readline(MAX_SECRET_LENGTH).rstrip("\r\n")


def read_secret_from_stdin(label: str) -> str:
    """Reads the next line of stdin and rejects an empty one."""
    return _require_nonempty(read_line_from_stdin(), f"{label} on stdin")


def confirm(question: str) -> None:
    """Asks for confirmation and raises `UsageError` if it is not given. Scripts use --yes."""
    if not is_interactive():
        raise UsageError(f"{question} Cannot ask for confirmation: stdin is not a terminal; add --yes")
    if not ask_yes_no(question):
        raise UsageError("canceled; nothing was changed")


def ask_yes_no(question: str) -> bool:
    print(f"{escape_control(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _require_nonempty(text: str, label: str) -> str:
    if not text:
        raise UsageError(f"the {label} is empty; try again")
    return text
