"""RunnerAuthorizer: a runner reads its own Runner and its workspaces, and writes their status; nothing else."""

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


def runner_user(name: str, key: str = "") -> User:
    identity = f"service:runner:{name}"
    return User(identity, ("service:runners", identity, *AUTHENTICATED_GROUPS), key=key)


def build_request(verb: str, resource: str, name: str = "", subresource: str = "", namespace: str = "") -> RequestInfo:
    core = dict.fromkeys(("events", "secrets", "configmaps"), "") | {"leases": "coordination.k8s.io"}
    group = core.get(resource, MANAGEMENT_GROUP)
    return RequestInfo(verb, "", "management", group, "v1", resource, subresource, namespace, name)


@pytest.fixture
async def authorizer(api: RegistryFixture) -> RunnerAuthorizer:
    """Runners `a` and `b`; workspace `wa` of `a` in `demo`, `wb` of `b` in `default`, and `w` without a runner."""
    for name in ("a", "b"):
        await api.create("Runner", name)
    await api.create("DevPodWorkspaceInstance", "wa", "demo", spec={"runnerRef": {"runner": "a"}})
    await api.create("DevPodWorkspaceInstance", "wb", "default", spec={"runnerRef": {"runner": "b"}})
    await api.create("DevPodWorkspaceInstance", "w", "demo", spec={"runnerRef": {}})
    return RunnerAuthorizer(MANAGEMENT_GROUP, api.view)


async def test_a_runner_reads_itself_and_writes_its_own_status(authorizer: RunnerAuthorizer) -> None:
    expected = {("get", ""), ("get", "status"), ("update", "status"), ("patch", "status"), ("get", "config")}
    requests = set(product(VERBS, ("", "status", "config", "accesskey", "rotatekey", "other")))
    allowed = {
        (verb, subresource)
        for verb, subresource in requests
        if authorizer(runner_user("a"), build_request(verb, "runners", "a", subresource))
    }
    assert allowed == expected
    for verb, subresource in requests:
        assert authorizer(runner_user("a"), build_request(verb, "runners", "b", subresource)) is None
        assert authorizer(runner_user("a"), build_request(verb, "runners", "", subresource)) is None


async def test_a_runner_reads_its_workspaces_and_writes_their_status(authorizer: RunnerAuthorizer) -> None:
    expected = {("get", ""), ("list", ""), ("watch", ""), ("get", "status"), ("update", "status"), ("patch", "status")}
    requests = set(product(VERBS, ("", "status", "up")))

    def allowed_requests(user: User, name: str, namespace: str) -> set[tuple[str, str]]:
        return {
            each for each in requests if authorizer(user, build_request(each[0], WORKSPACES, name, each[1], namespace))
        }

    assert allowed_requests(runner_user("a"), "wa", "demo") == expected
    assert allowed_requests(runner_user("b"), "wb", "default") == expected
    for name, namespace in (("wb", "default"), ("w", "demo"), ("missing", "demo"), ("wa", "default"), ("", "demo")):
        assert allowed_requests(runner_user("a"), name, namespace) == set()


async def test_a_runner_records_events_where_it_has_workspaces(authorizer: RunnerAuthorizer) -> None:
    assert authorizer(runner_user("a"), build_request("create", "events", namespace="demo"))
    assert authorizer(runner_user("a"), build_request("create", "events", namespace="default")) is None
    assert authorizer(runner_user("a"), build_request("create", "events")) is None
    for verb in set(VERBS) - {"create"}:
        assert authorizer(runner_user("a"), build_request(verb, "events", "e", namespace="demo")) is None


async def test_a_runner_renews_its_own_lease_and_no_other(authorizer: RunnerAuthorizer) -> None:
    def allowed_verbs(name: str, namespace: str, subresource: str = "") -> set[str]:
        requests = {verb: build_request(verb, "leases", name, subresource, namespace) for verb in VERBS}
        return {verb for verb, request in requests.items() if authorizer(runner_user("a"), request)}

    assert allowed_verbs("runner-a", "service-system") == {"get", "create", "update"}
    for name, namespace in (("runner-b", "service-system"), ("a", "service-system"), ("", "service-system")):
        assert allowed_verbs(name, namespace) == set()
    assert allowed_verbs("runner-a", "demo") == set()
    assert allowed_verbs("runner-a", "service-system", "status") == set()


