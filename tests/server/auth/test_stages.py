"""server.auth.stages: every request needs authentication and authorization, except on the few public paths."""

from collections.abc import Sequence

import orjson
import pytest

from fairlead.authn import Authenticator
from fairlead.authz.authorizer import Authorizer, AuthorizerChain, administrators
from fairlead.core.call import MANAGEMENT, Call, Decision, Reply, RequestInfo
from fairlead.core.errors import Forbidden, Unauthorized
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.features.console import find_console
from fairlead.server.api.routing import RouteConfig, route
from fairlead.server.auth.impersonation import Impersonation
from fairlead.server.auth.stages import (
    PUBLIC_PATHS,
    AuthorizeStage,
    authenticate_when_current,
    build_authentication_stage,
    build_identify,
    is_public,
)
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import ADMIN, always_reply, call, raise_for_status

SERVED = Reply(200, b"served")
ALICE = User("alice", ("system:authenticated",))
MOUNT = "/kubernetes/management"
IDENTITIES = ClusterIdentityMapper("fairlead:")
APPS = RequestInfo("list", "/apis/g/v1/apps", MANAGEMENT, "g", "v1", "apps")


def return_no_user(call: Call) -> User | None:
    return None


def return_alice(call: Call) -> User | None:
    return ALICE


def raise_invalid_token(call: Call) -> User | None:
    raise Unauthorized("invalid bearer token")


def allow(user: User, target: RequestInfo) -> Decision | None:
    return Decision(True, "because")


def deny(user: User, target: RequestInfo) -> Decision | None:
    return Decision(False, "it is forbidden")


def no_opinion(user: User, target: RequestInfo) -> Decision | None:
    return None


async def send_request(
    target: RequestInfo, authenticators: Sequence[Authenticator], authorizers: Sequence[Authorizer]
) -> Reply:
    identify, permissions = build_identify(authenticators, NO_IMPERSONATION, IDENTITIES), AuthorizerChain(authorizers)
    stages = (build_authentication_stage(identify, ignore_use), AuthorizeStage(permissions, identify))
    return await Pipeline(stages, always_reply(SERVED))(call(target=target))


def ignore_use(user: User) -> None:
    """Ignores the use of a key."""


def find_no_user(name: str) -> User | None:
    return None


NO_IMPERSONATION = Impersonation(AuthorizerChain([]).authorize, find_no_user, lambda name: False)


def build_authorize_stage(*authorizers: Authorizer) -> AuthorizeStage:
    """The authorization stage alone."""
    return AuthorizeStage(AuthorizerChain(authorizers), build_identify([], NO_IMPERSONATION, IDENTITIES))


async def test_an_authenticated_and_authorized_request_is_served() -> None:
    assert await send_request(APPS, [return_no_user, return_alice], [no_opinion, allow]) is SERVED


async def test_the_authentication_stage_sets_the_user_of_the_call() -> None:
    request = call(target=APPS)
    build_authentication_stage(build_identify([return_alice], NO_IMPERSONATION, IDENTITIES), ignore_use)(request)
    assert request.user is ALICE


@pytest.mark.parametrize(
    "authenticators",
    [
        [],
        [return_no_user],
        [return_no_user, return_no_user],
        [raise_invalid_token],
        [return_no_user, raise_invalid_token],
        [raise_invalid_token, return_alice],
    ],
)
async def test_a_request_that_no_authenticator_accepts_gets_401(authenticators: list[Authenticator]) -> None:
    assert (await send_request(APPS, authenticators, [allow])).status == 401


async def test_a_request_that_was_not_authenticated_is_rejected() -> None:
    """The authorization stage does not rely on the authentication stage having run."""
    with pytest.raises(Unauthorized):
        build_authorize_stage(allow)(call(target=APPS))


@pytest.mark.parametrize("authorizers", [[], [no_opinion], [no_opinion, no_opinion], [deny], [deny, allow]])
async def test_a_request_that_no_authorizer_allows_gets_403(authorizers: list[Authorizer]) -> None:
    assert (await send_request(APPS, [return_alice], authorizers)).status == 403


