"""Clocks that stand still until a test moves them, and a request to time."""

from collections.abc import Callable

from fairlead.core.call import Call, RequestInfo
from fairlead.core.user import User
from tests.harness.calls import call


class Clocks:
    """The wall clock, and the processor time of the loop's thread, which pass only when a test says so."""

    def __init__(self) -> None:
        self.wall = 100.0
        self.used = 5.0

    def work(self, seconds: float) -> None:
        self.wall += seconds
        self.used += seconds

    @property
    def both(self) -> tuple[Callable[[], float], Callable[[], float]]:
        return lambda: self.wall, lambda: self.used


def asked() -> Call:
    made = call("/x", headers={"content-length": "3000000"})
    made.method, made.audit_id, made.user = "POST", "an-id", User("mallory")
    made.target = RequestInfo("create", "/x", group="example.com", resource="apps", subresource="clone")
    return made
