"""The binding of administrators in a cluster: made where there is none, renamed where it is ours, else left alone."""

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
from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.core.objects import Object
from fairlead.registry.conditions import condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.access import Request
from fairlead.upstream.clusters import UpstreamRegistry
from fairlead.upstream.errors import Unreachable
from fairlead.upstream.upstream import Upstream
from tests.controllers.clusters import cluster_fixture
from tests.controllers.clusters.cluster_fixture import NAMES, Answer
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

GROUP, FORMER = "fairlead:service:admins", "service:admins"
OURS = {"service.sh/managed": "fairlead"}
SECRET = "canary-of-the-far-side"


class Far:
    """A cluster that has one binding, or none, and says `written` to whoever writes."""

    def __init__(self, found: Object | int, written: int = 200) -> None:
        self.found, self.written = found, written
        self.sent: list[tuple[str, str, Object]] = []

    async def send(self, request: Request) -> Answer:
        if request.method == "GET":
            assert request.target == f"{BINDINGS_PATH}/{BINDING_NAME}"
            if isinstance(self.found, int):
                return Answer(self.found, {"kind": "Status", "message": SECRET})
            return Answer(200, self.found)
        assert isinstance(request.body, bytes)
        self.sent.append((request.method, request.target, orjson.loads(request.body)))
        return Answer(self.written, {})

    @property
    def upstream(self) -> Upstream:
        return cast(Upstream, self)


def binding(*subjects: str | tuple[str, str], role: str = "cluster-admin", labels: Object | None = OURS) -> Object:
    """Groups by their names, other subjects as kind and name."""
    named = [("Group", each) if isinstance(each, str) else each for each in subjects]
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": BINDING_NAME, "resourceVersion": "7", "labels": labels},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": kind, "name": name} for kind, name in named],
    }


def told(outcome: AdministratorsBinding | None) -> tuple[str, str] | None:
    assert SECRET not in str(outcome)
    return None if outcome is None else (outcome.condition["status"], outcome.condition["reason"])


@pytest.mark.parametrize(
    ("found", "written", "outcome"),
    [
        (404, 201, ("True", "Bound")),
        (404, 403, ("False", "Forbidden")),
        (404, 404, None),
        (403, 201, ("False", "Forbidden")),
        (500, 201, None),
        ({"kind": "Other"}, 201, None),
        (binding(GROUP), 403, ("True", "Bound")),
        (binding("others", GROUP, labels=None), 403, ("True", "Bound")),
        (binding(GROUP, role="view"), 200, ("False", "ForeignBinding")),
        (binding("others"), 200, ("False", "ForeignBinding")),
        (binding(("User", GROUP)), 200, ("False", "ForeignBinding")),
        (binding(FORMER), 200, ("False", "ForeignBinding")),  # perhaps another server's, with another prefix
        (binding("a:service:admins"), 200, ("False", "ForeignBinding")),
    ],
)
async def test_administrators_are_bound_where_that_is_possible_and_free(
    found: Any, written: int, outcome: tuple[str, str] | None
) -> None:
    far = Far(found, written)
    assert told(await bind_administrators(far.upstream, NAMES)) == outcome
    if found != 404:
        assert far.sent == []
        return
    ((method, target, body),) = far.sent
    assert (method, target, body["roleRef"]["name"]) == ("POST", BINDINGS_PATH, "cluster-admin")
    assert [each["name"] for each in body["subjects"]] == [GROUP] and body["metadata"]["labels"] == OURS


