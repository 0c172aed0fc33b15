"""T-35 and T-36: bodies that unfold, nest or repeat without end are refused, soon and in few words."""

from collections.abc import Callable

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, Server, configmap
from tests.security.conftest import assert_unharmed
from tests.security.expensive_bodies import BODY_LIMIT, FLOODS, JSON, JSON_BOMBS, YAML, YAML_BOMBS, Body
from tests.security.patches import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.security.raw_http import PATIENCE

MEMORY = 512 * 1024 * 1024
"""A tenth of what a small machine has, and a hundred times the largest body."""


def sent(server: Server, media_type: str, body: bytes, query: str = "dryRun=All") -> httpx.Response:
    """The answer to creating or patching with the body, as its type wants it."""
    creating = media_type in (JSON, YAML) or "protobuf" in media_type
    with server.client() as client:
        return client.request(
            "POST" if creating else "PATCH",
            f"{CONFIGMAPS}?{query}" if creating else f"{CONFIGMAPS}/bombed?fieldManager=bomber&{query}",
            content=body,
            headers={"Content-Type": media_type},
            timeout=PATIENCE,
        )


def peak(server: Server) -> int:
    """The most memory that it ever had."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def forget_peak(server: Server) -> None:
    """The most memory from now on."""
    with open(f"/proc/{server.process.pid}/clear_refs", "w") as counters:
        counters.write("5")


def assert_refused(answer: httpx.Response, *codes: int) -> None:
    assert answer.status_code in codes, answer.text[:500]
    status = answer.json()
    assert (status["kind"], status["code"]) == ("Status", answer.status_code)
    assert status["reason"] and status["message"]


@pytest.fixture(autouse=True)
def bombed(shared: Server) -> None:
    """Something to patch."""
    with shared.client() as client:
        client.post(CONFIGMAPS, json=configmap("bombed", a="b"))


@pytest.mark.parametrize("media_type", [YAML, APPLY])
@pytest.mark.parametrize("body", YAML_BOMBS.values(), ids=YAML_BOMBS)
def test_t35_yaml_that_unfolds_is_refused(server: Server, body: Callable[[], bytes], media_type: str) -> None:
    before = peak(server)
    assert_refused(sent(server, media_type, body()), 400, 413)
    assert peak(server) - before < MEMORY


@pytest.mark.parametrize("media_type", [JSON, JSON_PATCH, MERGE, STRATEGIC, APPLY])
@pytest.mark.parametrize("body", JSON_BOMBS.values(), ids=JSON_BOMBS)
def test_t36_json_that_nests_or_never_ends_is_refused(
    server: Server, body: Callable[[], bytes], media_type: str
) -> None:
    before = peak(server)
    assert_refused(sent(server, media_type, body()), 400, 413)
    assert peak(server) - before < MEMORY


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_t36_a_mistake_made_over_and_over_gets_one_short_answer(expendable: Server, flood: Callable[[], Body]) -> None:
    assert_short(expendable, *flood())


@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
@pytest.mark.parametrize("flood", [name for name in FLOODS if "fields" in name])
def test_t36_so_do_fields_that_nobody_knows(expendable: Server, flood: str, validation: str) -> None:
    assert_short(expendable, *FLOODS[flood](), f"fieldValidation={validation}")


def assert_short(server: Server, media_type: str, body: bytes, query: str = "fieldValidation=Warn") -> None:
    """What a client can read and a small machine can hold."""
    assert len(body) <= BODY_LIMIT
    forget_peak(server)
    before = peak(server)
    answer = sent(server, media_type, body, f"dryRun=All&{query}")
    assert answer.status_code in (201, 400, 413, 422)
    assert len(answer.content) < 256 * 1024
    assert sum(len(name) + len(value) for name, value in answer.headers.raw) < 16 * 1024
    assert peak(server) - before < MEMORY
    assert_unharmed(server)
