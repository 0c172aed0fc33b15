"""Clocks that a test advances, and a request to time."""

from collections.abc import Callable

from fairlead.core.call import Call, RequestInfo
from fairlead.core.user import User
from tests.harness.calls import call


class Clocks:
    """The wall clock, and the CPU time of the event loop's thread. They advance only when a test says so."""

    def __init__(self) -> None:
        self.wall = 100.0
        self.cpu = 5.0

    def work(self, seconds: float) -> None:
        self.wall += seconds
        self.cpu += seconds

    @property
    def both(self) -> tuple[Callable[[], float], Callable[[], float]]:
        return lambda: self.wall, lambda: self.cpu


def build_request() -> Call:
    request = call("/x", headers={"content-length": "3000000"})
    request.method, request.audit_id, request.user = "POST", "an-id", User("mallory")
    request.target = RequestInfo("create", "/x", group="example.com", resource="apps", subresource="clone")
    return request