@pytest.mark.parametrize(
    ("found", "written", "outcome", "subjects"),
    [
        (binding(FORMER), 200, ("True", "Bound"), [("Group", GROUP)]),
        (binding(FORMER, ("User", "bob")), 200, ("True", "Bound"), [("User", "bob"), ("Group", GROUP)]),
        (binding(("User", FORMER), FORMER), 200, ("True", "Bound"), [("User", FORMER), ("Group", GROUP)]),
        (binding(FORMER), 403, ("False", "Forbidden"), [("Group", GROUP)]),
        (binding(FORMER), 409, None, [("Group", GROUP)]),
        (binding(GROUP), 200, ("True", "Bound"), None),
        (404, 201, ("False", "ManagedExternally"), None),
        (403, 200, ("False", "Forbidden"), None),
        (500, 200, None, None),
        (binding("others"), 200, ("False", "ManagedExternally"), None),
        (binding("a:service:admins"), 200, ("False", "ManagedExternally"), None),
        (binding(FORMER, role="view"), 200, ("False", "ManagedExternally"), None),
        (binding(FORMER, labels=None), 200, ("False", "ManagedExternally"), None),
        ({**binding(), "subjects": None}, 200, ("False", "ManagedExternally"), None),
        ({**binding(), "subjects": "x"}, 200, ("False", "ManagedExternally"), None),
    ],
)
async def test_a_binding_of_ours_follows_the_name_and_any_other_is_left_alone(
    found: Any, written: int, outcome: tuple[str, str] | None, subjects: list[tuple[str, str]] | None
) -> None:
    far = Far(found, written)
    assert told(await rename_administrators(far.upstream, NAMES, FORMER)) == outcome
    if subjects is None:
        assert far.sent == []
        return
    ((method, target, body),) = far.sent
    assert (method, target, body["metadata"]["resourceVersion"]) == ("PUT", f"{BINDINGS_PATH}/{BINDING_NAME}", "7")
    assert [(each["kind"], each["name"]) for each in body["subjects"]] == subjects


async def test_a_cluster_that_does_not_answer_says_nothing() -> None:
    class Silent(Far):
        async def send(self, request: Request) -> Answer:
            raise Unreachable("nobody answers")

    assert await bind_administrators(Silent(404).upstream, NAMES) is None
    assert await rename_administrators(Silent(404).upstream, NAMES, FORMER) is None


async def test_the_group_that_was_bound_is_noted_in_a_field_of_its_own() -> None:
    outcome = await bind_administrators(Far(404, 201).upstream, NAMES)
    assert outcome is not None and outcome.group == GROUP
    reworded = {**outcome.condition, "message": "something else"}
    status: Object = {"conditions": [reworded], "administratorsGroup": GROUP}
    assert bound_group(status) == GROUP
    assert is_binding_done(status, NAMES) and not is_binding_done(status, ClusterIdentityMapper(""))
    assert not is_binding_done({}, NAMES)


async def test_what_was_bound_before_there_was_a_prefix_had_none() -> None:
    assert bound_group({}) == bound_group(None) == FORMER
    bound = condition("AdministratorsBound", "True", "Bound", "as it was said once")
    assert is_binding_done({"conditions": [bound]}, ClusterIdentityMapper("")) and not is_binding_done(
        {"conditions": [bound]}, NAMES
    )


async def test_what_was_left_alone_stays_so() -> None:
    outcome = await rename_administrators(Far(404).upstream, NAMES, FORMER)
    assert outcome is not None and outcome.group == ""
    assert is_binding_done({"conditions": [outcome.condition]}, NAMES)
    assert is_binding_done({"conditions": [outcome.condition]}, ClusterIdentityMapper("other:"))


async def test_administrators_who_were_bound_by_another_name_are_renamed_once(api: RegistryFixture) -> None:
    reach, path = cluster_fixture.Reach(), f"{BINDINGS_PATH}/{BINDING_NAME}"
    reach.far["berlin"] = far = cluster_fixture.Far()
    far.answers[BINDINGS_PATH] = (201, {})

    def controller(prefix: str) -> ClusterController:
        return ClusterController(
            api.registry, MANAGEMENT_GROUP, NAMESPACE, cast(UpstreamRegistry, reach), ClusterIdentityMapper(prefix)
        )

    async with running_controllers(api, controller("")):
        await api.create("Cluster", "berlin", spec={"config": cluster_fixture.CONFIG})
        await eventually(lambda: cluster_fixture.state(api, "AdministratorsBound") == ("True", "Bound"))
    far.answers[path] = (200, binding(FORMER))
    far.asked.clear()
    async with running_controllers(api, controller("fairlead:")):
        await eventually(lambda: cluster_fixture.status(api)["administratorsGroup"] == GROUP)
        await asyncio.sleep(1_000)
    assert [target for _, target in far.asked].count(path) == 2  # a GET and a PUT
    far.asked.clear()
    async with running_controllers(api, controller("fairlead:")):
        await asyncio.sleep(1_000)
    assert not any(BINDINGS_PATH in target for _, target in far.asked)
