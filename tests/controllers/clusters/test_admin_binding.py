"""Tests of `fairlead.controllers.clusters.admin_binding`: creating and renaming the binding of administrators."""

import asyncio
from typing import Any, cast

import orjson
import pytest

from fairlead.controllers.clusters.admin_binding import (
    BINDING_NAME,
    BINDINGS_PATH,
    bind_administrators,
    bound_group,
    is_binding_done,
    rename_administrators,
)
from fairlead.controllers.clusters.clusters import ClusterController
from fairlead.controllers.clusters.status import AdministratorsBinding
from fairlead.core.objects import Object
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.conditions import condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.access import Request
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.upstream import Upstream
from tests.controllers.clusters import cluster_fixture
from tests.controllers.clusters.cluster_fixture import IDENTITY_MAPPER, FakeResponse
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

ADMIN_GROUP, FORMER_GROUP = "fairlead:service:admins", "service:admins"
MANAGED_LABELS = {"service.sh/managed": "fairlead"}
SECRET = "canary-of-the-cluster"


class BindingUpstream:
    """A cluster that has one binding, or none, and responds to writes with `write_status`."""

    def __init__(self, existing: Object | int, write_status: int = 200) -> None:
        self.existing, self.write_status = existing, write_status
        self.sent: list[tuple[str, str, Object]] = []

    async def send(self, request: Request) -> FakeResponse:
        if request.method == "GET":
            assert request.target == f"{BINDINGS_PATH}/{BINDING_NAME}"
            if isinstance(self.existing, int):
                return FakeResponse(self.existing, {"kind": "Status", "message": SECRET})
            return FakeResponse(200, self.existing)
        assert isinstance(request.body, bytes)
        self.sent.append((request.method, request.target, orjson.loads(request.body)))
        return FakeResponse(self.write_status, {})

    @property
    def upstream(self) -> Upstream:
        return cast(Upstream, self)


def build_binding(
    *subjects: str | tuple[str, str], role: str = "cluster-admin", labels: Object | None = MANAGED_LABELS
) -> Object:
    """Groups by their names, other subjects as kind and name."""
    pairs = [("Group", subject) if isinstance(subject, str) else subject for subject in subjects]
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": BINDING_NAME, "resourceVersion": "7", "labels": labels},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": kind, "name": name} for kind, name in pairs],
    }


def condition_of_outcome(outcome: AdministratorsBinding | None) -> tuple[str, str] | None:
    assert SECRET not in str(outcome)
    return None if outcome is None else (outcome.condition["status"], outcome.condition["reason"])


@pytest.mark.parametrize(
    ("existing", "write_status", "expected"),
    [
        (404, 201, ("True", "Bound")),
        (404, 403, ("False", "Forbidden")),
        (404, 404, None),
        (403, 201, ("False", "Forbidden")),
        (500, 201, None),
        ({"kind": "Other"}, 201, None),
        (build_binding(ADMIN_GROUP), 403, ("True", "Bound")),
        (build_binding("others", ADMIN_GROUP, labels=None), 403, ("True", "Bound")),
        (build_binding(ADMIN_GROUP, role="view"), 200, ("False", "ForeignBinding")),
        (build_binding("others"), 200, ("False", "ForeignBinding")),
        (build_binding(("User", ADMIN_GROUP)), 200, ("False", "ForeignBinding")),
        # The next one may be that of another server, with another prefix.
        (build_binding(FORMER_GROUP), 200, ("False", "ForeignBinding")),
        (build_binding("a:service:admins"), 200, ("False", "ForeignBinding")),
    ],
)
async def test_administrators_are_bound_if_there_is_no_other_binding(
    existing: Any, write_status: int, expected: tuple[str, str] | None
) -> None:
    upstream = BindingUpstream(existing, write_status)
    assert condition_of_outcome(await bind_administrators(upstream.upstream, IDENTITY_MAPPER)) == expected
    if existing != 404:
        assert upstream.sent == []
        return
    ((method, target, body),) = upstream.sent
    assert (method, target, body["roleRef"]["name"]) == ("POST", BINDINGS_PATH, "cluster-admin")
    assert [subject["name"] for subject in body["subjects"]] == [ADMIN_GROUP]
    assert body["metadata"]["labels"] == MANAGED_LABELS


