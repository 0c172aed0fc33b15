"""The controller that repeats prebuilds, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controllers.workspaces.prebuilds import PrebuildController, find_next_build
from fairlead.core.clock import parse_rfc3339
from fairlead.core.objects import get_path
from fairlead.core.workspaces import UP_ANNOTATION
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.controllers import running_controllers
from tests.harness.registry import RegistryFixture

NAMESPACE, KIND = "builds", "DevPodWorkspaceInstance"
PREBUILD = {"service.sh/prebuild": "true", "service.sh/prebuild-schedule": "0 * * * *"}
HOUR = 3600


@pytest.fixture
async def server(api: RegistryFixture) -> AsyncIterator[RegistryFixture]:
    await api.create("Namespace", NAMESPACE)
    async with running_controllers(api, PrebuildController(api.registry, MANAGEMENT_GROUP)):
        yield api


async def create(api: RegistryFixture, name: str, **annotations: str) -> None:
    await api.create(KIND, name, NAMESPACE, spec={}, metadata={"annotations": annotations})


def read_request(api: RegistryFixture, name: str) -> Any:
    entry = api.resource(KIND).get_cached(NAMESPACE, name)
    assert entry is not None
    return (get_path(decode(entry), "metadata.annotations") or {}).get(UP_ANNOTATION)


async def test_a_prebuild_is_requested_each_time_its_schedule_says_and_other_workspaces_are_not(
    server: RegistryFixture,
) -> None:
    await create(server, "built", **PREBUILD)
    await create(server, "manual", **{"service.sh/prebuild": "true"})
    await create(server, "desk", **{"service.sh/prebuild-schedule": "0 * * * *"})
    requests = set()
    for _ in range(60):
        await asyncio.sleep(HOUR / 20)
        requests.add(read_request(server, "built"))
    times = sorted(parse_rfc3339(each) for each in requests - {None})  # type: ignore[type-var]
    assert len(times) == 3 and all(each is not None and each.minute < 2 for each in times)
    assert (read_request(server, "manual"), read_request(server, "desk")) == (None, None)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({**PREBUILD, UP_ANNOTATION: "2026-01-01T10:20:30.123Z"}, "2026-01-01T11:00:00Z"),
        ({**PREBUILD, UP_ANNOTATION: "now"}, "2026-01-01T09:00:00Z"),
        ({**PREBUILD, "service.sh/prebuild-schedule": "often"}, ""),
        ({"service.sh/prebuild": "true"}, ""),
        ({}, ""),
    ],
)
def test_the_next_build_counts_from_the_last_request(annotations: dict[str, str], expected: str) -> None:
    workspace = {"metadata": {"creationTimestamp": "2026-01-01T08:30:00Z", "annotations": annotations}}
    moment = parse_rfc3339(expected)
    assert find_next_build(workspace) == (int(moment.timestamp()) if moment else 0)
