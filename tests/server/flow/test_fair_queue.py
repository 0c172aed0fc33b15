"""server.flow.fair_queue: the order of service, which request is dropped, and that none is left behind."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.server.flow.fair_queue import MAX_DEBT, FairQueue, Flow, QueueLimits, Ticket
from tests.harness.properties import examples


def build_queue(total: int = 1000, per_flow: int = 50) -> FairQueue:
    return FairQueue(QueueLimits(total, per_flow))


def push_requests(queue: FairQueue, flow: Flow, count: int, cost: float = 1.0) -> None:
    for _ in range(count):
        assert queue.push(Ticket(flow, cost)) is None


def pop_flow_names(queue: FairQueue, count: int) -> list[str]:
    return [queue.pop().flow.name for _ in range(count)]


def test_flows_take_turns_however_much_one_has_queued() -> None:
    queue, heavy, light = build_queue(), Flow("heavy"), Flow("light")
    push_requests(queue, heavy, 100)
    push_requests(queue, light, 3)
    assert Counter(pop_flow_names(queue, 6)) == {"heavy": 3, "light": 3}
    assert pop_flow_names(queue, 97) == ["heavy"] * 97


def test_a_later_flow_does_not_wait_for_all_earlier_requests() -> None:
    queue, heavy, light = build_queue(), Flow("heavy"), Flow("light")
    push_requests(queue, heavy, 100)
    pop_flow_names(queue, 50)
    push_requests(queue, light, 1)
    assert "light" in pop_flow_names(queue, 2)


def test_requests_are_weighted_by_their_cost() -> None:
    queue, large, small = build_queue(), Flow("large"), Flow("small")
    push_requests(queue, large, 40, cost=10.0)
    push_requests(queue, small, 40, cost=1.0)
    order = pop_flow_names(queue, 44)
    assert Counter(order)["large"] in (4, 5)


def test_a_cost_beyond_the_estimate_is_charged_to_the_flow() -> None:
    queue, indebted, other = build_queue(), Flow("indebted"), Flow("other")
    queue.start(indebted, 1.0)
    queue.charge(indebted, 20.0)
    push_requests(queue, indebted, 5)
    push_requests(queue, other, 25)
    assert pop_flow_names(queue, 20) == ["other"] * 20


def test_a_charge_moves_a_queued_flow_back() -> None:
    queue, indebted, other = build_queue(), Flow("indebted"), Flow("other")
    push_requests(queue, indebted, 5)
    push_requests(queue, other, 5)
    queue.charge(indebted, 100.0)
    assert pop_flow_names(queue, 5) == ["other"] * 5
    assert pop_flow_names(queue, 5) == ["indebted"] * 5


def test_an_overestimated_cost_is_refunded() -> None:
    queue, overestimated, other = build_queue(), Flow("overestimated"), Flow("other")
    queue.start(overestimated, 100.0)
    push_requests(queue, overestimated, 3)
    push_requests(queue, other, 3)
    queue.charge(overestimated, -100.0)
    assert Counter(pop_flow_names(queue, 4)) == {"overestimated": 2, "other": 2}


def test_an_idle_flow_does_not_accumulate_credit() -> None:
    queue, busy, idle = build_queue(), Flow("busy"), Flow("idle")
    push_requests(queue, busy, 200)
    pop_flow_names(queue, 150)
    push_requests(queue, idle, 50)
    assert Counter(pop_flow_names(queue, 20)) == {"busy": 10, "idle": 10}


def test_the_debt_of_a_flow_is_bounded() -> None:
    queue, flow = build_queue(), Flow("indebted")
    for _ in range(10):
        queue.charge(flow, MAX_DEBT)
    assert flow.virtual_time == queue.virtual_clock + MAX_DEBT


def test_a_single_flow_can_fill_at_most_half_of_the_queue() -> None:
    queue, flow = build_queue(total=1000), Flow("alone")
    push_requests(queue, flow, 500)
    ticket = Ticket(flow, 1.0)
    assert queue.push(ticket) is ticket
    assert queue.length == 500


def test_every_flow_has_its_limit_however_many_flows_there_are() -> None:
    queue = build_queue(total=100, per_flow=5)
    for number in range(20):
        push_requests(queue, Flow(str(number)), 5)
    assert queue.length == 100


def test_a_full_queue_drops_the_newest_request_of_the_longest_flow() -> None:
    queue, heavy = build_queue(total=10, per_flow=8), Flow("heavy")
    push_requests(queue, heavy, 7)
    newest = heavy.waiting[-1]
    for number in range(3):
        push_requests(queue, Flow(str(number)), 1)
    new = Flow("newcomer")
    assert queue.push(Ticket(new, 1.0)) is newest
    assert (queue.length, len(heavy.waiting), len(new.waiting)) == (10, 6, 1)


def test_in_a_full_queue_the_longest_flow_is_rejected() -> None:
    queue, heavy = build_queue(total=10, per_flow=50), Flow("heavy")
    push_requests(queue, heavy, 6)
    push_requests(queue, Flow("other"), 4)
    ticket = Ticket(heavy, 1.0)
    assert queue.push(ticket) is ticket
    assert queue.length == 10


def test_a_removed_request_is_not_served() -> None:
    queue, flow, other = build_queue(), Flow("one"), Flow("other")
    first, second = Ticket(flow, 1.0), Ticket(flow, 1.0)
    for ticket in (first, second, Ticket(other, 1.0)):
        queue.push(ticket)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert sorted(pop_flow_names(queue, 2)) == ["one", "other"]
    assert queue.length == 0
    assert queue.peek() is None
    with pytest.raises(IndexError):
        queue.pop()


def test_a_parked_flow_does_not_block_others() -> None:
    queue, writer, reader = build_queue(), Flow("writer"), Flow("reader")
    push_requests(queue, writer, 2)
    push_requests(queue, reader, 2)
    queue.park()
    assert pop_flow_names(queue, 2) == ["reader"] * 2
    assert queue.peek() is None
    queue.unpark()
    assert pop_flow_names(queue, 2) == ["writer"] * 2


def test_stale_heap_entries_are_removed() -> None:
    queue, flow = build_queue(), Flow("one")
    push_requests(queue, flow, 2)
    for _ in range(10_000):
        queue.charge(flow, -0.001)
    assert len(queue._heap) < 200
    assert pop_flow_names(queue, 2) == ["one"] * 2


COSTS = st.sampled_from([0.5, 1.0, 4.0, 16.0])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), COSTS), min_size=1, max_size=120))
def test_no_queued_flow_is_behind_by_more_than_one_request(requests: list[tuple[int, float]]) -> None:
    """Max-min fairness: of two queued flows, neither got more than the other by more than one request."""
    queue, flows = build_queue(), [Flow(str(number)) for number in range(5)]
    for number, cost in requests:
        assert queue.push(Ticket(flows[number], cost)) is None
    received, largest = dict.fromkeys(flows, 0.0), 16.0
    while queue.length:
        ticket = queue.pop()
        received[ticket.flow] += ticket.cost
        waiting = [received[flow] for flow in flows if flow.waiting]
        if waiting:
            assert received[ticket.flow] - min(waiting) <= 2 * largest


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["push", "pop", "remove", "charge", "park", "unpark"]), st.integers(0, 5), COSTS),
        max_size=200,
    )
)
def test_no_request_is_lost_and_the_limits_hold_for_any_sequence_of_operations(
    operations: list[tuple[str, int, float]],
) -> None:
    queue, flows = build_queue(total=20, per_flow=5), [Flow(str(number)) for number in range(6)]
    queued: list[Ticket] = []
    clock = 0.0
    for operation, number, cost in operations:
        flow = flows[number]
        if operation == "push":
            ticket = Ticket(flow, cost)
            dropped = queue.push(ticket)
            if dropped is not ticket:
                queued.append(ticket)
            if dropped is not None and dropped is not ticket:
                queued.remove(dropped)
        elif operation == "pop" and queue.peek() is not None:
            queued.remove(queue.pop())
        elif operation == "remove" and queued:
            assert queue.remove(queued.pop(number % len(queued)))
        elif operation == "charge":
            queue.charge(flow, cost)
        elif operation == "park":
            queue.park()
        elif operation == "unpark":
            queue.unpark()
        assert queue.length == len(queued) <= 20
        assert sum(len(flow.waiting) for flow in flows) == queue.length
        assert queue.virtual_clock >= clock
        clock = queue.virtual_clock
    queue.unpark()
    while queued:
        queued.remove(queue.pop())
    assert queue.length == 0
