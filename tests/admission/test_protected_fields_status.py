"""The status that controllers act on: only the server and administrators write it."""

from typing import Any

import pytest

from fairlead.admission.protected_fields import protect_status
from fairlead.controllers.instances.status import TEMPLATE_SYNCED
from fairlead.controllers.workspaces.readiness import READY, RECONCILING, STALLED
from fairlead.controllers.workspaces.scheduling import SCHEDULED
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, deep_copy
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.typed_objects import TEMPLATE_RESOLVED
from fairlead.kinds.instances.workspace import REPORTED_FIELDS, SERVER_CONDITIONS, STATUS
from fairlead.registry.codec import decode
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from fairlead.runner.ssh.actions import SFTP
from fairlead.runner.status import TASK_SUCCEEDED, TEMPLATE_APPLIED
from tests.harness.registry import NAMESPACE, RegistryFixture

KINDS = ["Cluster", "SpaceInstance", "VirtualClusterInstance"]
OWNER = User("ada", ("system:authenticated", "service:user:ada"))
ADMIN = User("root", ("system:masters",))
RUNNER = User("runner", ("service:runners",))


@pytest.fixture
def api_with_rule(api: RegistryFixture) -> RegistryFixture:
    return api.with_rules(protect_status(MANAGEMENT_GROUP))


def namespace_of(kind: str) -> str:
    return "" if kind == "Cluster" else NAMESPACE


def with_failed_phase(obj: Object) -> Object:
    return {**deep_copy(obj), "status": {"phase": "Failed"}}


