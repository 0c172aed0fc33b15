"""What a check of a machine found: `fairlead doctor`, and `fairlead runner doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. Without a problem, the subject is in order."""

    subject: str
    problem: str = ""
    remedy: str = ""
    """The command or setting that solves the problem."""
    is_fatal: bool = True
    """What was checked does not work until the problem is solved."""
    detail: str = ""
    """How it is set up, if there is no problem."""
