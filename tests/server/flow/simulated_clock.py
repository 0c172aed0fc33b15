"""A clock for flow control that only tests advance."""

from fairlead.server.flow.control import (
    ITERATION_BUDGET_SECONDS,
    FlowControl,
)


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def use_up_budget(control: FlowControl) -> None:
    """Uses up the budget of this iteration, with a second client present."""
    control.record_client_change("another client")
    control.spend(ITERATION_BUDGET_SECONDS)