async def test_an_earlier_allow_wins_over_a_later_deny() -> None:
    assert await send_request(APPS, [return_alice], [allow, deny]) is SERVED


@pytest.mark.parametrize("path", sorted(PUBLIC_PATHS))
@pytest.mark.parametrize("mount", ["", MOUNT])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_public_paths_can_be_read_without_authentication(method: str, mount: str, path: str) -> None:
    assert await send_request(route(method, mount + path, {}, RouteConfig(MOUNT)), [return_no_user], []) is SERVED


@pytest.mark.parametrize("path", sorted(PUBLIC_PATHS))
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "head", "TRACE", ""])
async def test_public_paths_allow_reading_only(method: str, path: str) -> None:
    assert (await send_request(route(method, path, {}, RouteConfig(MOUNT)), [return_no_user], [])).status == 401


CONSOLE_ROUTES = RouteConfig(MOUNT, (find_console,))


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/projects/demo", "/console/assets/x/main.js"])
async def test_the_console_can_be_read_without_authentication_if_it_is_enabled(path: str) -> None:
    for method in ("GET", "HEAD"):
        assert await send_request(route(method, path, {}, CONSOLE_ROUTES), [return_no_user], []) is SERVED
        assert (await send_request(route(method, path, {}, RouteConfig(MOUNT)), [return_no_user], [])).status == 401
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "TRACE", ""):
        assert (await send_request(route(method, path, {}, CONSOLE_ROUTES), [return_no_user], [])).status == 401


@pytest.mark.parametrize("path", ["/consoles", "/Console/", "//console/", "/x/console/", f"{MOUNT}/console/", "/"])
async def test_a_path_similar_to_the_console_is_not_public(path: str) -> None:
    assert (await send_request(route("GET", path, {}, CONSOLE_ROUTES), [return_no_user], [allow])).status == 401


def test_credentials_and_impersonation_are_ignored_by_the_console() -> None:
    target = route("GET", "/console/", {}, CONSOLE_ROUTES)
    assert is_public(call(target=target, headers={"impersonate-user": "root", "authorization": "Bearer x"}))


