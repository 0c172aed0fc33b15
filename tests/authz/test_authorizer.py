"""Lists and watches cut down to what the asker may get, and refused to those who have no part in it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import orjson
import pytest

from fairlead.authz.authorizer import AuthorizerChain, ListFilter, ScopeChecks, administrators
from fairlead.authz.ownership import OwnerAuthorizer
from fairlead.authz.scope import ScopeNaming, build_scope_checks
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.errors import Expired
from fairlead.core.objects import Object
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.list import ListQuery, list_entries
from fairlead.registry.selectors import EVERYTHING
from fairlead.registry.watch import WatchSession
from tests.harness.registry import RegistryFixture
from tests.harness.users import ALICE, BOB, CAROL

LIST = RequestInfo("list", "", "management", MANAGEMENT_GROUP, "v1", "apps")
MINE = {"owner": {"user": "alice"}}


def named(*names: str) -> Object:
    """The part of a rule that is about apps of these names."""
    return {"resources": [{"group": MANAGEMENT_GROUP, "resources": ["apps"]}], "resourceNames": list(names)}


class Switch:
    """A general authorizer that allows what it is told to, and can be told otherwise."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.allowed = set(allowed)
        self.turned = 0

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        return Decision(True, "switched on") if (user.name, target.name) in self.allowed else None

    def turn(self, *allowed: tuple[str, str]) -> None:
        self.allowed = set(allowed)
        self.turned += 1


def permissions(
    api: RegistryFixture, switch: Switch, touches: Callable[[User, RequestInfo], bool] = lambda user, target: True
) -> AuthorizerChain:
    scoping = ScopeChecks(lambda user, target: None, lambda user, target: True, touches)
    return AuthorizerChain(
        (switch,), (OwnerAuthorizer(api.registry.catalog, api.view),), scoping, (lambda: switch.turned,)
    )


def seen(cut: ListFilter | None, api: RegistryFixture) -> list[str]:
    assert cut is not None
    return [entry.key[3] for entry in api.view.entries(MANAGEMENT_GROUP, "apps") if cut.allows(entry)]


async def test_who_has_a_part_in_it_sees_all_that_it_may_get(api: RegistryFixture) -> None:
    for name, spec in (("a", MINE), ("b", {}), ("c", {})):
        await api.create("App", name, spec=spec)
    may = permissions(api, Switch(("alice", "b")))
    assert not may.authorize(ALICE, LIST).allowed
    assert seen(may.filter_for(ALICE, LIST), api) == ["a", "b"]


