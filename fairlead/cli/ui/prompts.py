"""What only a person can answer: passwords, and whether one is sure.

A secret is asked for on the terminal, without echo, or read from stdin when a flag says so. It is never an argument:
everybody on the machine can read those, and shells keep them.
"""

import getpass
import sys

from fairlead.cli.ui.output import plain
from fairlead.cli.ui.session import WrongUsage

MAX_SECRET = 4096


def can_ask() -> bool:
    return sys.stdin.isatty()


def typed(label: str, instead: str) -> str:
    """What the person at the terminal types, unseen; `instead` says what to do where nobody is there."""
    if not can_ask():
        raise WrongUsage(f"nobody is here to type the {label}; {instead}")
    return getpass.getpass(f"{label.capitalize()}: ")


def secret(label: str, instead: str) -> str:
    """The same, and not empty."""
    return _filled(typed(label, instead), label)


def new_secret(label: str, instead: str) -> str:
    """A secret that nobody can check yet, hence twice."""
    first = secret(label, instead)
    if typed(f"{label}, again", instead) != first:
        raise WrongUsage(f"the two are not the same; start again and type the {label} twice")
    return first


def line_from_stdin() -> str:
    return sys.stdin.readline(MAX_SECRET).rstrip("\r\n")


def secret_from_stdin(label: str) -> str:
    """The next line of stdin, and not empty."""
    return _filled(line_from_stdin(), f"{label} on stdin")


def sure(question: str) -> None:
    """Returns if the person says yes; a script has to say so beforehand."""
    if not can_ask():
        raise WrongUsage(f"{question} Nobody is here to say so; add --yes")
    if not agreed(question):
        raise WrongUsage("left as it is; answer y, or add --yes, to go on")


def agreed(question: str) -> bool:
    print(f"{plain(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _filled(text: str, what: str) -> str:
    if not text:
        raise WrongUsage(f"the {what} is empty; try again")
    return text
