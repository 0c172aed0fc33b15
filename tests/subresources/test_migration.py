"""A virtual cluster moves to another project, or every refusal says why and changes nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.scope import Scope
from fairlead.registry.write_options import DeleteOptions, WriteOptions
from tests.harness.calls import ADMIN
from tests.subresources.migration_fixture import BOB, INSTANCE, PREFIX, TARGETS, Town, new_town, told

ACTION = "projects/migratevirtualclusterinstance"
INSTANCES = "virtualclusterinstances"
Before = Callable[[Town], Coroutine[Any, Any, object]]


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with new_town(tmp_path) as made:
        yield made


async def test_the_instance_is_in_the_other_project_and_the_request_is_echoed(town: Town) -> None:
    before = town.at("a")["v"]
    reply = await town.migrate()
    answer = orjson.loads(reply.body)
    assert (reply.status, answer["metadata"]) == (201, {"creationTimestamp": None})
    assert answer["sourceVirtualClusterInstance"] == {"name": "v", "namespace": "service-p-a"}
    assert answer["kind"] == "ProjectMigrateVirtualClusterInstance"
    after = town.at("b")["v"]
    assert (town.homes(), after["spec"]) == (["b"], before["spec"])
    assert metadata(after)["uid"] != metadata(before)["uid"]


async def test_it_can_come_back(town: Town) -> None:
    await town.migrate()
    assert (await town.migrate("a", "b")).status == 201
    assert town.homes() == ["a"]


async def test_dependants_of_every_kind_move_along(town: Town) -> None:
    secret = await town.own("Secret", "s", town.at("a")["v"], stringData={"k": "v"})
    await town.own("ConfigMap", "c", secret)
    await town.migrate()
    moved = town.at("b")["v"]
    assert get_path(town.at("b", "Secret")["s"], "metadata.ownerReferences")[0]["uid"] == metadata(moved)["uid"]
    assert town.at("b", "Secret")["s"]["data"] == {"k": "dg=="}
    assert (set(town.at("b", "ConfigMap")), town.at("a", "ConfigMap"), town.at("a", "Secret")) == ({"c"}, {}, {})


async def test_the_status_stays_but_for_what_it_says_of_the_old_project(town: Town) -> None:
    kept, lost = ({"type": each, "status": "True"} for each in ("TemplateResolved", "ProjectSecretsSynced"))

    def report(old: Object) -> Object:
        return {**old, "status": {"phase": "Ready", "conditions": [kept, lost]}}

    await town.of(INSTANCE).modify(f"{PREFIX}a", "v", report, WriteOptions(ADMIN, subresource="status"))
    await town.migrate()
    status = town.at("b")["v"]["status"]
    assert (status["phase"], [each["type"] for each in status["conditions"]]) == ("Ready", ["TemplateResolved"])


async def test_a_label_that_names_the_project_names_the_new_one(town: Town) -> None:
    labels = {"service.sh/project": "a", "other": "a"}
    await town.create(INSTANCE, "w", "a", spec={"template": {}}, metadata={"labels": labels})
    await town.migrate(name="w")
    assert town.at("b")["w"]["metadata"]["labels"] == {"service.sh/project": "b", "other": "a"}


async def test_both_projects_have_an_event(town: Town) -> None:
    await town.own("ConfigMap", "c", town.at("a")["v"])
    await town.migrate()
    (away,), (here,) = town.at("a", "Event").values(), town.at("b", "Event").values()
    assert (away["reason"], here["reason"]) == ("MigratedAway", "Migrated")
    assert away["message"] == "moved to project b with 1 dependent objects by admin"
    assert here["message"] == "moved here from project a with 1 dependent objects by admin"
    assert here["involvedObject"]["uid"] == metadata(town.at("b")["v"])["uid"]


async def test_the_audit_log_names_both_projects_also_of_a_refusal(tmp_path: Path) -> None:
    async with new_town(tmp_path) as town:
        await town.migrate("b")
        await town.migrate("c")
    marks = ("service.sh/source-project", "service.sh/target-project")
    found = [
        (each["responseStatus"]["code"], *(each["annotations"].get(mark) for mark in marks))
        for each in town.notebook.events
        if each["stage"] == "ResponseComplete"
    ]
    assert found == [(201, "a", "b"), (404, "a", "c")]


async def test_a_dry_run_answers_alike_and_changes_nothing(town: Town) -> None:
    await town.own("ConfigMap", "c", town.at("a")["v"])
    before = await town.everything()
    rehearsed = await town.migrate(dry=True)
    assert (rehearsed.status, await town.everything()) == (201, before)
    assert (await town.migrate()).body == rehearsed.body


async def nothing(town: Town) -> None:
    return None


async def taken(town: Town) -> None:
    await town.create(INSTANCE, "v", "b", spec={"template": {}})


async def dependant_taken(town: Town) -> None:
    await town.own("ConfigMap", "c", town.at("a")["v"])
    await town.create("ConfigMap", "c", "b")


async def going(town: Town) -> None:
    def hold(old: Object) -> Object:
        return {**old, "metadata": {**old["metadata"], "finalizers": ["x/y"]}}

    await town.of(INSTANCE).modify(f"{PREFIX}a", "v", hold, WriteOptions(ADMIN))
    await town.of(INSTANCE).delete(f"{PREFIX}a", "v", DeleteOptions(), WriteOptions(ADMIN))


async def target_going(town: Town) -> None:
    await town.of("Project").delete("", "b", DeleteOptions(), WriteOptions(ADMIN))


async def source_going(town: Town) -> None:
    await town.of("Project").delete("", "a", DeleteOptions(), WriteOptions(ADMIN))


async def another_cluster(town: Town) -> None:
    await town.change(INSTANCE, "v", "a", clusterRef={"cluster": "berlin"})
    await town.change("Project", "b", allowedClusters=[{"name": "paris"}])


async def another_template(town: Town) -> None:
    await town.create("VirtualClusterTemplate", "small", spec={"template": {}})
    await town.create(INSTANCE, "t", "a", spec={"templateRef": {"name": "small"}})
    await town.change("Project", "b", allowedTemplates=[{"kind": "VirtualClusterTemplate", "name": "large"}])


async def full(town: Town) -> None:
    await town.change("Project", "b", quotas={"project": {INSTANCES: "1"}})
    await town.create(INSTANCE, "other", "b", spec={"template": {}})


REFUSALS: dict[str, tuple[Before, dict[str, str], int, str]] = {
    "no such instance": (nothing, {"name": "w"}, 404, 'virtualclusterinstances.management.service.sh "w" not found'),
    "no such target": (nothing, {"target": "z"}, 404, 'projects.management.service.sh "z" not found'),
    "no such source": (nothing, {"source": "z"}, 404, 'projects.management.service.sh "z" not found'),
    "the same project": (nothing, {"target": "a"}, 400, '"v" is already in project "a"'),
    "the name is taken": (taken, {}, 409, '"v" already exists in the namespace service-p-b; rename or delete'),
    "a dependant's is": (dependant_taken, {}, 409, 'configmaps "c" already exists in the namespace service-p-b, and'),
    "it is going": (going, {}, 409, "it is being deleted and cannot be moved"),
    "the target is going": (target_going, {}, 409, 'service.sh "b": it is being deleted; nothing can be moved'),
    "the source is going": (source_going, {}, 409, 'service.sh "a": it is being deleted; nothing can be moved'),
    "the cluster": (another_cluster, {}, 403, 'project "b" does not allow the cluster "berlin"'),
    "the template": (another_template, {"name": "t"}, 403, 'project "b" does not allow the'),
    "the quota": (full, {}, 403, "exceeded quota: project b"),
}


@pytest.mark.parametrize("dry", [True, False], ids=["rehearsed", "meant"])
@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_says_why_and_changes_nothing(town: Town, case: str, dry: bool) -> None:
    prepare, asked, code, message = REFUSALS[case]
    await prepare(town)
    before = await town.everything()
    answer = told(await town.migrate(**asked, dry=dry))
    assert answer[0] == code
    assert message in answer[1]
    assert await town.everything() == before


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
async def test_a_request_that_names_no_instance_is_invalid(town: Town, source: Any, message: str) -> None:
    code, text = told(await town.ask("b", source))
    assert (code, message in text) == (422, True), text


ACT = ("", ("create",), ACTION)
UPDATE, DELETE, CREATE = ("a", ("update",), INSTANCES), ("a", ("delete",), INSTANCES), ("b", ("create",), INSTANCES)
MAKE_OWNER = ("b", ("makeowner",), INSTANCES)
"""The instance belongs to nobody or to somebody else, so whoever moves it hands it on."""
NEEDED = (ACT, UPDATE, DELETE, CREATE, MAKE_OWNER)


async def test_t5_exactly_these_rights_are_enough(town: Town) -> None:
    for right in NEEDED:
        await town.allow(*right)
    town.user = BOB
    reply = await town.migrate()
    assert reply.status == 201, reply.body


@pytest.mark.parametrize("missing", NEEDED[:4], ids=["the action", "update", "delete", "create"])
async def test_t5_without_any_one_of_them_nothing_happens(town: Town, missing: Any) -> None:
    for right in NEEDED:
        if right is not missing:
            await town.allow(*right)
    before = await town.everything()
    town.user = BOB
    for name in ("v", "nothing-of-that-name"):
        code, text = told(await town.migrate(name=name))
        assert (code, f'User "bob" cannot {missing[1][0]}' in text) == (403, True), text
        assert "not found" not in text
    assert await town.everything() == before


@pytest.mark.parametrize("verbs", [("update",), ("delete",), ()])
async def test_t5_what_depends_on_it_takes_the_same_rights_and_stays_unnamed(
    town: Town, verbs: tuple[str, ...]
) -> None:
    """Otherwise whoever owns an instance could carry off the secrets of a project."""
    for right in NEEDED:
        await town.allow(*right)
    await town.own("Secret", "hidden-name", town.at("a")["v"])
    if verbs:
        await town.allow("a", verbs, "secrets", group="")
    await town.allow("b", ("create",), "secrets", group="")
    before = await town.everything()
    town.user = BOB
    code, text = told(await town.migrate())
    assert (code, "secrets depend on it and would move as well" in text) == (403, True), text
    assert "hidden-name" not in text
    assert await town.everything() == before
    town.user = ADMIN
    await town.allow("a", ("update", "delete"), "secrets", group="")
    town.user = BOB
    assert (await town.migrate()).status == 201


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
async def test_t5_a_key_whose_scope_lacks_one_of_the_projects_migrates_nothing(town: Town, scope: Scope) -> None:
    town.user = replace(ADMIN, scope=scope, key="ci")
    before = await town.everything()
    answers = {told(await town.migrate(name=name))[0] for name in ("v", "nothing-of-that-name")}
    assert answers == {403}
    assert await town.everything() == before


@pytest.mark.parametrize("projects", [("a", "b"), ("*",)])
async def test_t5_a_key_for_both_projects_may(town: Town, projects: tuple[str, ...]) -> None:
    town.user = replace(ADMIN, scope=Scope(projects=projects), key="ci")
    reply = await town.migrate()
    assert reply.status == 201, reply.body


async def test_of_fifty_who_move_one_instance_into_five_projects_exactly_one_wins(town: Town) -> None:
    await town.own("ConfigMap", "c", town.at("a")["v"])
    replies = await asyncio.gather(*(town.migrate(TARGETS[number % 5]) for number in range(50)))
    codes = [reply.status for reply in replies]
    assert codes.count(201) == 1
    assert set(codes) <= {201, 404, 409}
    (home,) = town.homes()
    assert [project for project in ("a", *TARGETS) if town.at(project, "ConfigMap")] == [home]
    assert home == TARGETS[codes.index(201) % 5]
