"""Bodies that expand, nest or repeat excessively are rejected quickly and with short responses (T-35, T-36)."""

from collections.abc import Callable

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap
from tests.requests.expensive_bodies import BODY_LIMIT, JSON, JSON_BOMBS, REPEATED_FAULTS, YAML, YAML_BOMBS, Body
from tests.requests.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.requests.raw_http import RESPONSE_TIMEOUT_SECONDS
from tests.security.conftest import assert_healthy
from tests.security.rejections import MAX_MEMORY_GROWTH, assert_rejected, get_peak_memory


def send_body(server: Server, media_type: str, body: bytes, query: str = "dryRun=All") -> httpx.Response:
    """Creates or patches an object with the body, depending on its type."""
    is_create = media_type in (JSON, YAML) or "protobuf" in media_type
    with server.client() as client:
        return client.request(
            "POST" if is_create else "PATCH",
            f"{CONFIGMAPS}?{query}" if is_create else f"{CONFIGMAPS}/large-bodies?fieldManager=large-bodies&{query}",
            content=body,
            headers={"Content-Type": media_type},
            timeout=RESPONSE_TIMEOUT_SECONDS,
        )


def reset_peak_memory(server: Server) -> None:
    """Resets the peak."""
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as counters:
        counters.write("5")


@pytest.fixture(autouse=True)
def create_target(shared_server: Server) -> None:
    """Creates the object that the tests patch."""
    with shared_server.client() as client:
        client.post(CONFIGMAPS, json=configmap("large-bodies", a="b"))


@pytest.mark.parametrize("media_type", [YAML, APPLY])
@pytest.mark.parametrize("body", YAML_BOMBS.values(), ids=YAML_BOMBS)
def test_t35_yaml_that_expands_is_rejected(server: Server, body: Callable[[], bytes], media_type: str) -> None:
    before = get_peak_memory(server)
    assert_rejected(send_body(server, media_type, body()), 400, 413)
    assert get_peak_memory(server) - before < MAX_MEMORY_GROWTH


@pytest.mark.parametrize("media_type", [JSON, JSON_PATCH, MERGE, STRATEGIC, APPLY])
@pytest.mark.parametrize("body", JSON_BOMBS.values(), ids=JSON_BOMBS)
def test_t36_json_that_nests_deeply_or_never_ends_is_rejected(
    server: Server, body: Callable[[], bytes], media_type: str
) -> None:
    before = get_peak_memory(server)
    assert_rejected(send_body(server, media_type, body()), 400, 413)
    assert get_peak_memory(server) - before < MAX_MEMORY_GROWTH


@pytest.mark.parametrize("build_body", REPEATED_FAULTS.values(), ids=REPEATED_FAULTS)
def test_t36_a_repeated_fault_gets_a_short_response(expendable_server: Server, build_body: Callable[[], Body]) -> None:
    assert_short_response(expendable_server, *build_body())


@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
@pytest.mark.parametrize("fault", [name for name in REPEATED_FAULTS if "fields" in name])
def test_t36_many_unknown_fields_get_a_short_response(expendable_server: Server, fault: str, validation: str) -> None:
    assert_short_response(expendable_server, *REPEATED_FAULTS[fault](), f"fieldValidation={validation}")


def assert_short_response(server: Server, media_type: str, body: bytes, query: str = "fieldValidation=Warn") -> None:
    """Asserts that the response is short and the server needs little memory."""
    assert len(body) <= BODY_LIMIT
    reset_peak_memory(server)
    before = get_peak_memory(server)
    response = send_body(server, media_type, body, f"dryRun=All&{query}")
    assert response.status_code in (201, 400, 413, 422)
    assert len(response.content) < 256 * 1024
    assert sum(len(name) + len(value) for name, value in response.headers.raw) < 16 * 1024
    assert get_peak_memory(server) - before < MAX_MEMORY_GROWTH
    assert_healthy(server)
