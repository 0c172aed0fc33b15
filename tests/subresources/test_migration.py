"""Migration of virtual clusters: an instance moves to another project, or an error says why and nothing changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.scope import Scope
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.sleep_decisions import created_at
from fairlead.domain.sleep_mode import SLEEP_TYPE, SLEEPING_SINCE
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.calls import ADMIN
from tests.subresources.migration_fixture import (
    BOB,
    INSTANCE,
    PREFIX,
    TARGETS,
    MigrationFixture,
    open_migration,
    status_and_message,
)

ACTION = "projects/migratevirtualclusterinstance"
INSTANCES = "virtualclusterinstances"
Prepare = Callable[[MigrationFixture], Coroutine[Any, Any, object]]


@pytest.fixture
async def migration(tmp_path: Path) -> AsyncIterator[MigrationFixture]:
    async with open_migration(tmp_path) as fixture:
        yield fixture


async def test_the_instance_moves_to_the_other_project_and_the_request_is_echoed(migration: MigrationFixture) -> None:
    before = migration.objects_in("a")["v"]
    reply = await migration.migrate()
    body = orjson.loads(reply.body)
    assert (reply.status, body["metadata"]) == (201, {"creationTimestamp": None})
    assert body["sourceVirtualClusterInstance"] == {"name": "v", "namespace": "service-p-a"}
    assert body["kind"] == "ProjectMigrateVirtualClusterInstance"
    after = migration.objects_in("b")["v"]
    assert (migration.projects_with(), after["spec"]) == (["b"], before["spec"])
    assert metadata(after)["uid"] != metadata(before)["uid"]


async def test_an_instance_can_be_moved_back(migration: MigrationFixture) -> None:
    await migration.migrate()
    assert (await migration.migrate("a", "b")).status == 201
    assert migration.projects_with() == ["a"]


async def test_dependents_of_every_kind_move_along(migration: MigrationFixture) -> None:
    secret = await migration.create_dependent("Secret", "s", migration.objects_in("a")["v"], stringData={"k": "v"})
    await migration.create_dependent("ConfigMap", "c", secret)
    await migration.migrate()
    moved = migration.objects_in("b")["v"]
    assert (
        get_path(migration.objects_in("b", "Secret")["s"], "metadata.ownerReferences")[0]["uid"]
        == metadata(moved)["uid"]
    )
    assert migration.objects_in("b", "Secret")["s"]["data"] == {"k": "dg=="}
    assert (
        set(migration.objects_in("b", "ConfigMap")),
        migration.objects_in("a", "ConfigMap"),
        migration.objects_in("a", "Secret"),
    ) == ({"c"}, {}, {})


async def test_the_status_is_kept_without_conditions_of_the_old_project(migration: MigrationFixture) -> None:
    kept_condition, dropped_condition = (
        {"type": each, "status": "True"} for each in ("TemplateResolved", "ProjectSecretsSynced")
    )

    def write_status(old: Object) -> Object:
        return {**old, "status": {"phase": "Ready", "conditions": [kept_condition, dropped_condition]}}

    await migration.of(INSTANCE).modify(f"{PREFIX}a", "v", write_status, WriteOptions(ADMIN, subresource="status"))
    await migration.migrate()
    status = migration.objects_in("b")["v"]["status"]
    assert (status["phase"], [each["type"] for each in status["conditions"]]) == ("Ready", ["TemplateResolved"])


async def test_the_project_label_is_updated(migration: MigrationFixture) -> None:
    labels = {"service.sh/project": "a", "other": "a"}
    await migration.create(INSTANCE, "w", "a", spec={"template": {}}, metadata={"labels": labels})
    await migration.migrate(name="w")
    assert migration.objects_in("b")["w"]["metadata"]["labels"] == {"service.sh/project": "b", "other": "a"}


@pytest.mark.parametrize(("sleep_type", "is_carried_over"), [("inactivitySleep", True), ("forcedDurationSleep", False)])
async def test_what_sleeps_goes_on_to_sleep(
    migration: MigrationFixture, sleep_type: str, is_carried_over: bool
) -> None:
    notes = {SLEEP_TYPE: sleep_type, SLEEPING_SINCE: "1000"}

    def fall_asleep(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "annotations": notes}}

    await migration.of(INSTANCE).modify(f"{PREFIX}a", "v", fall_asleep, WriteOptions(CONTROLLER_USER))
    await migration.migrate()
    moved = migration.objects_in("b")["v"]
    assert metadata(moved)["annotations"][SLEEP_TYPE] == sleep_type
    since = int(metadata(moved)["annotations"][SLEEPING_SINCE])
    assert since == (created_at(moved) if is_carried_over else 1000)


async def test_both_projects_get_an_event(migration: MigrationFixture) -> None:
    await migration.create_dependent("ConfigMap", "c", migration.objects_in("a")["v"])
    await migration.migrate()
    (source_event,), (target_event,) = (
        migration.objects_in("a", "Event").values(),
        migration.objects_in("b", "Event").values(),
    )
    assert (source_event["reason"], target_event["reason"]) == ("MigratedAway", "Migrated")
    assert source_event["message"] == "moved to project b with 1 other objects by admin"
    assert target_event["message"] == "moved here from project a with 1 other objects by admin"
    assert target_event["involvedObject"]["uid"] == metadata(migration.objects_in("b")["v"])["uid"]


async def test_the_audit_log_names_both_projects_of_successes_and_failures(tmp_path: Path) -> None:
    async with open_migration(tmp_path) as migration:
        await migration.migrate("b")
        await migration.migrate("c")
    annotations = ("service.sh/source-project", "service.sh/target-project")
    events = [
        (each["responseStatus"]["code"], *(each["annotations"].get(annotation) for annotation in annotations))
        for each in migration.audit_log.events
        if each["stage"] == "ResponseComplete"
    ]
    assert events == [(201, "a", "b"), (404, "a", "c")]


async def test_a_dry_run_gets_the_same_reply_and_changes_nothing(migration: MigrationFixture) -> None:
    await migration.create_dependent("ConfigMap", "c", migration.objects_in("a")["v"])
    before = await migration.all_records()
    dry_run_reply = await migration.migrate(dry_run=True)
    assert (dry_run_reply.status, await migration.all_records()) == (201, before)
    assert (await migration.migrate()).body == dry_run_reply.body


async def prepare_nothing(migration: MigrationFixture) -> None:
    return None


async def create_same_name(migration: MigrationFixture) -> None:
    await migration.create(INSTANCE, "v", "b", spec={"template": {}})


async def create_same_dependent(migration: MigrationFixture) -> None:
    await migration.create_dependent("ConfigMap", "c", migration.objects_in("a")["v"])
    await migration.create("ConfigMap", "c", "b")


async def terminate_instance(migration: MigrationFixture) -> None:
    def add_finalizer(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "finalizers": ["x/y"]}}

    await migration.of(INSTANCE).modify(f"{PREFIX}a", "v", add_finalizer, WriteOptions(ADMIN))
    await migration.of(INSTANCE).delete(f"{PREFIX}a", "v", DeleteOptions(), WriteOptions(ADMIN))


async def terminate_target(migration: MigrationFixture) -> None:
    await migration.of("Project").delete("", "b", DeleteOptions(), WriteOptions(ADMIN))


async def terminate_source(migration: MigrationFixture) -> None:
    await migration.of("Project").delete("", "a", DeleteOptions(), WriteOptions(ADMIN))


async def allow_other_cluster(migration: MigrationFixture) -> None:
    await migration.update_spec(INSTANCE, "v", "a", clusterRef={"cluster": "berlin"})
    await migration.update_spec("Project", "b", allowedClusters=[{"name": "paris"}])


async def allow_other_template(migration: MigrationFixture) -> None:
    await migration.create("VirtualClusterTemplate", "small", spec={"template": {}})
    await migration.create(INSTANCE, "t", "a", spec={"templateRef": {"name": "small"}})
    await migration.update_spec("Project", "b", allowedTemplates=[{"kind": "VirtualClusterTemplate", "name": "large"}])


async def exhaust_quota(migration: MigrationFixture) -> None:
    await migration.update_spec("Project", "b", quotas={"project": {INSTANCES: "1"}})
    await migration.create(INSTANCE, "other", "b", spec={"template": {}})


REJECTIONS: dict[str, tuple[Prepare, dict[str, str], int, str]] = {
    "no such instance": (
        prepare_nothing,
        {"name": "w"},
        404,
        'virtualclusterinstances.management.service.sh "w" not found',
    ),
    "no such target": (prepare_nothing, {"target": "z"}, 404, 'projects.management.service.sh "z" not found'),
    "no such source": (prepare_nothing, {"source": "z"}, 404, 'projects.management.service.sh "z" not found'),
    "the same project": (prepare_nothing, {"target": "a"}, 400, '"v" is already in project "a"'),
    "the name exists": (create_same_name, {}, 409, '"v" already exists in the namespace service-p-b; rename or delete'),
    "the name of a dependent exists": (
        create_same_dependent,
        {},
        409,
        'configmaps "c" already exists in the namespace service-p-b, and',
    ),
    "the instance is terminating": (terminate_instance, {}, 409, "it is being deleted and cannot be moved"),
    "the target is terminating": (
        terminate_target,
        {},
        409,
        'service.sh "b": it is being deleted; nothing can be moved',
    ),
    "the source is terminating": (
        terminate_source,
        {},
        409,
        'service.sh "a": it is being deleted; nothing can be moved',
    ),
    "a cluster that is not allowed": (allow_other_cluster, {}, 403, 'project "b" does not allow the cluster "berlin"'),
    "a template that is not allowed": (allow_other_template, {"name": "t"}, 403, 'project "b" does not allow the'),
    "an exceeded quota": (exhaust_quota, {}, 403, "exceeded quota: project b"),
}


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry run", "migration"])
@pytest.mark.parametrize("case", REJECTIONS)
async def test_a_rejected_migration_says_why_and_changes_nothing(
    migration: MigrationFixture, case: str, dry_run: bool
) -> None:
    prepare, arguments, code, message = REJECTIONS[case]
    await prepare(migration)
    before = await migration.all_records()
    reply = status_and_message(await migration.migrate(**arguments, dry_run=dry_run))
    assert reply[0] == code
    assert message in reply[1]
    assert await migration.all_records() == before


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            None,
            "sourceVirtualClusterInstance: Required value: set the name and namespace of the virtual cluster to move",
        ),
        ({}, "sourceVirtualClusterInstance.namespace: Required value"),
        ({"name": "", "namespace": "service-p-a"}, "sourceVirtualClusterInstance.name: Required value"),
        ({"name": "v", "namespace": ""}, "sourceVirtualClusterInstance.namespace: Required value"),
        ({"name": "v", "namespace": "default"}, "must be the namespace of a project: service-p-<project>"),
        ({"name": "v", "namespace": "service-p-"}, "must be the namespace of a project"),
        ({"name": 7, "namespace": "service-p-a"}, "sourceVirtualClusterInstance.name"),
        ("v", "sourceVirtualClusterInstance"),
    ],
)
async def test_a_request_without_a_valid_instance_is_invalid(
    migration: MigrationFixture, source: Any, message: str
) -> None:
    code, text = status_and_message(await migration.send_migration("b", source))
    assert (code, message in text) == (422, True), text


CALL_ACTION = ("", ("create",), ACTION)
UPDATE, DELETE, CREATE = ("a", ("update",), INSTANCES), ("a", ("delete",), INSTANCES), ("b", ("create",), INSTANCES)
MAKE_OWNER = ("b", ("makeowner",), INSTANCES)
"""The instance has no owner or another owner, so moving it requires permission to set the owner."""
REQUIRED_GRANTS = (CALL_ACTION, UPDATE, DELETE, CREATE, MAKE_OWNER)


async def test_t5_the_required_permissions_are_sufficient(migration: MigrationFixture) -> None:
    for grant in REQUIRED_GRANTS:
        await migration.grant(*grant)
    migration.user = BOB
    reply = await migration.migrate()
    assert reply.status == 201, reply.body


@pytest.mark.parametrize("missing", REQUIRED_GRANTS[:4], ids=["the action", "update", "delete", "create"])
async def test_t5_each_of_the_permissions_is_required(migration: MigrationFixture, missing: Any) -> None:
    for grant in REQUIRED_GRANTS:
        if grant is not missing:
            await migration.grant(*grant)
    before = await migration.all_records()
    migration.user = BOB
    for name in ("v", "missing"):
        code, text = status_and_message(await migration.migrate(name=name))
        assert (code, f'User "bob" cannot {missing[1][0]}' in text) == (403, True), text
        assert "not found" not in text
    assert await migration.all_records() == before


@pytest.mark.parametrize("verbs", [("update",), ("delete",), ()])
async def test_t5_dependents_require_the_same_permissions_and_are_not_named(
    migration: MigrationFixture, verbs: tuple[str, ...]
) -> None:
    """Otherwise the owner of an instance could move the Secrets of a project."""
    for grant in REQUIRED_GRANTS:
        await migration.grant(*grant)
    await migration.create_dependent("Secret", "hidden-name", migration.objects_in("a")["v"])
    if verbs:
        await migration.grant("a", verbs, "secrets", group="")
    await migration.grant("b", ("create",), "secrets", group="")
    before = await migration.all_records()
    migration.user = BOB
    code, text = status_and_message(await migration.migrate())
    assert (code, "secrets depend on it and would move as well" in text) == (403, True), text
    assert "hidden-name" not in text
    assert await migration.all_records() == before
    migration.user = ADMIN
    await migration.grant("a", ("update", "delete"), "secrets", group="")
    migration.user = BOB
    assert (await migration.migrate()).status == 201


@pytest.mark.parametrize(
    "scope",
    [
        Scope(),
        Scope(projects=("a",)),
        Scope(projects=("b",)),
        Scope(projects=("b", "c")),
        Scope(projects=("b",), virtual_clusters=(("a", "w"),)),
        Scope(virtual_clusters=(("a", "*"), ("b", "*"))),
    ],
)
async def test_t5_a_scope_without_one_of_the_projects_forbids_the_migration(
    migration: MigrationFixture, scope: Scope
) -> None:
    migration.user = replace(ADMIN, scope=scope, key="ci")
    before = await migration.all_records()
    codes = {status_and_message(await migration.migrate(name=name))[0] for name in ("v", "missing")}
    assert codes == {403}
    assert await migration.all_records() == before


@pytest.mark.parametrize("projects", [("a", "b"), ("*",)])
async def test_t5_a_scope_with_both_projects_allows_the_migration(
    migration: MigrationFixture, projects: tuple[str, ...]
) -> None:
    migration.user = replace(ADMIN, scope=Scope(projects=projects), key="ci")
    reply = await migration.migrate()
    assert reply.status == 201, reply.body


async def test_of_fifty_concurrent_migrations_exactly_one_succeeds(migration: MigrationFixture) -> None:
    await migration.create_dependent("ConfigMap", "c", migration.objects_in("a")["v"])
    replies = await asyncio.gather(*(migration.migrate(TARGETS[number % 5]) for number in range(50)))
    codes = [reply.status for reply in replies]
    assert codes.count(201) == 1
    assert set(codes) <= {201, 404, 409}
    (destination,) = migration.projects_with()
    assert [project for project in ("a", *TARGETS) if migration.objects_in(project, "ConfigMap")] == [destination]
    assert destination == TARGETS[codes.index(201) % 5]
