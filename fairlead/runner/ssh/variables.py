"""The variables of a client that a session gets: those that sshd accepts, too, up to a limit."""

import re
from collections.abc import Mapping

from fairlead.runner.ssh.messages import MAX_VALUE_CHARS, MAX_VARIABLES

ACCEPTED = re.compile(r"LANG|LC_[A-Z_]{1,32}")
TERMINAL = "TERM"
DEFAULT_TERMINAL = "xterm"
MAX_TERMINAL_CHARS = 64


def select_variables(given: Mapping[str, str], has_terminal: bool = False) -> dict[str, str]:
    """Those of its language, and with a terminal the sort of it."""
    accepted = {
        name: value
        for name, value in given.items()
        if ACCEPTED.fullmatch(name) and len(value) <= MAX_VALUE_CHARS and value.isprintable()
    }
    selected = dict(list(accepted.items())[:MAX_VARIABLES])
    if has_terminal:
        sort = given.get(TERMINAL, "")
        selected[TERMINAL] = sort[:MAX_TERMINAL_CHARS] if sort and sort.isprintable() else DEFAULT_TERMINAL
    return selected