async def test_a_runner_may_do_nothing_else(authorizer: RunnerAuthorizer) -> None:
    for verb, resource in product(VERBS, ("secrets", "configmaps", "projects", "users", "ownedaccesskeys", "clusters")):
        for name, namespace in (("x", "demo"), ("", "demo"), ("x", ""), ("", "")):
            assert authorizer(runner_user("a"), build_request(verb, resource, name, "", namespace)) is None
            assert not authorizer.may_see_some(runner_user("a"), build_request(verb, resource, name, "", namespace))


async def test_lists_and_watches_are_filtered_to_the_workspaces_of_the_runner(
    authorizer: RunnerAuthorizer, api: RegistryFixture
) -> None:
    chain = AuthorizerChain((), (authorizer,))
    entries = api.view.entries(MANAGEMENT_GROUP, WORKSPACES)
    for verb in ("list", "watch"):
        for namespace in ("", "demo", "default"):
            list_filter = chain.filter_for(runner_user("a"), build_request(verb, WORKSPACES, namespace=namespace))
            assert list_filter is not None
            assert [entry.key[3] for entry in entries if list_filter.allows(entry)] == ["wa"]
    assert chain.filter_for(runner_user("a"), build_request("list", "runners")) is None


async def test_a_workspace_that_is_assigned_later_becomes_visible(
    authorizer: RunnerAuthorizer, api: RegistryFixture
) -> None:
    entry = api.resource("DevPodWorkspaceInstance").get_cached("demo", "w")
    request = build_request("get", WORKSPACES, "w", "", "demo")
    assert entry is not None and authorizer.authorize_object(runner_user("a"), request, entry) is None
    spec = {"runnerRef": {"runner": "a"}}
    await api.patch("DevPodWorkspaceInstance", "w", lambda obj: obj.update(spec=spec))
    entry = api.resource("DevPodWorkspaceInstance").get_cached("demo", "w")
    assert entry is not None and authorizer.authorize_object(runner_user("a"), request, entry)


@pytest.mark.parametrize(
    "user",
    [
        User("service:runner:a", AUTHENTICATED_GROUPS),
        User("ada", ("service:runner:a", "service:runners", *AUTHENTICATED_GROUPS)),
        User("a", ("service:runners", *AUTHENTICATED_GROUPS)),
        runner_user("missing"),
    ],
)
async def test_a_runner_needs_its_name_its_groups_and_an_existing_object(
    authorizer: RunnerAuthorizer, user: User
) -> None:
    assert authorizer(user, build_request("get", "runners", "a")) is None
    assert authorizer(user, build_request("get", WORKSPACES, "wa", "", "demo")) is None
    assert not authorizer.may_see_some(user, build_request("list", WORKSPACES))


async def test_the_key_of_a_deleted_runner_of_that_name_is_not_accepted(
    authorizer: RunnerAuthorizer, api: RegistryFixture
) -> None:
    runner = api.get("Runner", "a")
    assert runner is not None
    reference = {"apiVersion": runner["apiVersion"], "kind": "Runner", "name": "a", "uid": runner["metadata"]["uid"]}
    key = {"subject": "service:runner:a", "key": "x" * 20}
    await api.create("OwnedAccessKey", "k", spec=key, metadata={"ownerReferences": [reference]})
    assert authorizer(runner_user("a", "k"), build_request("get", "runners", "a"))
    await api.delete("Runner", "a")
    assert authorizer(runner_user("a", "k"), build_request("get", "runners", "a")) is None
    await api.create("Runner", "a")
    assert authorizer(runner_user("a", "k"), build_request("get", "runners", "a")) is None
    assert authorizer(runner_user("a"), build_request("get", "runners", "a"))
