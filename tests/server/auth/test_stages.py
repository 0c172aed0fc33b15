"""Who is asking and whether they may: nothing passes without a yes to both, but for the few public paths."""

from collections.abc import Sequence

import orjson
import pytest

from fairlead.authn import Authenticator
from fairlead.authz.authorizer import Authorizer, AuthorizerChain, administrators
from fairlead.core.call import MANAGEMENT, Call, Decision, Reply, RequestInfo
from fairlead.core.cluster_identity import ClusterIdentityMapper
from fairlead.core.errors import Forbidden, Unauthorized
from fairlead.core.user import User
from fairlead.server.api.routing import RouteConfig, route
from fairlead.server.auth.impersonation import Impersonation
from fairlead.server.auth.stages import (
    PUBLIC_ENDPOINTS,
    PUBLIC_PATHS,
    AuthorizeStage,
    build_authentication_stage,
    build_identify,
    is_public,
)
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import ADMIN, always_reply, call, raise_for_status

SERVED = Reply(200, b"served")
ALICE = User("alice", ("system:authenticated",))
MOUNT = "/kubernetes/management"
NAMES = ClusterIdentityMapper("fairlead:")
APPS = RequestInfo("list", "/apis/g/v1/apps", MANAGEMENT, "g", "v1", "apps")


def nobody(call: Call) -> User | None:
    return None


def alice(call: Call) -> User | None:
    return ALICE


def invalid(call: Call) -> User | None:
    raise Unauthorized("invalid bearer token")


def allow(user: User, target: RequestInfo) -> Decision | None:
    return Decision(True, "because")


def deny(user: User, target: RequestInfo) -> Decision | None:
    return Decision(False, "it is forbidden")


def no_opinion(user: User, target: RequestInfo) -> Decision | None:
    return None


async def ask(target: RequestInfo, authenticators: Sequence[Authenticator], authorizers: Sequence[Authorizer]) -> Reply:
    identify, permissions = build_identify(authenticators, NO_IMPERSONATION, NAMES), AuthorizerChain(authorizers)
    stages = (build_authentication_stage(identify, forget), AuthorizeStage(permissions, identify))
    return await Pipeline(stages, always_reply(SERVED))(call(target=target))


def forget(user: User) -> None:
    """Nobody wants to know when keys are used."""


def unknown(name: str) -> User | None:
    return None


NO_IMPERSONATION = Impersonation(AuthorizerChain([]).authorize, unknown, lambda name: False)


def allowing(*authorizers: Authorizer) -> AuthorizeStage:
    """The second stage alone."""
    return AuthorizeStage(AuthorizerChain(authorizers), build_identify([], NO_IMPERSONATION, NAMES))


async def test_a_known_user_who_may_is_served() -> None:
    assert await ask(APPS, [nobody, alice], [no_opinion, allow]) is SERVED


async def test_the_user_travels_with_the_call() -> None:
    asked = call(target=APPS)
    build_authentication_stage(build_identify([alice], NO_IMPERSONATION, NAMES), forget)(asked)
    assert asked.user is ALICE


@pytest.mark.parametrize(
    "authenticators", [[], [nobody], [nobody, nobody], [invalid], [nobody, invalid], [invalid, alice]]
)
async def test_without_a_yes_from_an_authenticator_it_is_401(authenticators: list[Authenticator]) -> None:
    assert (await ask(APPS, authenticators, [allow])).status == 401


async def test_that_nobody_objected_is_not_enough() -> None:
    """The stage that authorizes does not trust the one before it to have run."""
    with pytest.raises(Unauthorized):
        allowing(allow)(call(target=APPS))


@pytest.mark.parametrize("authorizers", [[], [no_opinion], [no_opinion, no_opinion], [deny], [deny, allow]])
async def test_what_nobody_allows_is_forbidden(authorizers: list[Authorizer]) -> None:
    assert (await ask(APPS, [alice], authorizers)).status == 403


async def test_an_earlier_yes_counts_before_a_later_no() -> None:
    assert await ask(APPS, [alice], [allow, deny]) is SERVED


@pytest.mark.parametrize("path", sorted(PUBLIC_PATHS))
@pytest.mark.parametrize("mount", ["", MOUNT])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_anybody_may_read_the_public_paths(method: str, mount: str, path: str) -> None:
    assert await ask(route(method, mount + path, {}, RouteConfig(MOUNT)), [nobody], []) is SERVED