@pytest.mark.parametrize(
    ("existing", "write_status", "expected", "subjects"),
    [
        (build_binding(FORMER_GROUP), 200, ("True", "Bound"), [("Group", ADMIN_GROUP)]),
        (
            build_binding(FORMER_GROUP, ("User", "bob")),
            200,
            ("True", "Bound"),
            [("User", "bob"), ("Group", ADMIN_GROUP)],
        ),
        (
            build_binding(("User", FORMER_GROUP), FORMER_GROUP),
            200,
            ("True", "Bound"),
            [("User", FORMER_GROUP), ("Group", ADMIN_GROUP)],
        ),
        (build_binding(FORMER_GROUP), 403, ("False", "Forbidden"), [("Group", ADMIN_GROUP)]),
        (build_binding(FORMER_GROUP), 409, None, [("Group", ADMIN_GROUP)]),
        (build_binding(ADMIN_GROUP), 200, ("True", "Bound"), None),
        (404, 201, ("False", "ManagedExternally"), None),
        (403, 200, ("False", "Forbidden"), None),
        (500, 200, None, None),
        (build_binding("others"), 200, ("False", "ManagedExternally"), None),
        (build_binding("a:service:admins"), 200, ("False", "ManagedExternally"), None),
        (build_binding(FORMER_GROUP, role="view"), 200, ("False", "ManagedExternally"), None),
        (build_binding(FORMER_GROUP, labels=None), 200, ("False", "ManagedExternally"), None),
        ({**build_binding(), "subjects": None}, 200, ("False", "ManagedExternally"), None),
        ({**build_binding(), "subjects": "x"}, 200, ("False", "ManagedExternally"), None),
    ],
)
async def test_a_managed_binding_gets_the_new_group_and_others_are_not_changed(
    existing: Any, write_status: int, expected: tuple[str, str] | None, subjects: list[tuple[str, str]] | None
) -> None:
    upstream = BindingUpstream(existing, write_status)
    assert (
        condition_of_outcome(await rename_administrators(upstream.upstream, IDENTITY_MAPPER, FORMER_GROUP)) == expected
    )
    if subjects is None:
        assert upstream.sent == []
        return
    ((method, target, body),) = upstream.sent
    assert (method, target, body["metadata"]["resourceVersion"]) == ("PUT", f"{BINDINGS_PATH}/{BINDING_NAME}", "7")
    assert [(subject["kind"], subject["name"]) for subject in body["subjects"]] == subjects


async def test_a_cluster_that_does_not_respond_has_no_outcome() -> None:
    class SilentUpstream(BindingUpstream):
        async def send(self, request: Request) -> FakeResponse:
            raise Unreachable("no response")

    assert await bind_administrators(SilentUpstream(404).upstream, IDENTITY_MAPPER) is None
    assert await rename_administrators(SilentUpstream(404).upstream, IDENTITY_MAPPER, FORMER_GROUP) is None


async def test_the_bound_group_is_stored_in_its_own_field() -> None:
    outcome = await bind_administrators(BindingUpstream(404, 201).upstream, IDENTITY_MAPPER)
    assert outcome is not None and outcome.group == ADMIN_GROUP
    changed_message = {**outcome.condition, "message": "something else"}
    status: Object = {"conditions": [changed_message], "administratorsGroup": ADMIN_GROUP}
    assert bound_group(status) == ADMIN_GROUP
    assert is_binding_done(status, IDENTITY_MAPPER) and not is_binding_done(status, ClusterIdentityMapper(""))
    assert not is_binding_done({}, IDENTITY_MAPPER)


async def test_a_binding_from_before_there_was_a_prefix_has_the_former_group() -> None:
    assert bound_group({}) == bound_group(None) == FORMER_GROUP
    bound = condition("AdministratorsBound", "True", "Bound", "a former message")
    assert is_binding_done({"conditions": [bound]}, ClusterIdentityMapper("")) and not is_binding_done(
        {"conditions": [bound]}, IDENTITY_MAPPER
    )


async def test_a_binding_that_others_manage_is_not_bound_again() -> None:
    outcome = await rename_administrators(BindingUpstream(404).upstream, IDENTITY_MAPPER, FORMER_GROUP)
    assert outcome is not None and outcome.group == ""
    assert is_binding_done({"conditions": [outcome.condition]}, IDENTITY_MAPPER)
    assert is_binding_done({"conditions": [outcome.condition]}, ClusterIdentityMapper("other:"))


async def test_administrators_bound_with_another_group_name_are_renamed_once(api: RegistryFixture) -> None:
    upstreams, path = cluster_fixture.FakeUpstreams(), f"{BINDINGS_PATH}/{BINDING_NAME}"
    upstreams.by_name["berlin"] = upstream = cluster_fixture.FakeUpstream()
    upstream.responses[BINDINGS_PATH] = (201, {})

    def build_controller(prefix: str) -> ClusterController:
        return ClusterController(
            api.registry, MANAGEMENT_GROUP, NAMESPACE, cast(UpstreamRegistry, upstreams), ClusterIdentityMapper(prefix)
        )

    async with running_controllers(api, build_controller("")):
        await api.create("Cluster", "berlin", spec={"config": cluster_fixture.CONFIG})
        await eventually(lambda: cluster_fixture.condition_status(api, "AdministratorsBound") == ("True", "Bound"))
    upstream.responses[path] = (200, build_binding(FORMER_GROUP))
    upstream.requests.clear()
    async with running_controllers(api, build_controller("fairlead:")):
        await eventually(lambda: cluster_fixture.cluster_status(api)["administratorsGroup"] == ADMIN_GROUP)
        await asyncio.sleep(1_000)
    assert [target for _, target in upstream.requests].count(path) == 2  # a GET and a PUT
    upstream.requests.clear()
    async with running_controllers(api, build_controller("fairlead:")):
        await asyncio.sleep(1_000)
    assert not any(BINDINGS_PATH in target for _, target in upstream.requests)
