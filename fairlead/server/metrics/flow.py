"""What flow control has counted, under the names that Kubernetes has for it."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from fairlead.server.flow.classify import Tally
from fairlead.server.flow.control import FlowControl
from fairlead.server.metrics.exposition import COUNTER, GAUGE, HISTOGRAM, Family, Sample, labelled

PREFIX = "apiserver_flowcontrol_"


def flow_families(control: FlowControl, tallies: Mapping[tuple[str, str], Tally]) -> Iterator[Family]:
    """All about priority levels and flow schemas, of which there is a closed set of both."""
    yield from _requests(tallies.values())
    yield from _seats(control)


def _requests(tallies: Collection[Tally]) -> Iterator[Family]:
    yield _family(
        "rejected_requests_total",
        COUNTER,
        "Requests that flow control has refused, by why.",
        ((_labels(each, reason=reason), count) for each in tallies for reason, count in each.rejected.items()),
    )
    yield _family(
        "dispatched_requests_total",
        COUNTER,
        "Requests that flow control has let in.",
        ((_labels(each), each.dispatched) for each in tallies),
    )
    yield _family(
        "current_inqueue_requests",
        GAUGE,
        "Requests that wait for their turn at the moment.",
        ((_labels(each), each.waiting) for each in tallies),
    )
    yield _family(
        "current_executing_requests",
        GAUGE,
        "Requests that were let in and are not answered yet.",
        ((_labels(each), each.executing) for each in tallies),
    )
    yield _family(
        "request_wait_duration_seconds",
        HISTOGRAM,
        "Seconds that requests waited for their turn, by whether it came.",
        (
            (_labels(each, execute=execute), waited.copy())
            for each in tallies
            for execute, waited in (("true", each.waited), ("false", each.waited_in_vain))
        ),
    )
    yield _family(
        "request_execution_seconds",
        HISTOGRAM,
        "Seconds from the turn of a request to its answer.",
        ((_labels(each, type="regular"), each.took.copy()) for each in tallies),
    )


def _seats(control: FlowControl) -> Iterator[Family]:
    levels = control.levels.values()
    yield _family(
        "nominal_limit_seats",
        GAUGE,
        "Seats that a priority level has of its own.",
        ((labelled({"priority_level": each.priority.name}), each.priority.seats) for each in levels),
    )
    yield _family(
        "current_executing_seats",
        GAUGE,
        "Seats that requests of a priority level hold at the moment.",
        ((labelled({"priority_level": each.priority.name}), each.held) for each in levels),
    )


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Family:
    """Worked out at once: all of it changes with every request."""
    return Family(PREFIX + name, kind, text, list(samples))


def _labels(tally: Tally, **further: str) -> str:
    return labelled({"priority_level": tally.level, "flow_schema": tally.schema, **further})