async def test_who_has_no_part_in_it_stays_refused(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    may = permissions(api, Switch(("carol", "a")))
    assert may.filter_for(BOB, LIST) is None
    assert may.filter_for(CAROL, LIST) is None, "the right to one name is no part in the list, as in Kubernetes"


@pytest.mark.parametrize("verb", ["get", "create", "deletecollection", "update"])
async def test_only_lists_and_watches_are_cut(api: RegistryFixture, verb: str) -> None:
    await api.create("App", "a", spec=MINE)
    assert (
        permissions(api, Switch()).filter_for(ALICE, RequestInfo(verb, "", "", MANAGEMENT_GROUP, "v1", "apps")) is None
    )


async def test_a_scope_cuts_what_its_owner_may_list(api: RegistryFixture) -> None:
    await api.create("App", "a", spec={})
    everything = Switch(("root", ""), ("root", "a"))
    scoped = User("root", scope=Scope())

    assert seen(permissions(api, everything).filter_for(scoped, LIST), api) == ["a"]
    assert permissions(api, everything, lambda user, target: False).filter_for(scoped, LIST) is None
    assert permissions(api, Switch(("root", "a"))).filter_for(scoped, LIST) is None, "its owner may not list either"


@pytest.mark.parametrize(
    ("rules", "verb", "expected"),
    [
        ([{"verbs": ["get"]}], "list", None),
        ([{"verbs": ["get"]}], "watch", None),
        ([{"verbs": ["get", "watch"]}], "list", None),
        ([{"verbs": ["get"]}, {"verbs": ["list"], **named("a")}], "list", ["a"]),
        ([{"verbs": ["get"]}, {"verbs": ["list"], **named("a")}], "watch", None),
        ([{"verbs": ["list"], **named("a")}], "list", ["a"]),
        ([{"verbs": ["watch"], **named("b", "c")}], "watch", ["b", "c"]),
        ([{"verbs": ["get"], **named("a")}], "list", None),
        ([{**named("a", "c")}], "list", ["a", "c"]),
    ],
)
async def test_a_rule_of_a_scope_shows_in_a_list_what_it_lets_be_listed(
    api: RegistryFixture, rules: list[Object], verb: str, expected: list[str] | None
) -> None:
    """The owner may do everything; what `get` alone allows is in no list."""
    for name in ("a", "b", "c"):
        await api.create("App", name, spec={})
    names = ScopeNaming.from_catalog(api.registry.catalog, MANAGEMENT_GROUP, "p-")
    may = AuthorizerChain(
        (administrators,), (OwnerAuthorizer(api.registry.catalog, api.view),), build_scope_checks(names)
    )
    scoped = User("root", ("system:masters",), scope=Scope.parse({"rules": rules}))
    target = replace(LIST, verb=verb)
    cut = may.filter_for(scoped, target)
    assert not may.authorize(scoped, target).allowed
    assert (cut and seen(cut, api)) == expected
    for name in ("a", "b", "c"):
        alone = may.authorize(scoped, replace(target, name=name)).allowed
        assert alone == (name in (expected or ())), "a list of one name takes the same"


async def test_what_is_shared_with_the_owner_is_in_no_list_of_a_key_that_may_only_get(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    names = ScopeNaming.from_catalog(api.registry.catalog, MANAGEMENT_GROUP, "p-")
    may = AuthorizerChain((), (OwnerAuthorizer(api.registry.catalog, api.view),), build_scope_checks(names))
    key = replace(ALICE, scope=Scope.parse({"rules": [{"verbs": ["get"]}]}))
    for verb, name in product(("list", "watch"), ("", "a")):
        assert may.filter_for(key, replace(LIST, verb=verb, name=name)) is None
    assert may.authorize(key, replace(LIST, verb="get", name="a")).allowed


async def test_one_object_by_its_name_is_listed_for_whom_it_is(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    named = replace(LIST, name="a")
    may = permissions(api, Switch(("carol", "b")))
    assert may.filter_for(ALICE, named) is not None
    assert may.filter_for(BOB, named) is None
    assert may.filter_for(ALICE, replace(LIST, name="missing")) is None
    assert may.filter_for(CAROL, replace(LIST, name="b")) is None, "what roles allow, they allow themselves"


async def test_an_old_snapshot_shows_nothing_that_is_not_for_the_asker_today(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    await api.create("App", "b", spec=MINE)
    then = api.view.revision
    await api.patch("App", "b", lambda app: app["spec"].update(owner={"user": "bob"}))
    await api.patch("App", "a", lambda app: app["spec"].update(displayName="x"))
    cut = permissions(api, Switch()).filter_for(ALICE, LIST)
    assert cut is not None
    query = ListQuery(version=then, exact=True, is_visible=cut.allows)
    listed = await list_entries(api.view, api.of("App").kind, "", query)
    assert [entry.key[3] for entry in listed.entries] == ["a"]


# --- watches ---


async def feed(api: RegistryFixture, switch: Switch, user: User = ALICE) -> WatchSession:
    cut = permissions(api, switch).filter_for(user, LIST)
    kind = api.of("App").kind
    made = WatchSession(api.view, kind, "", EVERYTHING, 100, cut)
    _ = [events async for events in made.initial_objects()]
    return made


async def told(feed: WatchSession) -> list[str]:
    events = feed.poll()
    if feed.is_visibility_check_due:
        await feed.check_visibility()
    return [f"{event.type} {orjson.loads(event.body)['metadata']['name']}" for event in events]


async def test_an_object_that_is_shared_later_is_added_and_taken_away_when_no_longer(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    await api.create("App", "b", spec={})
    watch = await feed(api, Switch())
    access = [{"users": ["alice"], "verbs": ["get"]}]
    await api.patch("App", "b", lambda app: app["spec"].update(access=access))
    assert await told(watch) == ["ADDED b"]
    await api.patch("App", "b", lambda app: app["spec"].update(displayName="x"))
    await api.patch("App", "b", lambda app: app["spec"].update(access=[]))
    assert await told(watch) == ["MODIFIED b", "DELETED b"]
    await api.patch("App", "b", lambda app: app["spec"].update(displayName="secret"))
    assert await told(watch) == []


async def test_a_change_of_permissions_that_shows_another_picture_ends_the_watch(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    await api.create("App", "b", spec={})
    switch = Switch()
    watch = await feed(api, switch)
    switch.turn(("alice", "b"))
    with pytest.raises(Expired):
        await told(watch)


async def test_a_change_of_permissions_that_changes_nothing_for_the_watcher_does_not(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    switch = Switch()
    watch = await feed(api, switch)
    switch.turn(("bob", "a"))
    await api.create("App", "b", spec={})
    await api.create("App", "c", spec=MINE)
    assert await told(watch) == ["ADDED c"]
    await api.delete("App", "c")
    switch.turn()
    assert await told(watch) == ["DELETED c"]


async def test_an_object_lost_to_permissions_and_changed_since_is_taken_away(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    await api.create("App", "b", spec={})
    switch = Switch(("alice", "b"))
    watch = await feed(api, switch)
    switch.turn()
    await api.patch("App", "b", lambda app: app["spec"].update(displayName="x"))
    assert await told(watch) == ["DELETED b"]


async def test_a_resumed_watch_knows_what_was_seen_before(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=MINE)
    await api.create("App", "b", spec=MINE)
    since = api.view.revision
    await api.patch("App", "b", lambda app: app["spec"].update(owner={"user": "bob"}))
    cut = permissions(api, Switch()).filter_for(ALICE, LIST)
    watch = WatchSession(api.view, api.of("App").kind, "", EVERYTHING, 100, cut)
    await watch.start(since)
    assert await told(watch) == ["DELETED b"]
