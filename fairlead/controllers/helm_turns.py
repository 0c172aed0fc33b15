"""Who may run helm now: a few at once, and of one project fewer still. `deploying.py` asks.

Nobody waits in line here: whoever gets no turn says so in a condition and comes again. So a project with many slow
charts holds up neither the others' charts nor those who look at virtual clusters that run already.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.controllers.far_trouble import INFO, Trouble

AT_ONCE, OF_ONE_PROJECT = 4, 2
WAITING = "WaitingForTurn"


class Turns:
    def __init__(self, at_once: int = AT_ONCE, of_one: int = OF_ONE_PROJECT) -> None:
        self._at_once = at_once
        self._of_one = of_one
        self._taken: Counter[str] = Counter()

    @contextmanager
    def one(self, project: str) -> Iterator[None]:
        """A turn until the block ends. Raises Trouble where there is none."""
        if self._taken.total() >= self._at_once or self._taken[project] >= self._of_one:
            why = "as many charts as may be at once are being deployed or removed already; it is tried again soon"
            raise Trouble(WAITING, why, INFO)
        self._taken[project] += 1
        try:
            yield
        finally:
            self._taken[project] -= 1
            if not self._taken[project]:
                del self._taken[project]
