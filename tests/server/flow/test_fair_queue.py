"""Fair queueing alone: who is served next, who has to go, and that nobody is left waiting."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.server.flow.fair_queue import MAX_DEBT, FairQueue, Flow, QueueLimits, Ticket


def queue(total: int = 1000, per_flow: int = 50) -> FairQueue:
    return FairQueue(QueueLimits(total, per_flow))


def fill(fair: FairQueue, flow: Flow, count: int, cost: float = 1.0) -> None:
    for _ in range(count):
        assert fair.push(Ticket(flow, cost)) is None


def served(fair: FairQueue, count: int) -> list[str]:
    return [fair.pop().flow.name for _ in range(count)]


def test_flows_take_turns_however_much_one_has_waiting() -> None:
    fair, loud, quiet = queue(), Flow("loud"), Flow("quiet")
    fill(fair, loud, 100)
    fill(fair, quiet, 3)
    assert Counter(served(fair, 6)) == {"loud": 3, "quiet": 3}
    assert served(fair, 97) == ["loud"] * 97


def test_who_comes_later_does_not_wait_for_what_came_before() -> None:
    fair, loud, quiet = queue(), Flow("loud"), Flow("quiet")
    fill(fair, loud, 100)
    served(fair, 50)
    fill(fair, quiet, 1)
    assert "quiet" in served(fair, 2)


def test_large_requests_count_for_as_much_as_they_cost() -> None:
    fair, large, small = queue(), Flow("large"), Flow("small")
    fill(fair, large, 40, cost=10.0)
    fill(fair, small, 40, cost=1.0)
    order = served(fair, 44)
    assert Counter(order)["large"] in (4, 5)


def test_what_a_request_cost_beyond_its_estimate_is_paid_by_its_flow() -> None:
    fair, greedy, other = queue(), Flow("greedy"), Flow("other")
    fair.start(greedy, 1.0)
    fair.charge(greedy, 20.0)
    fill(fair, greedy, 5)
    fill(fair, other, 25)
    assert served(fair, 20) == ["other"] * 20


def test_a_charge_while_a_flow_waits_changes_its_place() -> None:
    fair, greedy, other = queue(), Flow("greedy"), Flow("other")
    fill(fair, greedy, 5)
    fill(fair, other, 5)
    fair.charge(greedy, 100.0)
    assert served(fair, 5) == ["other"] * 5
    assert served(fair, 5) == ["greedy"] * 5


def test_what_was_estimated_too_much_is_given_back() -> None:
    fair, careful, other = queue(), Flow("careful"), Flow("other")
    fair.start(careful, 100.0)
    fill(fair, careful, 3)
    fill(fair, other, 3)
    fair.charge(careful, -100.0)
    assert Counter(served(fair, 4)) == {"careful": 2, "other": 2}


def test_nobody_saves_up_turns_by_being_idle() -> None:
    fair, busy, idle = queue(), Flow("busy"), Flow("idle")
    fill(fair, busy, 200)
    served(fair, 150)
    fill(fair, idle, 50)
    assert Counter(served(fair, 20)) == {"busy": 10, "idle": 10}


def test_debts_are_bounded() -> None:
    fair, flow = queue(), Flow("greedy")
    for _ in range(10):
        fair.charge(flow, MAX_DEBT)
    assert flow.virtual_time == fair.virtual_clock + MAX_DEBT


def test_a_flow_alone_may_fill_half_of_the_queue_and_no_more() -> None:
    fair, flow = queue(total=1000), Flow("alone")
    fill(fair, flow, 500)
    ticket = Ticket(flow, 1.0)
    assert fair.push(ticket) is ticket
    assert fair.length == 500


def test_every_flow_has_its_places_however_many_there_are() -> None:
    fair = queue(total=100, per_flow=5)
    for number in range(20):
        fill(fair, Flow(str(number)), 5)
    assert fair.length == 100


def test_a_full_queue_loses_the_youngest_of_the_longest_flow() -> None:
    fair, loud = queue(total=10, per_flow=8), Flow("loud")
    fill(fair, loud, 7)
    youngest = loud.waiting[-1]
    for number in range(3):
        fill(fair, Flow(str(number)), 1)
    newcomer = Flow("newcomer")
    assert fair.push(Ticket(newcomer, 1.0)) is youngest
    assert (fair.length, len(loud.waiting), len(newcomer.waiting)) == (10, 6, 1)


def test_in_a_full_queue_the_longest_flow_gets_no_more() -> None:
    fair, loud = queue(total=10, per_flow=50), Flow("loud")
    fill(fair, loud, 6)
    fill(fair, Flow("other"), 4)
    ticket = Ticket(loud, 1.0)
    assert fair.push(ticket) is ticket
    assert fair.length == 10


def test_a_request_that_is_over_takes_no_turn() -> None:
    fair, flow, other = queue(), Flow("one"), Flow("other")
    first, second = Ticket(flow, 1.0), Ticket(flow, 1.0)
    for ticket in (first, second, Ticket(other, 1.0)):
        fair.push(ticket)
    assert fair.remove(first)
    assert not fair.remove(first)
    assert sorted(served(fair, 2)) == ["one", "other"]
    assert fair.length == 0
    assert fair.peek() is None
    with pytest.raises(IndexError):
        fair.pop()


def test_a_flow_that_waits_for_a_seat_does_not_hold_up_others() -> None:
    fair, writer, reader = queue(), Flow("writer"), Flow("reader")
    fill(fair, writer, 2)
    fill(fair, reader, 2)
    fair.park()
    assert served(fair, 2) == ["reader"] * 2
    assert fair.peek() is None
    fair.unpark()
    assert served(fair, 2) == ["writer"] * 2


def test_outdated_places_are_tidied_up() -> None:
    fair, flow = queue(), Flow("one")
    fill(fair, flow, 2)
    for _ in range(10_000):
        fair.charge(flow, -0.001)
    assert len(fair._heap) < 200
    assert served(fair, 2) == ["one"] * 2


COSTS = st.sampled_from([0.5, 1.0, 4.0, 16.0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), COSTS), min_size=1, max_size=120))
def test_whoever_waits_is_never_behind_by_more_than_one_request(requests: list[tuple[int, float]]) -> None:
    """Max-min fairness: of two flows that both still wait, neither got more than the other by more than a request."""
    fair, flows = queue(), [Flow(str(number)) for number in range(5)]
    for number, cost in requests:
        assert fair.push(Ticket(flows[number], cost)) is None
    had, largest = dict.fromkeys(flows, 0.0), 16.0
    while fair.length:
        ticket = fair.pop()
        had[ticket.flow] += ticket.cost
        waiting = [had[flow] for flow in flows if flow.waiting]
        if waiting:
            assert had[ticket.flow] - min(waiting) <= 2 * largest


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["push", "pop", "remove", "charge", "park", "unpark"]), st.integers(0, 5), COSTS),
        max_size=200,
    )
)
def test_nothing_is_lost_and_the_limits_hold_whatever_happens(steps: list[tuple[str, int, float]]) -> None:
    fair, flows = queue(total=20, per_flow=5), [Flow(str(number)) for number in range(6)]
    inside: list[Ticket] = []
    clock = 0.0
    for step, number, cost in steps:
        flow = flows[number]
        if step == "push":
            ticket = Ticket(flow, cost)
            victim = fair.push(ticket)
            if victim is not ticket:
                inside.append(ticket)
            if victim is not None and victim is not ticket:
                inside.remove(victim)
        elif step == "pop" and fair.peek() is not None:
            inside.remove(fair.pop())
        elif step == "remove" and inside:
            assert fair.remove(inside.pop(number % len(inside)))
        elif step == "charge":
            fair.charge(flow, cost)
        elif step == "park":
            fair.park()
        elif step == "unpark":
            fair.unpark()
        assert fair.length == len(inside) <= 20
        assert sum(len(each.waiting) for each in flows) == fair.length
        assert fair.virtual_clock >= clock
        clock = fair.virtual_clock
    fair.unpark()
    while inside:
        inside.remove(fair.pop())
    assert fair.length == 0
