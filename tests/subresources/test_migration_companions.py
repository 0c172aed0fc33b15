"""What moves to another project with a virtual cluster: apps, Secrets and what the server has made; what does not."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from fairlead.core.errors import ApiError
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.sleep_mode import SLEEP_TYPE, SLEEPING_SINCE
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.namespace_move import MovedObject
from fairlead.registry.write_options import WriteOptions, server_write_options
from fairlead.subresources.migration_companions import MigrationCompanions
from tests.harness.calls import ADMIN
from tests.subresources.migration_fixture import (
    BOB,
    INSTANCE,
    PREFIX,
    MigrationFixture,
    open_migration,
    status_and_message,
)

APP = "AppInstance"
MEMBERS = [{"kind": "User", "name": "bob", "clusterRole": "user"}]
BOBS: dict[str, Any] = {"owner": {"user": "bob"}}


@pytest.fixture
async def migration(tmp_path: Path) -> AsyncIterator[MigrationFixture]:
    async with open_migration(tmp_path) as fixture:
        await fixture.create("App", "web", spec={"config": {"manifests": "kind: ConfigMap\n"}})
        yield fixture


async def install(migration: MigrationFixture, name: str, target: str = "v", project: str = "a", **spec: Any) -> Object:
    place = {"virtualClusterInstance": {"name": target, "namespace": "inner"}}
    return await migration.create(APP, name, project, spec={"appRef": {"name": "web"}, "target": place, **spec})


async def write_status(migration: MigrationFixture, kind: str, name: str, **status: Any) -> None:
    def edit(old: Object) -> Object:
        return {**old, "status": {**old.get("status", {}), **status}}

    await migration.of(kind).modify(f"{PREFIX}a", name, edit, server_write_options("status"))


async def store_generated_kubeconfig(migration: MigrationFixture) -> None:
    """The Secret that the server writes for a virtual cluster that it has deployed."""
    owner = migration.objects_in("a")["v"]
    reference = {"apiVersion": owner["apiVersion"], "kind": INSTANCE, "name": "v", "uid": metadata(owner)["uid"]}
    meta = {"name": "vc-v", "labels": {"service.sh/managed": "fairlead"}, "ownerReferences": [reference]}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"config": "eA=="}}
    await migration.of("Secret").create(body, f"{PREFIX}a", WriteOptions(CONTROLLER_USER, "tests"))


async def make_bob_owner(migration: MigrationFixture) -> None:
    await migration.create("User", "bob", spec={})
    for project in ("a", "b"):
        await migration.update_spec("Project", project, members=MEMBERS)
    await migration.update_spec(INSTANCE, "v", "a", **BOBS)


async def test_apps_move_along_and_know_their_target(migration: MigrationFixture) -> None:
    uid = metadata(migration.objects_in("a")["v"])["uid"]
    for name in ("one", "two", "new"):
        await install(migration, name)
    for name in ("one", "two"):
        release = {"name": name, "namespace": "inner", "revision": 3}
        await write_status(migration, APP, name, targetUID=uid, release=release)
    await install(migration, "elsewhere", "other")
    reply = await migration.migrate()
    assert reply.status == 201, reply.body
    moved = migration.objects_in("b", APP)
    assert sorted(moved) == ["new", "one", "two"]
    assert sorted(migration.objects_in("a", APP)) == ["elsewhere"]
    after = metadata(migration.objects_in("b")["v"])["uid"]
    assert [get_path(moved[name], "status.targetUID") for name in ("one", "two", "new")] == [after, after, None]
    assert after != uid
    assert get_path(moved["one"], "status.release.revision") == 3


async def test_an_app_of_a_former_virtual_cluster_of_that_name_stays(migration: MigrationFixture) -> None:
    await install(migration, "old")
    await write_status(migration, APP, "old", targetUID="gone")
    await migration.migrate()
    assert (sorted(migration.objects_in("a", APP)), migration.objects_in("b", APP)) == (["old"], {})


@pytest.mark.parametrize("dry_run", [True, False])
async def test_the_response_lists_what_moves_and_what_changes(migration: MigrationFixture, dry_run: bool) -> None:
    await install(migration, "one")
    await store_generated_kubeconfig(migration)
    result = orjson.loads((await migration.migrate(dry_run=dry_run)).body)["result"]
    assert (result["moves"], result["count"]) == (
        [{"kind": INSTANCE, "name": "v"}, {"kind": APP, "name": "one"}, {"kind": "Secret", "name": "vc-v"}],
        3,
    )
    assert 'members of the project "a" lose' in result["changes"][0]


async def test_the_owner_moves_it_with_apps_and_the_kubeconfig_of_the_server(migration: MigrationFixture) -> None:
    """As a member of both projects with the role user, who has no permissions for Secrets."""
    await make_bob_owner(migration)
    await install(migration, "one", **BOBS)
    await store_generated_kubeconfig(migration)
    migration.user = BOB
    reply = await migration.migrate()
    assert reply.status == 201, reply.body
    assert (list(migration.objects_in("b", APP)), list(migration.objects_in("b", "Secret"))) == (["one"], ["vc-v"])
    assert get_path(migration.objects_in("b")["v"], "spec.owner.user") == "bob"


async def test_a_member_of_one_project_only_cannot_move_it(migration: MigrationFixture) -> None:
    await make_bob_owner(migration)
    await migration.update_spec("Project", "b", members=[])
    migration.user = BOB
    assert status_and_message(await migration.migrate())[0] == 403
    assert migration.projects_with() == ["a"]


async def test_apps_of_others_need_permissions_for_them(migration: MigrationFixture) -> None:
    await make_bob_owner(migration)
    await install(migration, "one", owner={"user": "ada"})
    before = await migration.all_records()
    migration.user = BOB
    code, message = status_and_message(await migration.migrate())
    assert code == 403
    assert (
        'appinstances.management.service.sh depend on it and would move as well: User "bob" needs update and delete on '
        'them in the namespace "service-p-a" and create in the namespace "service-p-b"' in message
    )
    assert await migration.all_records() == before
    migration.user = ADMIN
    assert (await migration.migrate()).status == 201


async def import_virtual_cluster(migration: MigrationFixture, secret: str = "theirs", **spec: Any) -> None:
    await migration.create("Secret", "theirs", "a", stringData={"config": "x"})
    await migration.update_spec(INSTANCE, "v", "a", config={"secretName": secret}, **spec)


async def test_the_secret_of_an_imported_one_moves_along(migration: MigrationFixture) -> None:
    await import_virtual_cluster(migration)
    assert (await migration.migrate()).status == 201
    assert (list(migration.objects_in("b", "Secret")), migration.objects_in("a", "Secret")) == (["theirs"], {})


@pytest.mark.parametrize("missing", ["get", "delete", "create"])
async def test_the_secret_of_an_imported_one_needs_permissions_for_it(
    migration: MigrationFixture, missing: str
) -> None:
    await make_bob_owner(migration)
    await import_virtual_cluster(migration)
    for verb, project in (("get", "a"), ("delete", "a"), ("create", "b")):
        if verb != missing:
            await migration.grant(project, (verb,), "secrets", group="")
    migration.user = BOB
    code, message = status_and_message(await migration.migrate())
    assert (code, "secrets" in message) == (403, True)
    assert ('"theirs"' in message) is (missing != "get")
    migration.user = ADMIN
    await migration.grant("b" if missing == "create" else "a", (missing,), "secrets", group="")
    migration.user = BOB
    assert (await migration.migrate()).status == 201


async def test_a_secret_that_is_missing_is_not_found_in_the_other_project(migration: MigrationFixture) -> None:
    """Otherwise a reference to a missing Secret would, after the move, be one to a Secret that bob may not read."""
    await make_bob_owner(migration)
    await import_virtual_cluster(migration, "missing")
    await migration.create("Secret", "missing", "b", stringData={"config": "of another"})
    migration.user = BOB
    code, message = status_and_message(await migration.migrate())
    assert code == 403
    assert 'spec.config names the secret "missing", which does not exist in the namespace "service-p-a"' in message
    migration.user = ADMIN
    await migration.grant("b", ("get",), "secrets", group="")
    migration.user = BOB
    assert (await migration.migrate()).status == 201


async def test_a_secret_that_others_use_cannot_move(migration: MigrationFixture) -> None:
    await import_virtual_cluster(migration)
    await migration.create(INSTANCE, "w", "a", spec={"config": {"secretName": "theirs"}})
    config = {"secretName": "theirs", "secretNamespace": f"{PREFIX}a"}
    await migration.create("Cluster", "berlin", spec={"config": config})
    code, message = status_and_message(await migration.migrate())
    assert code == 409
    assert (
        'also the kubeconfig of VirtualClusterInstance "w", Cluster "berlin"; give each a Secret of its own' in message
    )
    await make_bob_owner(migration)
    await migration.grant("a", ("get", "delete"), "secrets", group="")
    await migration.grant("b", ("create",), "secrets", group="")
    migration.user = BOB
    code, message = status_and_message(await migration.migrate())
    assert "also the kubeconfig of another VirtualClusterInstance, another Cluster" in message


async def test_everything_that_prevents_it_is_said_at_once(migration: MigrationFixture) -> None:
    for name in ("one", "two"):
        await install(migration, name)
    await install(migration, "one", project="b")
    await migration.create(INSTANCE, "v", "b", spec={"template": {}})
    await migration.update_spec("Project", "b", quotas={"project": {"appinstances": "2"}})
    code, message = status_and_message(await migration.migrate(dry_run=True))
    assert code == 409
    assert message.startswith("3 reasons prevent this: (1) virtualclusterinstances")
    assert '"v" already exists in the namespace service-p-b; rename' in message
    assert '"one" already exists in the namespace service-p-b, and an object that moves with "v"' in message
    assert "requested: appinstances=1, used: appinstances=2, limited: appinstances=2" in message


@pytest.mark.parametrize(("limit", "code"), [("1", 403), ("2", 201)])
async def test_apps_that_move_together_count_together(migration: MigrationFixture, limit: str, code: int) -> None:
    await migration.update_spec("Project", "b", quotas={"user": {"appinstances": limit}})
    for name in ("one", "two"):
        await install(migration, name, owner={"user": "ada"})
    reply = await migration.migrate()
    assert reply.status == code, reply.body


@pytest.mark.parametrize(("outcome", "count"), [("Running", 2), ("Succeeded", 0)])
async def test_nothing_moves_while_helm_runs(migration: MigrationFixture, outcome: str, count: int) -> None:
    companions = MigrationCompanions(migration.registry, GROUP)
    status = {"lastAttempt": {"outcome": outcome}}
    objects = [
        MovedObject(migration.of(kind).kind, "v", {"metadata": {"name": "v"}, "status": status})
        for kind in (INSTANCE, APP)
    ]
    found: Sequence[ApiError] = list(companions.find_obstacles(objects, lambda *_: True))
    assert len(found) == count
    assert all(each.code == 409 and "a deployment of it is running; try again" in each.message for each in found)


@pytest.mark.parametrize("field", ["spaceObjects", "virtualClusterObjects"])
@pytest.mark.parametrize("part", ["charts", "apps"])
@pytest.mark.parametrize(("outcome", "code"), [("Running", 409), ("Failed", 201)])
async def test_nothing_moves_while_helm_runs_for_its_template(
    migration: MigrationFixture, field: str, part: str, outcome: str, code: int
) -> None:
    names = {"name": "redis", "release": "redis", "namespace": "inner"}
    states = [{**names, "status": "Deployed"}, {**names, "release": "two", "attempt": {"id": "1", "outcome": outcome}}]
    await write_status(migration, INSTANCE, "v", **{field: {part: states}})
    reply = await migration.migrate()
    assert reply.status == code, reply.body
    if code == 409:
        assert "a deployment of it is running; try again" in status_and_message(reply)[1]


async def bring_to_stage(migration: MigrationFixture, sleep_type: str, stage: str) -> None:
    """The state of a virtual cluster in a cluster, in which the controllers have come so far."""
    sleeps = {SLEEP_TYPE: sleep_type, SLEEPING_SINCE: "1000"} if sleep_type else {}

    def edit(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "annotations": sleeps}}

    await migration.of(INSTANCE).modify(f"{PREFIX}a", "v", edit, WriteOptions(CONTROLLER_USER))
    await migration.update_spec(INSTANCE, "v", "a", clusterRef={"cluster": "berlin", "namespace": "a-v-v"})
    await write_status(migration, INSTANCE, "v", sleep={"stage": stage})


@pytest.mark.parametrize(
    ("sleep_type", "stage", "what"),
    [
        ("inactivitySleep", "", "falling asleep"),
        ("scheduledSleep", "FallingAsleep", "falling asleep"),
        ("forcedSleep", "Starting", "falling asleep"),
        ("", "Asleep", "waking up"),
        ("", "WakingUp", "waking up"),
        ("", "Starting", "waking up"),
    ],
)
async def test_nothing_moves_while_it_falls_asleep_or_wakes_up(
    migration: MigrationFixture, sleep_type: str, stage: str, what: str
) -> None:
    await bring_to_stage(migration, sleep_type, stage)
    for dry_run in (True, False):
        code, message = status_and_message(await migration.migrate(dry_run=dry_run))
        assert code == 409
        assert '"v"' in message and f"it is {what}; try again when it is asleep or awake" in message
    assert migration.projects_with("v") == ["a"]


@pytest.mark.parametrize(("sleep_type", "stage"), [("inactivitySleep", "Asleep"), ("", "")])
async def test_what_sleeps_or_is_awake_moves(migration: MigrationFixture, sleep_type: str, stage: str) -> None:
    await bring_to_stage(migration, sleep_type, stage)
    reply = await migration.migrate()
    assert reply.status == 201, reply.body
    assert migration.projects_with("v") == ["b"]
