"""Sleep annotations of spaces and virtual clusters: only the server writes that they are asleep."""

from collections.abc import AsyncIterator

import pytest

from fairlead.admission.sleep import check_delete_after, keep_sleep_state, warn_invalid_sleep
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, open_registry

PREFIX = "sleepmode.service.sh/"
ASLEEP = {f"{PREFIX}sleep-type": "inactivitySleep", f"{PREFIX}sleeping-since": "1789000000"}
kinds = pytest.mark.parametrize("kind", ["SpaceInstance", "VirtualClusterInstance"])


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(keep_sleep_state(GROUP), warn_invalid_sleep(GROUP))) as fixture:
        yield fixture


def annotations(api: RegistryFixture, kind: str) -> Object:
    found: Object = (api.get(kind, "a") or {})["metadata"].get("annotations") or {}
    return found


async def write(api: RegistryFixture, kind: str, notes: Object, options: WriteOptions) -> list[str]:
    """Replaces all annotations. Returns the warnings."""
    await api.patch(kind, "a", lambda each: each["metadata"].update(annotations=dict(notes)), options)
    return list(options.warnings)


@kinds
async def test_users_neither_set_nor_remove_that_it_is_asleep(api: RegistryFixture, kind: str) -> None:
    await api.submit(kind, api.build_object(kind, "a", metadata={"annotations": dict(ASLEEP)}), WriteOptions(ADA))
    assert annotations(api, kind) == {}
    await write(api, kind, ASLEEP, server_write_options())
    warnings = await write(api, kind, {"mine": "x", f"{PREFIX}force": "true"}, WriteOptions(ADA))
    assert annotations(api, kind) == {**ASLEEP, "mine": "x", f"{PREFIX}force": "true"}
    assert len(warnings) == 2
    assert "is set by the server only" in warnings[0]
    assert await write(api, kind, {**ASLEEP, "mine": "y"}, WriteOptions(ADA)) == []
    await write(api, kind, {}, server_write_options())
    assert annotations(api, kind) == {}


@kinds
async def test_policies_that_make_no_sense_get_a_warning_once(api: RegistryFixture, kind: str) -> None:
    options = WriteOptions(ADA)
    bad = {f"{PREFIX}sleep-schedule": "every evening"}
    await api.submit(kind, api.build_object(kind, "a", metadata={"annotations": bad}), options)
    assert [each.partition(":")[0] for each in options.warnings] == [f"{PREFIX}sleep-schedule is ignored"]
    assert annotations(api, kind) == bad
    later = WriteOptions(ADA)
    await api.patch(kind, "a", lambda each: each.update(spec={"displayName": "x"}), later)
    assert list(later.warnings) == []


@kinds
@pytest.mark.parametrize(("hold", "is_ignored"), [("25h", True), ("tomorrow", True), ("2h", False)])
async def test_a_hold_that_is_ignored_gets_a_warning_once(
    api: RegistryFixture, kind: str, hold: str, is_ignored: bool
) -> None:
    now = int(api.registry.clock.now().timestamp())
    until = str(now + 3600 * int(hold[:-1])) if hold.endswith("h") else hold
    options = WriteOptions(ADA)
    body = api.build_object(kind, "a", metadata={"annotations": {f"{PREFIX}hold-until": until}})
    await api.submit(kind, body, options)
    assert [each.partition(":")[0] for each in options.warnings] == [f"{PREFIX}hold-until is ignored"] * is_ignored
    later = WriteOptions(ADA)
    await api.patch(kind, "a", lambda each: each.update(spec={"displayName": "x"}), later)
    assert list(later.warnings) == []


async def test_templates_that_make_no_sense_get_a_warning(api: RegistryFixture) -> None:
    options = WriteOptions(ADA)
    notes = {f"{PREFIX}sleep-after": "an hour"}
    template = {"instanceTemplate": {"metadata": {"annotations": notes}}}
    body = api.build_object("SpaceTemplate", "t", spec={"template": template})
    await api.submit("SpaceTemplate", body, options)
    assert list(options.warnings) == [f"{PREFIX}sleep-after is not a number of seconds: it is ignored"]


@kinds
async def test_who_wakes_it_is_recorded(api: RegistryFixture, kind: str) -> None:
    info = f"{PREFIX}last-activity-info"
    await api.submit(kind, api.build_object(kind, "a"), WriteOptions(ADA))
    await write(api, kind, ASLEEP, server_write_options())
    made_up = {**ASLEEP, f"{PREFIX}last-activity": "1789000001", info: '{"user":"bob"}'}
    await write(api, kind, made_up, WriteOptions(ADA))
    assert '"message":"woken up by ada"' in annotations(api, kind)[info]
    forced = {**ASLEEP, f"{PREFIX}sleep-type": "forcedSleep", f"{PREFIX}force": "true"}
    await write(api, kind, forced, server_write_options())
    await write(api, kind, {**forced, f"{PREFIX}force": "false"}, WriteOptions(ADA))
    assert '"message":"woken up by ada"' in annotations(api, kind)[info]


def may_not_delete(user: User, target: RequestInfo) -> Decision:
    assert (target.verb, target.namespace, target.name) == ("delete", NAMESPACE, "a")
    return Decision(user.name == "ada")


@kinds
async def test_a_shorter_time_until_deletion_needs_the_permission_to_delete(kind: str) -> None:
    name = f"{PREFIX}delete-after"
    bob = User("bob")
    async with open_registry(rules=(check_delete_after(may_not_delete, GROUP),)) as api:
        body = api.build_object(kind, "a", metadata={"annotations": {name: "3600"}})
        await api.submit(kind, body, WriteOptions(bob))
        with pytest.raises(Forbidden, match='User "bob" may not delete it'):
            await write(api, kind, {name: "1"}, WriteOptions(bob))
        await write(api, kind, {name: "3600", "mine": "x"}, WriteOptions(bob))
        await write(api, kind, {name: "7200"}, WriteOptions(bob))
        await write(api, kind, {}, WriteOptions(bob))
        with pytest.raises(Forbidden, match="delete-after"):
            await write(api, kind, {name: "7200"}, WriteOptions(bob))
        await write(api, kind, {name: "1"}, WriteOptions(ADA))
        assert annotations(api, kind) == {name: "1"}
