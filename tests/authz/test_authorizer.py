"""AuthorizerChain filters lists and watches to the objects that the user may get, and denies them if there are none."""

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
ALICE_OWNED = {"owner": {"user": "alice"}}


def app_rule_fields(*names: str) -> Object:
    """The fields of a scope rule for apps of these names."""
    return {"resources": [{"group": MANAGEMENT_GROUP, "resources": ["apps"]}], "resourceNames": list(names)}


class SwitchableAuthorizer:
    """An authorizer that allows the given (user, name) pairs, which can change."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.allowed = set(allowed)
        self.generation = 0

    def __call__(self, user: User, target: RequestInfo) -> Decision | None:
        return Decision(True, "allowed by the test") if (user.name, target.name) in self.allowed else None

    def set_allowed(self, *allowed: tuple[str, str]) -> None:
        self.allowed = set(allowed)
        self.generation += 1


def build_chain(
    api: RegistryFixture,
    authorizer: SwitchableAuthorizer,
    overlaps: Callable[[User, RequestInfo], bool] = lambda user, target: True,
) -> AuthorizerChain:
    scope_checks = ScopeChecks(lambda user, target: None, lambda user, target: True, overlaps)
    return AuthorizerChain(
        (authorizer,),
        (OwnerAuthorizer(api.registry.catalog, api.view),),
        scope_checks,
        (lambda: authorizer.generation,),
    )


def visible_names(list_filter: ListFilter | None, api: RegistryFixture) -> list[str]:
    assert list_filter is not None
    return [entry.key[3] for entry in api.view.entries(MANAGEMENT_GROUP, "apps") if list_filter.allows(entry)]


async def test_a_user_with_access_to_some_objects_sees_all_that_it_may_get(api: RegistryFixture) -> None:
    for name, spec in (("a", ALICE_OWNED), ("b", {}), ("c", {})):
        await api.create("App", name, spec=spec)
    chain = build_chain(api, SwitchableAuthorizer(("alice", "b")))
    assert not chain.authorize(ALICE, LIST).allowed
    assert visible_names(chain.filter_for(ALICE, LIST), api) == ["a", "b"]


async def test_a_user_without_access_to_any_object_is_denied(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    chain = build_chain(api, SwitchableAuthorizer(("carol", "a")))
    assert chain.filter_for(BOB, LIST) is None
    assert chain.filter_for(CAROL, LIST) is None, "permission for one name does not allow a list, as in Kubernetes"


@pytest.mark.parametrize("verb", ["get", "create", "deletecollection", "update"])
async def test_only_lists_and_watches_are_filtered(api: RegistryFixture, verb: str) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    assert (
        build_chain(api, SwitchableAuthorizer()).filter_for(
            ALICE, RequestInfo(verb, "", "", MANAGEMENT_GROUP, "v1", "apps")
        )
        is None
    )


async def test_a_scope_filters_what_its_owner_may_list(api: RegistryFixture) -> None:
    await api.create("App", "a", spec={})
    allow_all = SwitchableAuthorizer(("root", ""), ("root", "a"))
    scoped = User("root", scope=Scope())

    assert visible_names(build_chain(api, allow_all).filter_for(scoped, LIST), api) == ["a"]
    assert build_chain(api, allow_all, lambda user, target: False).filter_for(scoped, LIST) is None
    assert build_chain(api, SwitchableAuthorizer(("root", "a"))).filter_for(scoped, LIST) is None, (
        "the owner of the key may not list either"
    )


@pytest.mark.parametrize(
    ("rules", "verb", "expected"),
    [
        ([{"verbs": ["get"]}], "list", None),
        ([{"verbs": ["get"]}], "watch", None),
        ([{"verbs": ["get", "watch"]}], "list", None),
        ([{"verbs": ["get"]}, {"verbs": ["list"], **app_rule_fields("a")}], "list", ["a"]),
        ([{"verbs": ["get"]}, {"verbs": ["list"], **app_rule_fields("a")}], "watch", None),
        ([{"verbs": ["list"], **app_rule_fields("a")}], "list", ["a"]),
        ([{"verbs": ["watch"], **app_rule_fields("b", "c")}], "watch", ["b", "c"]),
        ([{"verbs": ["get"], **app_rule_fields("a")}], "list", None),
        ([{**app_rule_fields("a", "c")}], "list", ["a", "c"]),
    ],
)
async def test_a_scope_rule_filters_lists_to_what_it_allows_to_list(
    api: RegistryFixture, rules: list[Object], verb: str, expected: list[str] | None
) -> None:
    """The owner may do everything; objects with only `get` allowed are in no list."""
    for name in ("a", "b", "c"):
        await api.create("App", name, spec={})
    names = ScopeNaming.from_catalog(api.registry.catalog, MANAGEMENT_GROUP, "p-")
    chain = AuthorizerChain(
        (administrators,), (OwnerAuthorizer(api.registry.catalog, api.view),), build_scope_checks(names)
    )
    scoped = User("root", ("system:masters",), scope=Scope.parse({"rules": rules}))
    target = replace(LIST, verb=verb)
    list_filter = chain.filter_for(scoped, target)
    assert not chain.authorize(scoped, target).allowed
    assert (list_filter and visible_names(list_filter, api)) == expected
    for name in ("a", "b", "c"):
        allowed = chain.authorize(scoped, replace(target, name=name)).allowed
        assert allowed == (name in (expected or ())), "a list of one name is authorized in the same way"


async def test_a_key_that_may_only_get_lists_nothing(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    names = ScopeNaming.from_catalog(api.registry.catalog, MANAGEMENT_GROUP, "p-")
    chain = AuthorizerChain((), (OwnerAuthorizer(api.registry.catalog, api.view),), build_scope_checks(names))
    key = replace(ALICE, scope=Scope.parse({"rules": [{"verbs": ["get"]}]}))
    for verb, name in product(("list", "watch"), ("", "a")):
        assert chain.filter_for(key, replace(LIST, verb=verb, name=name)) is None
    assert chain.authorize(key, replace(LIST, verb="get", name="a")).allowed


async def test_a_list_of_one_name_is_filtered_for_its_owner_only(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    target = replace(LIST, name="a")
    chain = build_chain(api, SwitchableAuthorizer(("carol", "b")))
    assert chain.filter_for(ALICE, target) is not None
    assert chain.filter_for(BOB, target) is None
    assert chain.filter_for(ALICE, replace(LIST, name="missing")) is None
    assert chain.filter_for(CAROL, replace(LIST, name="b")) is None, "roles are decided before the filter"


async def test_a_list_at_an_old_revision_uses_the_current_permissions(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    await api.create("App", "b", spec=ALICE_OWNED)
    revision = api.view.revision
    await api.patch("App", "b", lambda app: app["spec"].update(owner={"user": "bob"}))
    await api.patch("App", "a", lambda app: app["spec"].update(displayName="x"))
    list_filter = build_chain(api, SwitchableAuthorizer()).filter_for(ALICE, LIST)
    assert list_filter is not None
    query = ListQuery(version=revision, exact=True, is_visible=list_filter.allows)
    listed = await list_entries(api.view, api.resource("App").kind, "", query)
    assert [entry.key[3] for entry in listed.entries] == ["a"]


# --- watches ---


async def open_watch(api: RegistryFixture, authorizer: SwitchableAuthorizer, user: User = ALICE) -> WatchSession:
    list_filter = build_chain(api, authorizer).filter_for(user, LIST)
    kind = api.resource("App").kind
    session = WatchSession(api.view, kind, "", EVERYTHING, 100, list_filter)
    _ = [events async for events in session.initial_objects()]
    return session


async def poll_events(session: WatchSession) -> list[str]:
    events = session.poll()
    if session.is_visibility_check_due:
        await session.check_visibility()
    return [f"{event.type} {orjson.loads(event.body)['metadata']['name']}" for event in events]


async def test_a_watch_adds_an_object_when_shared_and_deletes_it_when_unshared(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    await api.create("App", "b", spec={})
    watch = await open_watch(api, SwitchableAuthorizer())
    access = [{"users": ["alice"], "verbs": ["get"]}]
    await api.patch("App", "b", lambda app: app["spec"].update(access=access))
    assert await poll_events(watch) == ["ADDED b"]
    await api.patch("App", "b", lambda app: app["spec"].update(displayName="x"))
    await api.patch("App", "b", lambda app: app["spec"].update(access=[]))
    assert await poll_events(watch) == ["MODIFIED b", "DELETED b"]
    await api.patch("App", "b", lambda app: app["spec"].update(displayName="secret"))
    assert await poll_events(watch) == []


async def test_a_permission_change_that_affects_the_watch_ends_it(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    await api.create("App", "b", spec={})
    authorizer = SwitchableAuthorizer()
    watch = await open_watch(api, authorizer)
    authorizer.set_allowed(("alice", "b"))
    with pytest.raises(Expired):
        await poll_events(watch)


async def test_a_permission_change_that_does_not_affect_the_watch_keeps_it(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    authorizer = SwitchableAuthorizer()
    watch = await open_watch(api, authorizer)
    authorizer.set_allowed(("bob", "a"))
    await api.create("App", "b", spec={})
    await api.create("App", "c", spec=ALICE_OWNED)
    assert await poll_events(watch) == ["ADDED c"]
    await api.delete("App", "c")
    authorizer.set_allowed()
    assert await poll_events(watch) == ["DELETED c"]


async def test_an_object_that_changes_after_access_was_lost_is_deleted_from_the_watch(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    await api.create("App", "b", spec={})
    authorizer = SwitchableAuthorizer(("alice", "b"))
    watch = await open_watch(api, authorizer)
    authorizer.set_allowed()
    await api.patch("App", "b", lambda app: app["spec"].update(displayName="x"))
    assert await poll_events(watch) == ["DELETED b"]


async def test_a_resumed_watch_deletes_objects_that_were_visible_before(api: RegistryFixture) -> None:
    await api.create("App", "a", spec=ALICE_OWNED)
    await api.create("App", "b", spec=ALICE_OWNED)
    revision = api.view.revision
    await api.patch("App", "b", lambda app: app["spec"].update(owner={"user": "bob"}))
    list_filter = build_chain(api, SwitchableAuthorizer()).filter_for(ALICE, LIST)
    watch = WatchSession(api.view, api.resource("App").kind, "", EVERYTHING, 100, list_filter)
    await watch.start(revision)
    assert await poll_events(watch) == ["DELETED b"]
