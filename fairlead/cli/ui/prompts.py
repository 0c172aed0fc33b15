"""Interactive prompts: secrets and confirmations.

Secrets are read from the terminal without echo, or from stdin with a flag. They are not taken as arguments, which are
visible to all users of the machine and stored in the shell history.
"""

import getpass
import sys

from fairlead.cli.ui.output import plain
from fairlead.cli.ui.session import WrongUsage

MAX_SECRET = 4096


def can_ask() -> bool:
    return sys.stdin.isatty()


def typed(label: str, instead: str) -> str:
    """Reads a line from the terminal without echo. `hint` is the advice if stdin is not a terminal."""
    if not can_ask():
        raise WrongUsage(f"cannot prompt for the {label}: stdin is not a terminal; {instead}")
    return getpass.getpass(f"{label.capitalize()}: ")


def secret(label: str, instead: str) -> str:
    """Prompts for a secret and rejects an empty one."""
    return _filled(typed(label, instead), label)


def new_secret(label: str, instead: str) -> str:
    """Prompts for a new secret twice."""
    first = secret(label, instead)
    if typed(f"{label}, again", instead) != first:
        raise WrongUsage(f"the two entries do not match; try again and enter the same {label} twice")
    return first


def line_from_stdin() -> str:
    return sys.stdin.readline(MAX_SECRET).rstrip("\r\n")


def secret_from_stdin(label: str) -> str:
    """Reads the next line of stdin and rejects an empty one."""
    return _filled(line_from_stdin(), f"{label} on stdin")


def sure(question: str) -> None:
    """Asks for confirmation and raises `UsageError` if it is not given. Scripts use --yes."""
    if not can_ask():
        raise WrongUsage(f"{question} Cannot ask for confirmation: stdin is not a terminal; add --yes")
    if not agreed(question):
        raise WrongUsage("canceled; nothing was changed")


def agreed(question: str) -> bool:
    print(f"{plain(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _filled(text: str, what: str) -> str:
    if not text:
        raise WrongUsage(f"the {what} is empty; try again")
    return text