ALMOST_PUBLIC_PATHS = [
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


@pytest.mark.parametrize("path", ALMOST_PUBLIC_PATHS)
@pytest.mark.parametrize("mount", ["", MOUNT])
async def test_a_path_similar_to_a_public_path_is_not_public(mount: str, path: str) -> None:
    assert (
        await send_request(route("GET", mount + path, {}, RouteConfig(MOUNT)), [return_no_user], [allow])
    ).status == 401


def test_a_resource_is_never_public_whatever_its_name() -> None:
    assert not is_public(call(target=RequestInfo("get", "/version", MANAGEMENT, "", "v1", "version")))


def test_the_list_of_public_paths_is_complete() -> None:
    """Change this test with care: every path added here is open to the whole network."""
    assert frozenset({"/version", "/healthz", "/livez", "/readyz"}) == PUBLIC_PATHS


NAMED_ENDPOINTS = frozenset({("get", "/auth/*/login"), ("post", "/auth/*/backchannel-logout"), ("post", "/auth/token")})


@pytest.mark.parametrize(
    ("verb", "path", "expected"),
    [
        ("get", "/auth/okta/login", True),
        ("post", "/auth/okta/backchannel-logout", True),
        ("post", "/auth/token", True),
        ("post", "/auth/okta/login", False),
        ("get", "/auth/okta/backchannel-logout", False),
        ("get", "/auth/okta/other/login", False),
        ("get", "/auth//login", False),
        ("get", "/auth/login", False),
        ("get", "/auth/token", False),
        ("post", "/auth/logout", False),
        ("get", "/api/okta/login", False),
    ],
)
def test_only_the_given_endpoints_are_public(verb: str, path: str, expected: bool) -> None:
    assert is_public(call(target=RequestInfo(verb, path)), NAMED_ENDPOINTS) is expected
    assert not is_public(call(target=RequestInfo(verb, path)))
    assert not is_public(call(target=RequestInfo(verb, path, MANAGEMENT)), NAMED_ENDPOINTS)
    impersonating = call(target=RequestInfo(verb, path), headers={"impersonate-user": "root"})
    assert not is_public(impersonating, NAMED_ENDPOINTS)


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
async def test_a_403_names_the_user_the_verb_the_resource_and_the_namespace(target: RequestInfo, message: str) -> None:
    with pytest.raises(Forbidden) as error:
        build_authorize_stage(no_opinion)(build_call_as(ALICE, target))
    assert error.value.message == message
    with pytest.raises(Forbidden) as error:
        build_authorize_stage(deny)(build_call_as(ALICE, target))
    assert error.value.message == f"{message}: it is forbidden"


async def test_a_403_names_the_object_in_its_details() -> None:
    target = RequestInfo("get", "/", MANAGEMENT, "g", "v1", "apps", "", "", "one")
    status = orjson.loads((await send_request(target, [return_alice], [])).body)
    assert status["details"] == {"name": "one", "group": "g", "kind": "apps"}


@pytest.mark.parametrize("verb", ["", "get", "create", "impersonate"])
async def test_the_administrators_authorizer_allows_administrators_only(verb: str) -> None:
    target = RequestInfo(verb, "/", MANAGEMENT, "g", "v1", "apps")
    build_authorize_stage(administrators)(build_call_as(ADMIN, target))
    with pytest.raises(Forbidden):
        build_authorize_stage(administrators)(build_call_as(ALICE, target))


def build_call_as(user: User, target: RequestInfo) -> Call:
    request = call(target=target)
    request.user = user
    return request


async def send_through_both_stages(request: Call, authenticator: Authenticator) -> Reply:
    """Both stages: the second one rejects requests that could not be authenticated, after flow control."""
    identify = build_identify([authenticator], NO_IMPERSONATION, IDENTITIES)
    pipeline = Pipeline(
        (build_authentication_stage(identify, ignore_use), build_authorize_stage(allow)), always_reply(SERVED)
    )
    return raise_for_status(await pipeline(request))


async def test_a_request_that_failed_authentication_passes_flow_control_and_is_then_rejected() -> None:
    request, seen_by_flow_control = call(target=APPS), []

    def flow_control(call: Call) -> None:
        seen_by_flow_control.append((call.user, str(call.deferred_error)))

    stages = (
        build_authentication_stage(build_identify([raise_invalid_token], NO_IMPERSONATION, IDENTITIES), ignore_use),
        flow_control,
        build_authorize_stage(allow),
    )
    with pytest.raises(Unauthorized, match="invalid bearer token"):
        raise_for_status(await Pipeline(stages, always_reply(SERVED))(request))
    assert seen_by_flow_control == [(None, "invalid bearer token")]


async def test_t19_a_rejected_impersonation_is_attributed_to_the_real_user() -> None:
    request = call(target=APPS, headers={"impersonate-user": "bob"})
    with pytest.raises(Forbidden):
        await send_through_both_stages(request, return_alice)
    assert request.user is ALICE


async def test_t19_a_public_path_is_not_public_with_impersonation_headers() -> None:
    request = call(target=RequestInfo("get", "/version"), headers={"impersonate-user": "bob"})
    with pytest.raises(Forbidden):
        await send_through_both_stages(request, return_alice)


GATEWAY = RequestInfo(
    "list", "/api/v1/pods", "cluster", "", "v1", "pods", gateway=RequestInfo("use", "/", "cluster", name="oslo")
)


def identify_user(
    headers: dict[str, str], target: RequestInfo = GATEWAY, names: ClusterIdentityMapper = IDENTITIES
) -> User:
    allow_all = Impersonation(AuthorizerChain([allow]).authorize, find_no_user, lambda name: False)
    return build_identify([return_alice], allow_all, names)(call(target=target, headers=headers))


def test_t19_a_gateway_request_has_the_identity_of_the_impersonated_user() -> None:
    user = identify_user({"impersonate-user": "bob", "impersonate-group": "devs", "impersonate-extra-a": "b"})
    assert (user.name, user.groups, user.extra) == ("bob", ("devs", "system:authenticated"), (("a", ("b",)),))
    assert user.impersonator is ALICE
    assert identify_user({}) is ALICE


def test_t19_impersonation_through_a_gateway_requires_permission() -> None:
    with pytest.raises(Forbidden, match='cannot impersonate resource "users"'):
        build_identify([return_alice], NO_IMPERSONATION, IDENTITIES)(
            call(target=GATEWAY, headers={"impersonate-user": "bob"})
        )


@pytest.mark.parametrize(
    ("headers", "message"),
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
def test_t19_an_identity_that_cannot_be_forwarded_unchanged_is_rejected(headers: dict[str, str], message: str) -> None:
    with pytest.raises(Forbidden, match=message):
        identify_user(headers)
    assert identify_user(headers, APPS).impersonator is ALICE  # allowed where nothing is forwarded to a cluster


@pytest.mark.parametrize("header", ["impersonate-group", "impersonate-joined-group"])
def test_t19_without_a_prefix_groups_of_the_cluster_cannot_be_impersonated(header: str) -> None:
    no_prefix = ClusterIdentityMapper("")
    headers = {"impersonate-user": "bob", header: "kubeadm:cluster-admins"}
    with pytest.raises(Forbidden, match="without cluster_identity_prefix it would be the cluster's group") as error:
        identify_user(headers, names=no_prefix)
    assert 'begins with "service:", or set a prefix' in error.value.message
    assert "kubeadm:cluster-admins" in identify_user(headers).groups
    assert "kubeadm:cluster-admins" in identify_user(headers, APPS, no_prefix).groups
    for group in ("service:team:web", "system:authenticated"):
        assert group in identify_user({"impersonate-user": "bob", header: group}, names=no_prefix).groups


def test_t19_admin_groups_and_system_authenticated_can_be_impersonated_through_gateways() -> None:
    admins_only = Impersonation(AuthorizerChain([administrators]).authorize, find_no_user, lambda name: False)
    for group in ("system:masters", "service:admins", "system:authenticated"):
        request = call(target=GATEWAY, headers={"impersonate-user": "bob", "impersonate-group": group})
        assert group in build_identify([lambda call: ADMIN], admins_only, IDENTITIES)(request).groups
        assert group in build_identify([lambda call: ADMIN], admins_only, ClusterIdentityMapper(""))(request).groups


class LaggingView:
    """A view that has not seen a revocation yet."""

    def __init__(self) -> None:
        self.is_behind = True
        self.waiting = 0

    def is_current(self) -> bool:
        return not self.is_behind

    async def wait_current(self) -> None:
        self.waiting += 1
        self.is_behind = False

    def authenticate(self, call: Call) -> User | None:
        if not self.is_behind:
            raise Unauthorized("the key was revoked")
        return ALICE


@pytest.mark.parametrize("target", [APPS, RequestInfo("get", "/metrics")])
async def test_a_worker_that_is_behind_others_waits_before_it_authenticates(target: RequestInfo) -> None:
    view = LaggingView()
    identify = build_identify([view.authenticate], NO_IMPERSONATION, IDENTITIES)
    stage = authenticate_when_current(
        build_authentication_stage(identify, ignore_use), view.is_current, view.wait_current
    )
    for _ in range(3):
        reply = await Pipeline((stage, build_authorize_stage(allow)), always_reply(SERVED))(call(target=target))
        assert reply.status == 401 and view.waiting == 1


async def test_public_requests_do_not_wait_for_the_view() -> None:
    view = LaggingView()
    identify = build_identify([view.authenticate], NO_IMPERSONATION, IDENTITIES)
    stage = authenticate_when_current(
        build_authentication_stage(identify, ignore_use), view.is_current, view.wait_current
    )
    assert stage(call(target=RequestInfo("get", "/livez"))) is None and view.waiting == 0
