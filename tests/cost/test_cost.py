"""No request holds the event loop for longer than it may, or takes more memory than it may, whatever is in it.

One real server is sent everything that `cases.py` makes of its own discovery and schemas, one request after the other.
Nothing is exempt: a kind or field that breaks the limit needs a bound in its schema, an algorithm that is linear, or a
thread (`core/concurrency.py`).

What is compared with the limit is processor time of the loop's thread, not elapsed time: a machine that does other
things at the same time makes the test slower, and not fail. What is left is a processor that is slower by itself, and
caches that are shared with others. On two busy cores, with eight times as much to do as they can, the worst of all
cases is below the limit, and nearly all are below a third of it.
"""

from collections.abc import Iterator

import httpx
import pytest

from fairlead.server.http.event_loop_watchdog import MAX_BLOCKED_SECONDS
from tests.cost import cases
from tests.cost.cases import Case
from tests.cost.measure import Cost, Holds, Meter, longest_between
from tests.cost.shapes import SHAPES
from tests.harness.server_process import Server, running
from tests.security.api_resources import NAMESPACES, Resource, World, explore, furnish
from tests.security.conftest import assert_unharmed

MEMORY_LIMIT = 160 * 1024 * 1024
"""Bytes that one request may make the server take: fifty times the largest body."""
WORST = 10
STORED_SHAPES = ("wide maps", "long texts", "wide lists", "annotations", "labels")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("cost") / "data") as server:
        yield server
        assert_unharmed(server)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        client.timeout = httpx.Timeout(60.0)
        yield client


@pytest.fixture(scope="module")
def world(server: Server, client: httpx.Client) -> World:
    found = explore(client, server.key)
    furnish(client, found)
    return found


@pytest.fixture(scope="module")
def meter(server: Server, client: httpx.Client, world: World) -> Meter:
    return Meter(server, client)


def judge(costs: list[Cost], capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the worst, and fails if it is too bad."""
    worst = sorted(costs, key=lambda cost: cost.hold, reverse=True)[:WORST]
    greedy = max(costs, key=lambda cost: cost.memory)
    with capsys.disabled():
        print(
            f"\n{len(costs)} requests; the longest holds of the event loop:",
            *worst,
            "the most memory:",
            greedy,
            sep="\n",
        )
    assert [str(cost) for cost in worst if cost.hold > MAX_BLOCKED_SECONDS] == []
    assert greedy.memory < MEMORY_LIMIT, str(greedy)


def test_large_bodies_of_every_shape_and_verb_hold_up_nobody(
    world: World, client: httpx.Client, meter: Meter, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = [meter.measure(case) for case in cases.writes(world, _versions(world, client))]
    assert {cost.case.name.partition(" ")[0] for cost in costs} == set(cases.VERBS)
    judge(costs, capsys)


def _versions(world: World, client: httpx.Client) -> dict[str, str]:
    found: dict[str, str] = {}
    for resource in (each for each in world.resources if each.stored):
        path = f"{resource.collection(NAMESPACES[0] if resource.namespaced else '')}/{cases.NAME}"
        answer = client.get(path)
        found[path] = answer.json()["metadata"]["resourceVersion"] if answer.status_code == 200 else ""
    return found


def test_large_objects_can_be_used_without_holding_up_anybody(
    world: World, client: httpx.Client, meter: Meter, capsys: pytest.CaptureFixture[str]
) -> None:
    costs: list[Cost] = []
    for resource in (each for each in world.resources if each.stored and not each.is_second_form):
        place = NAMESPACES[0] if resource.namespaced else ""
        made = _create_large(resource, place, meter)
        costs += made
        if made[-1].status == 201:
            costs += map(meter.measure, cases.uses(resource, place, resource.example("large", place)))
    assert sum(cost.status == 201 for cost in costs) > len(world.resources) / 2
    judge(costs, capsys)


def _create_large(resource: Resource, place: str, meter: Meter) -> list[Cost]:
    """Tries one shape after the other until the server takes one."""
    costs: list[Cost] = []
    for name in STORED_SHAPES:
        body = SHAPES[name](resource.example("large", place), resource.schema, cases.LARGE)
        if len(body) > cases.LARGE // 2:
            title = f"create {resource.plural}: {name}"
            costs.append(meter.measure(Case(title, "POST", resource.collection(place), body, "application/json")))
            if costs[-1].status == 201:
                break
    return costs


def test_what_is_asked_at_all_other_places_holds_up_nobody(
    world: World, meter: Meter, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = [meter.measure(case) for case in (*cases.below_objects(world), *cases.questions(world))]
    judge(costs, capsys)


def test_a_hold_is_noticed() -> None:
    """The measure itself: what has been seen to hold the loop is told apart from what has not."""
    before = Holds(0.02, {0.01: 5, 0.05: 6, float("inf"): 6})
    assert longest_between(before, Holds(0.02, {0.01: 7, 0.05: 8, float("inf"): 8})) == 0.01
    assert longest_between(before, Holds(0.02, {0.01: 7, 0.05: 9, float("inf"): 9})) == 0.05
    assert longest_between(before, Holds(0.3, {0.01: 7, 0.05: 8, float("inf"): 9})) == 0.3
    assert longest_between(before, before) == 0.0