def with_description(obj: Object) -> Object:
    return {**deep_copy(obj), "spec": {"description": "x"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [OWNER, User("root", ("system:masters",), scope=Scope(projects=("p",)))])
async def test_t7_users_cannot_write_the_status_that_controllers_act_on(
    api_with_rule: RegistryFixture, kind: str, user: User
) -> None:
    await api_with_rule.create(kind, "one", spec={})
    with pytest.raises(Forbidden, match="change its spec instead"):
        await api_with_rule.resource(kind).modify(
            namespace_of(kind), "one", with_failed_phase, WriteOptions(user, subresource="status")
        )
    await api_with_rule.resource(kind).modify(
        namespace_of(kind), "one", deep_copy, WriteOptions(user, subresource="status")
    )
    await api_with_rule.resource(kind).modify(namespace_of(kind), "one", with_description, WriteOptions(user))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("user", [ADMIN, CONTROLLER_USER])
async def test_the_server_and_administrators_write_the_status(
    api_with_rule: RegistryFixture, kind: str, user: User
) -> None:
    await api_with_rule.create(kind, "one", spec={})
    await api_with_rule.resource(kind).modify(
        namespace_of(kind), "one", with_failed_phase, WriteOptions(user, subresource="status")
    )


async def test_the_status_of_workspaces_is_writable(api_with_rule: RegistryFixture) -> None:
    await api_with_rule.create("DevPodWorkspaceInstance", "one", spec={})
    options = WriteOptions(OWNER, subresource="status")
    await api_with_rule.resource("DevPodWorkspaceInstance").modify(NAMESPACE, "one", with_failed_phase, options)


def with_sleeping_phase(obj: Object) -> Object:
    return {**deep_copy(obj), "status": {"phase": "Sleeping"}}


async def test_only_its_runner_reports_that_a_workspace_sleeps(api_with_rule: RegistryFixture) -> None:
    """A sleeping workspace does not count towards the quota of active ones."""
    created = await api_with_rule.create("DevPodWorkspaceInstance", "one", spec={}, status={"phase": "Sleeping"})
    assert (created.get("status") or {}).get("phase") != "Sleeping"
    workspaces = api_with_rule.resource("DevPodWorkspaceInstance")
    with pytest.raises(Forbidden, match="only its runner may report"):
        await workspaces.modify(NAMESPACE, "one", with_sleeping_phase, WriteOptions(OWNER, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", with_failed_phase, WriteOptions(OWNER, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", with_sleeping_phase, WriteOptions(RUNNER, subresource="status"))
    await workspaces.modify(NAMESPACE, "one", with_sleeping_phase, WriteOptions(OWNER, subresource="status"))


# --- what the server has decided about a workspace ------------------------------------------------------------------

REFERENCE = {"valueFrom": {"projectSecretRef": {"name": "secret", "key": "k"}}}
TIME = "2026-01-02T03:04:05Z"


def build_condition(type: str, status: str = "False", **fields: Any) -> Object:
    return {"type": type, "status": status, "reason": "x", "message": "", "lastTransitionTime": TIME, **fields}


DECIDED: Object = {
    "instance": {"workspaceEnv": {"A": {"value": "x-hunter22-y"}}},
    "templateHash": "h",
    "renderedSecrets": {"password": "hunter22"},
    "observedGeneration": 1,
    "phase": "Pending",
    "conditions": [build_condition("Scheduled"), build_condition("TaskSucceeded")],
}
"""A status with a value that is hidden from the runner."""
FORGERIES: dict[str, Object] = {
    "status.instance": {"instance": {"workspaceEnv": {"A": REFERENCE}}},
    "status.templateHash": {"templateHash": "other"},
    "status.renderedSecrets": {"renderedSecrets": {"password": "other"}},
    "status.sleepModeConfig": {"sleepModeConfig": {"spec": {"sleepAfter": 1}}},
    "status.ignoreReconciliation": {"ignoreReconciliation": True},
    "status.observedGeneration": {"observedGeneration": 7},
    "status.clusterRef": {"clusterRef": {"cluster": "other"}},
    "status.resolvedTarget": {"resolvedTarget": {"x": "y"}},
    "status.templateTrust": {"templateTrust": "Trusted"},
    "status.environment": {"environment": {"name": "other", "inline": "{}"}},
}


async def create_decided_workspace(api: RegistryFixture) -> None:
    spec = {"parameters": "password: <hidden>\n", "parameterSecrets": {"password": "hunter22"}}
    await api.create("DevPodWorkspaceInstance", "one", spec=spec)
    workspaces = api.resource("DevPodWorkspaceInstance")
    await workspaces.modify(
        NAMESPACE, "one", lambda old: {**old, "status": deep_copy(DECIDED)}, server_write_options("status")
    )


async def report(api: RegistryFixture, user: User, **status: Any) -> Object:
    """Sends back the status as it is served to the user, with some fields replaced."""

    def edit(served: Object) -> Object:
        return {**deep_copy(served), "status": {**served["status"], **status}}

    workspaces = api.resource("DevPodWorkspaceInstance")
    await workspaces.modify(NAMESPACE, "one", edit, WriteOptions(user, subresource="status"))
    entry = workspaces.get_cached(NAMESPACE, "one")
    assert entry is not None
    stored: Object = decode(entry)["status"]
    return stored


@pytest.mark.parametrize("user", [RUNNER, OWNER], ids=["runner", "owner"])
@pytest.mark.parametrize("field", FORGERIES)
async def test_what_the_server_has_decided_about_a_workspace_is_not_the_runners_to_change(
    api_with_rule: RegistryFixture, user: User, field: str
) -> None:
    await create_decided_workspace(api_with_rule)
    with pytest.raises(Forbidden, match=f"only the server may write {field}; a runner may write activity, "):
        await report(api_with_rule, user, **FORGERIES[field])
    await report(api_with_rule, ADMIN, **FORGERIES[field])


def test_every_field_of_the_status_of_a_workspace_belongs_to_the_server_or_the_runner() -> None:
    decided = {path.removeprefix("status.") for path in FORGERIES}
    assert decided | REPORTED_FIELDS == set(STATUS["properties"])
    assert not decided & REPORTED_FIELDS


@pytest.mark.parametrize("type", sorted(SERVER_CONDITIONS))
async def test_runners_cannot_write_the_conditions_of_the_server(api_with_rule: RegistryFixture, type: str) -> None:
    await create_decided_workspace(api_with_rule)
    others = [each for each in DECIDED["conditions"] if each["type"] != type]
    with pytest.raises(Forbidden, match=f"only the server may write the condition {type} in status.conditions"):
        await report(api_with_rule, RUNNER, conditions=[*others, build_condition(type, "True")])
    await report(api_with_rule, ADMIN, conditions=[*others, build_condition(type, "True")])
    with pytest.raises(Forbidden, match=f"the condition {type}"):
        await report(api_with_rule, RUNNER, conditions=others)


def test_the_conditions_of_the_server_are_those_that_its_controllers_write() -> None:
    assert {SCHEDULED, READY, RECONCILING, STALLED, TEMPLATE_RESOLVED, TEMPLATE_SYNCED} == SERVER_CONDITIONS
    assert not {TASK_SUCCEEDED, TEMPLATE_APPLIED, SFTP} & SERVER_CONDITIONS


async def test_runners_report_their_own_fields_and_conditions(api_with_rule: RegistryFixture) -> None:
    await create_decided_workspace(api_with_rule)
    own = [build_condition(type, "True") for type in (TASK_SUCCEEDED, TEMPLATE_APPLIED, SFTP)]
    fields: Object = {
        **{"phase": "Failed", "reason": "BuildFailed", "message": "m", "lastWorkspaceStatus": "Stopped"},
        **{"usage": {"memory": "1Mi"}, "activity": {"state": "Idle"}, "kubernetes": {"podStatus": {"phase": "Failed"}}},
    }
    stored = await report(api_with_rule, RUNNER, conditions=[*own, build_condition("Scheduled")], **fields)
    assert {name: stored[name] for name in fields} == fields
    assert all(find_condition(stored, each["type"]) == each for each in own)
    kept = ("instance", "templateHash", "renderedSecrets", "observedGeneration")
    assert {name: stored[name] for name in kept} == {name: DECIDED[name] for name in kept}