@pytest.mark.parametrize("path", sorted(PUBLIC_PATHS))
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "head", "TRACE", ""])
async def test_reading_is_all_that_anybody_may_do_there(method: str, path: str) -> None:
    assert (await ask(route(method, path, {}, RouteConfig(MOUNT)), [nobody], [])).status == 401


ALMOST = [
    "/",
    "/version/",
    "//version",
    "/version/x",
    "/versions",
    "/VERSION",
    "/healthz/",
    "/healthz/ping",
    "/livez/store",
    "/readyz/..",
    "/version\x00",
    "/metrics",
    "/api",
    "/apis",
    "/openapi/v3",
    "/openapi/v2",
    "/debug",
]


@pytest.mark.parametrize("path", ALMOST)
@pytest.mark.parametrize("mount", ["", MOUNT])
async def test_almost_a_public_path_is_none(mount: str, path: str) -> None:
    assert (await ask(route("GET", mount + path, {}, RouteConfig(MOUNT)), [nobody], [allow])).status == 401


def test_a_resource_is_never_public_whatever_it_is_called() -> None:
    assert not is_public(call(target=RequestInfo("get", "/version", MANAGEMENT, "", "v1", "version")))


def test_nothing_more_is_public_than_is_known() -> None:
    """A test to be changed with care: every path added here is open to the whole network."""
    assert frozenset({"/version", "/healthz", "/livez", "/readyz"}) == PUBLIC_PATHS
    signing_in = {("post", "/auth/password/login"), ("get", "/auth/methods")}
    verifying = {("get", "/.well-known/openid-configuration"), ("get", "/openid/v1/jwks")}
    assert signing_in | verifying == PUBLIC_ENDPOINTS


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            RequestInfo("list", "/", MANAGEMENT, "g", "v1", "apps"),
            'apps.g is forbidden: User "alice" cannot list resource "apps" in API group "g" at the cluster scope',
        ),
        (
            RequestInfo("get", "/", MANAGEMENT, "", "v1", "configmaps", "", "demo", "one"),
            'configmaps "one" is forbidden: User "alice" cannot get resource "configmaps" in API group "" '
            'in the namespace "demo"',
        ),
        (
            RequestInfo("update", "/", MANAGEMENT, "g", "v1", "clusters", "status", "", "one"),
            'clusters.g "one" is forbidden: User "alice" cannot update resource "clusters/status" in API group "g" '
            "at the cluster scope",
        ),
        (RequestInfo("get", "/metrics"), 'forbidden: User "alice" cannot get path "/metrics"'),
    ],
)
async def test_a_refusal_says_who_may_not_do_what_where(target: RequestInfo, message: str) -> None:
    with pytest.raises(Forbidden) as caught:
        allowing(no_opinion)(_as(ALICE, target))
    assert caught.value.message == message
    with pytest.raises(Forbidden) as caught:
        allowing(deny)(_as(ALICE, target))
    assert caught.value.message == f"{message}: it is forbidden"


async def test_a_refusal_names_the_object_in_its_details() -> None:
    target = RequestInfo("get", "/", MANAGEMENT, "g", "v1", "apps", "", "", "one")
    status = orjson.loads((await ask(target, [alice], [])).body)
    assert status["details"] == {"name": "one", "group": "g", "kind": "apps"}


@pytest.mark.parametrize("verb", ["", "get", "create", "impersonate"])
async def test_an_administrator_may_do_anything_and_no_one_else_does_by_that_rule(verb: str) -> None:
    target = RequestInfo(verb, "/", MANAGEMENT, "g", "v1", "apps")
    allowing(administrators)(_as(ADMIN, target))
    with pytest.raises(Forbidden):
        allowing(administrators)(_as(ALICE, target))


def _as(user: User, target: RequestInfo) -> Call:
    asked = call(target=target)
    asked.user = user
    return asked


async def let_in_as(asked: Call, authenticator: Authenticator) -> Reply:
    """Both stages: who could not be identified is told so by the second one, after flow control."""
    identify = build_identify([authenticator], NO_IMPERSONATION, NAMES)
    pipeline = Pipeline((build_authentication_stage(identify, forget), allowing(allow)), always_reply(SERVED))
    return raise_for_status(await pipeline(asked))


async def test_who_could_not_be_identified_goes_on_as_nobody_and_no_further_than_flow_control() -> None:
    asked, reached = call(target=APPS), []

    def flow_control(call: Call) -> None:
        reached.append((call.user, str(call.deferred_error)))

    stages = (
        build_authentication_stage(build_identify([invalid], NO_IMPERSONATION, NAMES), forget),
        flow_control,
        allowing(allow),
    )
    with pytest.raises(Unauthorized, match="invalid bearer token"):
        raise_for_status(await Pipeline(stages, always_reply(SERVED))(asked))
    assert reached == [(None, "invalid bearer token")]


