"""What runners may do: their own Runner, the workspaces that are bound to them, and nothing else."""

from itertools import product

import pytest

from fairlead.authz.authorizer import AuthorizerChain
from fairlead.authz.component_access import RunnerAuthorizer
from fairlead.core.call import RequestInfo
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.registry.kind import MANAGEMENT_GROUP
from tests.harness.registry import RegistryFixture

WORKSPACES = "devpodworkspaceinstances"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use")


def runner(name: str, key: str = "") -> User:
    identity = f"service:runner:{name}"
    return User(identity, ("service:runners", identity, *AUTHENTICATED_GROUPS), key=key)


def target(verb: str, resource: str, name: str = "", subresource: str = "", namespace: str = "") -> RequestInfo:
    group = "" if resource in ("events", "secrets", "configmaps") else MANAGEMENT_GROUP
    return RequestInfo(verb, "", "management", group, "v1", resource, subresource, namespace, name)


@pytest.fixture
async def runners(api: RegistryFixture) -> RunnerAuthorizer:
    """Runners `a` and `b`; workspace `wa` of the one in `demo`, `wb` of the other in `default`, and `w` of none."""
    for name in ("a", "b"):
        await api.create("Runner", name)
    await api.create("DevPodWorkspaceInstance", "wa", "demo", spec={"runnerRef": {"runner": "a"}})
    await api.create("DevPodWorkspaceInstance", "wb", "default", spec={"runnerRef": {"runner": "b"}})
    await api.create("DevPodWorkspaceInstance", "w", "demo", spec={"runnerRef": {}})
    return RunnerAuthorizer(MANAGEMENT_GROUP, api.view)


async def test_a_runner_reads_itself_and_writes_its_own_status(runners: RunnerAuthorizer) -> None:
    may = {("get", ""), ("get", "status"), ("update", "status"), ("patch", "status"), ("get", "config")}
    asked = set(product(VERBS, ("", "status", "config", "accesskey", "rotatekey", "other")))
    allowed = {(verb, part) for verb, part in asked if runners(runner("a"), target(verb, "runners", "a", part))}
    assert allowed == may
    for verb, part in asked:
        assert runners(runner("a"), target(verb, "runners", "b", part)) is None
        assert runners(runner("a"), target(verb, "runners", "", part)) is None


async def test_a_runner_reads_its_workspaces_and_writes_their_status(runners: RunnerAuthorizer) -> None:
    may = {("get", ""), ("list", ""), ("watch", ""), ("get", "status"), ("update", "status"), ("patch", "status")}
    asked = set(product(VERBS, ("", "status", "up")))

    def allowed(user: User, name: str, namespace: str) -> set[tuple[str, str]]:
        return {each for each in asked if runners(user, target(each[0], WORKSPACES, name, each[1], namespace))}

    assert allowed(runner("a"), "wa", "demo") == may
    assert allowed(runner("b"), "wb", "default") == may
    for name, namespace in (("wb", "default"), ("w", "demo"), ("missing", "demo"), ("wa", "default"), ("", "demo")):
        assert allowed(runner("a"), name, namespace) == set()


async def test_a_runner_records_events_where_it_has_workspaces(runners: RunnerAuthorizer) -> None:
    assert runners(runner("a"), target("create", "events", namespace="demo"))
    assert runners(runner("a"), target("create", "events", namespace="default")) is None
    assert runners(runner("a"), target("create", "events")) is None
    for verb in set(VERBS) - {"create"}:
        assert runners(runner("a"), target(verb, "events", "e", namespace="demo")) is None


async def test_a_runner_may_nothing_else(runners: RunnerAuthorizer) -> None:
    for verb, resource in product(VERBS, ("secrets", "configmaps", "projects", "users", "ownedaccesskeys", "clusters")):
        for name, namespace in (("x", "demo"), ("", "demo"), ("x", ""), ("", "")):
            assert runners(runner("a"), target(verb, resource, name, "", namespace)) is None
            assert not runners.may_see_some(runner("a"), target(verb, resource, name, "", namespace))


async def test_lists_and_watches_are_cut_to_the_runners_workspaces(
    runners: RunnerAuthorizer, api: RegistryFixture
) -> None:
    permissions = AuthorizerChain((), (runners,))
    entries = api.view.entries(MANAGEMENT_GROUP, WORKSPACES)
    for verb in ("list", "watch"):
        for namespace in ("", "demo", "default"):
            cut = permissions.filter_for(runner("a"), target(verb, WORKSPACES, namespace=namespace))
            assert cut is not None
            assert [entry.key[3] for entry in entries if cut.allows(entry)] == ["wa"]
    assert permissions.filter_for(runner("a"), target("list", "runners")) is None


async def test_a_workspace_that_is_bound_later_is_seen_from_then_on(
    runners: RunnerAuthorizer, api: RegistryFixture
) -> None:
    entry = api.of("DevPodWorkspaceInstance").get_cached("demo", "w")
    get = target("get", WORKSPACES, "w", "", "demo")
    assert entry is not None and runners.authorize_object(runner("a"), get, entry) is None
    bind = {"runnerRef": {"runner": "a"}}
    await api.patch("DevPodWorkspaceInstance", "w", lambda obj: obj.update(spec=bind))
    entry = api.of("DevPodWorkspaceInstance").get_cached("demo", "w")
    assert entry is not None and runners.authorize_object(runner("a"), get, entry)


@pytest.mark.parametrize(
    "user",
    [
        User("service:runner:a", AUTHENTICATED_GROUPS),
        User("ada", ("service:runner:a", "service:runners", *AUTHENTICATED_GROUPS)),
        User("a", ("service:runners", *AUTHENTICATED_GROUPS)),
        runner("missing"),
    ],
)
async def test_whoever_is_not_wholly_a_runner_is_none(runners: RunnerAuthorizer, user: User) -> None:
    assert runners(user, target("get", "runners", "a")) is None
    assert runners(user, target("get", WORKSPACES, "wa", "", "demo")) is None
    assert not runners.may_see_some(user, target("list", WORKSPACES))


async def test_a_key_of_an_earlier_runner_of_the_name_stands_for_nobody(
    runners: RunnerAuthorizer, api: RegistryFixture
) -> None:
    found = api.see("Runner", "a")
    assert found is not None
    reference = {"apiVersion": found["apiVersion"], "kind": "Runner", "name": "a", "uid": found["metadata"]["uid"]}
    key = {"subject": "service:runner:a", "key": "x" * 20}
    await api.create("OwnedAccessKey", "k", spec=key, metadata={"ownerReferences": [reference]})
    assert runners(runner("a", "k"), target("get", "runners", "a"))
    await api.delete("Runner", "a")
    assert runners(runner("a", "k"), target("get", "runners", "a")) is None
    await api.create("Runner", "a")
    assert runners(runner("a", "k"), target("get", "runners", "a")) is None
    assert runners(runner("a"), target("get", "runners", "a"))
