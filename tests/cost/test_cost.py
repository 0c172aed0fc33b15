"""No request blocks the event loop for too long or takes too much memory, whatever its body.

All requests that `cases.py` builds from discovery and schemas go to one real server, one after the other.
There are no exceptions: a kind or field over the limit needs a bound in its schema, a linear algorithm, or a
thread (`core/concurrency.py`).

The limit applies to the processor time of the loop's thread, not to elapsed time: other load on the machine
makes the test slower, but does not fail it. What remains is a slower processor, and
shared caches. On two cores with eightfold overload, the worst of all
cases is below the limit, and nearly all are below a third of it.
"""

from collections.abc import Iterator

import httpx
import pytest

from fairlead.server.http.event_loop_watchdog import MAX_BLOCKED_SECONDS
from tests.cost import cases
from tests.cost.cases import Case
from tests.cost.measure import Blocks, Cost, Meter, find_longest_between
from tests.harness.server_process import Server, running_server
from tests.requests.api_resources import NAMESPACES, ApiCatalog, Resource, create_objects, discover_api
from tests.requests.shapes import SHAPES
from tests.security.conftest import assert_healthy

MEMORY_LIMIT = 160 * 1024 * 1024
"""Bytes of memory that one request may take: fifty times the largest body."""
SHOWN = 10
STORED_SHAPES = ("wide maps", "long texts", "wide lists", "annotations", "labels")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("cost") / "data") as server:
        yield server
        assert_healthy(server)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        client.timeout = httpx.Timeout(60.0)
        yield client


@pytest.fixture(scope="module")
def catalog(server: Server, client: httpx.Client) -> ApiCatalog:
    result = discover_api(client, server.key)
    create_objects(client, result)
    return result


@pytest.fixture(scope="module")
def meter(server: Server, client: httpx.Client, catalog: ApiCatalog) -> Meter:
    return Meter(server, client)


def assert_within_limits(costs: list[Cost], capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the highest costs, and fails if one is over the limit."""
    longest_blocks = sorted(costs, key=lambda cost: cost.blocked_seconds, reverse=True)[:SHOWN]
    highest_memory = max(costs, key=lambda cost: cost.memory)
    with capsys.disabled():
        print(
            f"\n{len(costs)} requests; the longest blocks of the event loop:",
            *longest_blocks,
            "the most memory:",
            highest_memory,
            sep="\n",
        )
    assert [str(cost) for cost in longest_blocks if cost.blocked_seconds > MAX_BLOCKED_SECONDS] == []
    assert highest_memory.memory < MEMORY_LIMIT, str(highest_memory)


@pytest.mark.timeout(400)
def test_large_bodies_of_every_shape_and_verb_do_not_block_the_loop(
    catalog: ApiCatalog, client: httpx.Client, meter: Meter, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = [meter.measure(case) for case in cases.iter_writes(catalog, _read_versions(catalog, client))]
    assert {cost.case.name.partition(" ")[0] for cost in costs} == set(cases.VERBS)
    assert_within_limits(costs, capsys)


def _read_versions(catalog: ApiCatalog, client: httpx.Client) -> dict[str, str]:
    result: dict[str, str] = {}
    for resource in (each for each in catalog.resources if each.is_stored):
        path = f"{resource.collection_path(NAMESPACES[0] if resource.namespaced else '')}/{cases.NAME}"
        response = client.get(path)
        result[path] = response.json()["metadata"]["resourceVersion"] if response.status_code == 200 else ""
    return result


def test_operations_on_large_objects_do_not_block_the_loop(
    catalog: ApiCatalog, client: httpx.Client, meter: Meter, capsys: pytest.CaptureFixture[str]
) -> None:
    costs: list[Cost] = []
    for resource in (each for each in catalog.resources if each.is_stored and not each.is_alternate_version):
        namespace = NAMESPACES[0] if resource.namespaced else ""
        created = _create_large(resource, namespace, meter)
        costs += created
        if created[-1].status == 201:
            costs += map(
                meter.measure, cases.iter_operations(resource, namespace, resource.build_example("large", namespace))
            )
    assert sum(cost.status == 201 for cost in costs) > len(catalog.resources) / 2
    assert_within_limits(costs, capsys)


def _create_large(resource: Resource, namespace: str, meter: Meter) -> list[Cost]:
    """Tries the shapes one after the other until the server accepts one."""
    costs: list[Cost] = []
    for name in STORED_SHAPES:
        body = SHAPES[name](resource.build_example("large", namespace), resource.schema, cases.LARGE)
        if len(body) > cases.LARGE // 2:
            title = f"create {resource.plural}: {name}"
            costs.append(
                meter.measure(Case(title, "POST", resource.collection_path(namespace), body, "application/json"))
            )
            if costs[-1].status == 201:
                break
    return costs


def test_subresources_and_other_requests_do_not_block_the_loop(
    catalog: ApiCatalog, meter: Meter, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = [
        meter.measure(case) for case in (*cases.iter_subresource_writes(catalog), *cases.iter_other_requests(catalog))
    ]
    assert_within_limits(costs, capsys)


def test_the_longest_block_between_two_measurements_is_found() -> None:
    """Tests the measurement itself."""
    before = Blocks(0.02, {0.01: 5, 0.05: 6, float("inf"): 6})
    assert find_longest_between(before, Blocks(0.02, {0.01: 7, 0.05: 8, float("inf"): 8})) == 0.01
    assert find_longest_between(before, Blocks(0.02, {0.01: 7, 0.05: 9, float("inf"): 9})) == 0.05
    assert find_longest_between(before, Blocks(0.3, {0.01: 7, 0.05: 8, float("inf"): 9})) == 0.3
    assert find_longest_between(before, before) == 0.0