async def test_t19_a_refused_impersonation_is_still_somebodys() -> None:
    asked = call(target=APPS, headers={"impersonate-user": "bob"})
    with pytest.raises(Forbidden):
        await let_in_as(asked, alice)
    assert asked.user is ALICE


async def test_t19_a_public_path_is_not_public_to_those_who_act_as_others() -> None:
    asked = call(target=RequestInfo("get", "/version"), headers={"impersonate-user": "bob"})
    with pytest.raises(Forbidden):
        await let_in_as(asked, alice)


BEHIND = RequestInfo(
    "list", "/api/v1/pods", "cluster", "", "v1", "pods", gateway=RequestInfo("use", "/", "cluster", name="oslo")
)


def identity_of(headers: dict[str, str], target: RequestInfo = BEHIND, names: ClusterIdentityMapper = NAMES) -> User:
    anybody = Impersonation(AuthorizerChain([allow]).authorize, unknown, lambda name: False)
    return build_identify([alice], anybody, names)(call(target=target, headers=headers))


def test_t19_behind_a_gateway_a_request_is_the_impersonated_users() -> None:
    user = identity_of({"impersonate-user": "bob", "impersonate-group": "devs", "impersonate-extra-a": "b"})
    assert (user.name, user.groups, user.extra) == ("bob", ("devs", "system:authenticated"), (("a", ("b",)),))
    assert user.impersonator is ALICE
    assert identity_of({}) is ALICE


def test_t19_behind_a_gateway_impersonation_takes_the_right_to_it() -> None:
    with pytest.raises(Forbidden, match='cannot impersonate resource "users"'):
        build_identify([alice], NO_IMPERSONATION, NAMES)(call(target=BEHIND, headers={"impersonate-user": "bob"}))


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"impersonate-user": "system:serviceaccount:default:x"}, 'User "system:serviceaccount:default:x" cannot be'),
        ({"impersonate-user": "system:admin"}, "authenticate at the cluster itself"),
        ({"impersonate-user": "bob", "impersonate-group": "system:nodes"}, 'Group "system:nodes" cannot be'),
        ({"impersonate-user": "bob", "impersonate-joined-group": "a,system:unauthenticated"}, "leave it out"),
        ({"impersonate-user": "b\tob"}, "printable ASCII"),
        ({"impersonate-user": "bob", "impersonate-uid": "a\tb"}, "printable ASCII"),
        ({"impersonate-user": "bob", "impersonate-extra-a": "a\tb"}, "printable ASCII"),
    ],
)
def test_t19_an_identity_that_would_not_arrive_whole_is_refused(headers: dict[str, str], told: str) -> None:
    with pytest.raises(Forbidden, match=told):
        identity_of(headers)
    assert identity_of(headers, APPS).impersonator is ALICE  # here, where nothing has to be handed on, it may be


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-joined-group"])
def test_t19_without_a_prefix_nobody_becomes_a_member_of_a_group_of_the_clusters_own(header: str) -> None:
    bare = ClusterIdentityMapper("")
    asked = {"impersonate-user": "bob", header: "kubeadm:cluster-admins"}
    with pytest.raises(Forbidden, match="without cluster_identity_prefix it would be the cluster's group") as caught:
        identity_of(asked, names=bare)
    assert 'begins with "service:", or set a prefix' in caught.value.message
    assert "kubeadm:cluster-admins" in identity_of(asked).groups
    assert "kubeadm:cluster-admins" in identity_of(asked, APPS, bare).groups
    for group in ("service:team:web", "system:authenticated"):
        assert group in identity_of({"impersonate-user": "bob", header: group}, names=bare).groups


def test_t19_groups_of_administrators_and_of_everybody_are_known_to_gateways() -> None:
    anybody = Impersonation(AuthorizerChain([administrators]).authorize, unknown, lambda name: False)
    for group in ("system:masters", "service:admins", "system:authenticated"):
        asked = call(target=BEHIND, headers={"impersonate-user": "bob", "impersonate-group": group})
        assert group in build_identify([lambda call: ADMIN], anybody, NAMES)(asked).groups
        assert group in build_identify([lambda call: ADMIN], anybody, ClusterIdentityMapper(""))(asked).groups
