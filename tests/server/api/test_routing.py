"""The route table: what every method, path and query asks for, tricks included."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.errors import BadRequest
from fairlead.server.api.routing import (
    COLLECTION_CACHE_SIZE,
    MAX_CACHED_PATH_LENGTH,
    RouteConfig,
    Router,
    parse_bool_param,
    route,
)

MOUNT = "/kubernetes/management"
GROUP = "management.service.sh"


def routed(method: str, path: str, **query: str) -> RequestInfo:
    return route(method, path, {name: [value] for name, value in query.items()}, RouteConfig(MOUNT))


def place(target: RequestInfo) -> tuple[str, str, str, str, str, str]:
    """Everything that names a resource, in the order of a path."""
    return target.group, target.version, target.namespace, target.resource, target.name, target.subresource


CORE = f"{MOUNT}/api/v1"
NAMED = f"{MOUNT}/apis/{GROUP}/v1"

PLACES = [
    (f"{CORE}/namespaces", ("", "v1", "", "namespaces", "", "")),
    (f"{CORE}/namespaces/", ("", "v1", "", "namespaces", "", "")),
    (f"{CORE}/namespaces/demo", ("", "v1", "demo", "namespaces", "demo", "")),
    (f"{CORE}/namespaces/demo/", ("", "v1", "demo", "namespaces", "demo", "")),
    (f"{CORE}/namespaces/demo/status", ("", "v1", "demo", "namespaces", "demo", "status")),
    (f"{CORE}/namespaces/demo/finalize", ("", "v1", "demo", "namespaces", "demo", "finalize")),
    (f"{CORE}/namespaces/demo/configmaps", ("", "v1", "demo", "configmaps", "", "")),
    (f"{CORE}/namespaces/demo/configmaps/one", ("", "v1", "demo", "configmaps", "one", "")),
    (f"{CORE}/namespaces/status/configmaps/one", ("", "v1", "status", "configmaps", "one", "")),
    (f"{CORE}/namespaces/demo/configmaps/status", ("", "v1", "demo", "configmaps", "status", "")),
    (f"{CORE}/configmaps", ("", "v1", "", "configmaps", "", "")),
    (f"{NAMED}/apps", (GROUP, "v1", "", "apps", "", "")),
    (f"{NAMED}/apps/one", (GROUP, "v1", "", "apps", "one", "")),
    (f"{NAMED}/clusters/one/status", (GROUP, "v1", "", "clusters", "one", "status")),
    (f"{NAMED}/clusters/one/proxy/deep/er", (GROUP, "v1", "", "clusters", "one", "proxy/deep/er")),
    (f"{NAMED}/namespaces/demo/workspaces/one", (GROUP, "v1", "demo", "workspaces", "one", "")),
    # Only the core group has namespaces of its own, so elsewhere these words are resources in a namespace.
    (f"{NAMED}/namespaces/demo/status", (GROUP, "v1", "demo", "status", "", "")),
    (f"{NAMED}/namespaces/demo/finalize/one", (GROUP, "v1", "demo", "finalize", "one", "")),
    (f"{NAMED}/namespaces", (GROUP, "v1", "", "namespaces", "", "")),
    # A namespace that is left empty is all of them, and authorized as such.
]


@pytest.mark.parametrize(("path", "expected"), PLACES)
def test_a_path_names_one_place(path: str, expected: tuple[str, ...]) -> None:
    target = routed("GET", path)
    assert place(target) == expected
    assert target.root == MANAGEMENT
    assert target.is_resource


VERBS = [
    ("GET", "", "list"),
    ("HEAD", "", "list"),
    ("POST", "", "create"),
    ("PUT", "", "update"),
    ("PATCH", "", "patch"),
    ("DELETE", "", "deletecollection"),
    ("GET", "/one", "get"),
    ("HEAD", "/one", "get"),
    ("POST", "/one", "create"),
    ("PUT", "/one", "update"),
    ("PATCH", "/one", "patch"),
    ("DELETE", "/one", "delete"),
    ("GET", "/one/status", "get"),
    ("PUT", "/one/status", "update"),
]


@pytest.mark.parametrize(("method", "rest", "verb"), VERBS)
def test_a_method_is_one_verb(method: str, rest: str, verb: str) -> None:
    assert routed(method, f"{NAMED}/apps{rest}").verb == verb


@pytest.mark.parametrize("method", ["get", "Get", "delete", "post", "OPTIONS", "TRACE", "CONNECT", "", "GET ", "WATCH"])
@pytest.mark.parametrize("rest", ["", "/one"])
def test_no_other_method_is_a_verb_on_resources(method: str, rest: str) -> None:
    assert routed(method, f"{NAMED}/apps{rest}").verb == ""


@pytest.mark.parametrize("path", ["/version", f"{MOUNT}/version"])
@pytest.mark.parametrize("method", ["get", "gET", "head", ""])
def test_methods_in_lower_case_are_no_verbs_elsewhere_either(method: str, path: str) -> None:
    assert routed(method, path).verb == ""


@pytest.mark.parametrize(
    ("method", "verb"), [("GET", "get"), ("HEAD", "get"), ("POST", "post"), ("OPTIONS", "options")]
)
def test_elsewhere_the_verb_is_the_method(method: str, verb: str) -> None:
    assert routed(method, "/version").verb == verb


@pytest.mark.parametrize("flag", ["", "1", "true", "True", "yes", "no", "00", " false"])
def test_a_list_with_any_other_flag_is_a_watch(flag: str) -> None:
    assert routed("GET", f"{NAMED}/apps", watch=flag).verb == "watch"


@pytest.mark.parametrize("flag", ["0", "false", "False", "FALSE"])
def test_a_list_whose_flag_says_no_stays_a_list(flag: str) -> None:
    assert routed("GET", f"{NAMED}/apps", watch=flag).verb == "list"


@pytest.mark.parametrize(("method", "verb"), [("POST", "create"), ("DELETE", "deletecollection")])
def test_only_lists_become_watches(method: str, verb: str) -> None:
    assert routed(method, f"{NAMED}/apps", watch="1").verb == verb
    assert routed("GET", f"{NAMED}/apps/one", watch="1").verb == "get"


def test_the_first_flag_counts() -> None:
    assert route("GET", f"{NAMED}/apps", {"watch": ["0", "1"]}, RouteConfig(MOUNT)).verb == "list"
    assert route("GET", f"{NAMED}/apps", {"watch": ["1", "0"]}, RouteConfig(MOUNT)).verb == "watch"


def test_a_flag_that_is_absent_is_no() -> None:
    assert not parse_bool_param("", present=False)
    assert parse_bool_param("")


# The HTTP server hands paths over decoded, so %2e%2e has become .. by now, and %252e has become %2e.
TRICKS = ["..", ".", "%2e%2e", "%", "a%2fb", "one%00", "a\x00b", "\x00"]


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_name_that_plays_tricks_is_refused(method: str, trick: str) -> None:
    for path in (f"{NAMED}/apps/{trick}", f"{NAMED}/apps/{trick}/status", f"{CORE}/namespaces/demo/configmaps/{trick}"):
        with pytest.raises(BadRequest, match="Name parameter invalid"):
            routed(method, path)


@pytest.mark.parametrize("trick", TRICKS)
def test_a_namespace_that_plays_tricks_is_refused(trick: str) -> None:
    for path in (f"{CORE}/namespaces/{trick}/configmaps", f"{NAMED}/namespaces/{trick}/workspaces/one"):
        with pytest.raises(BadRequest, match="Name parameter invalid"):
            routed("GET", path)


@pytest.mark.parametrize("trick", ["..", "%2e%2e", "a\x00b"])
def test_a_subresource_that_plays_tricks_stays_a_subresource(trick: str) -> None:
    """It names nothing that is served. What matters is that it never becomes another resource or name."""
    target = routed("GET", f"{NAMED}/apps/one/{trick}/clusters")
    assert place(target) == (GROUP, "v1", "", "apps", "one", f"{trick}/clusters")


NO_RESOURCES = [
    (MOUNT, "/", MANAGEMENT),
    (f"{MOUNT}/", "/", MANAGEMENT),
    (f"{MOUNT}//", "//", MANAGEMENT),
    (f"{MOUNT}/version", "/version", MANAGEMENT),
    (f"{MOUNT}//version", "//version", MANAGEMENT),
    (f"{MOUNT}/version/", "/version/", MANAGEMENT),
    (f"{MOUNT}/api", "/api", MANAGEMENT),
    (f"{MOUNT}/api/v1", "/api/v1", MANAGEMENT),
    (f"{MOUNT}/api/v1/", "/api/v1/", MANAGEMENT),
    (f"{MOUNT}/apis", "/apis", MANAGEMENT),
    (f"{MOUNT}/apis/{GROUP}", f"/apis/{GROUP}", MANAGEMENT),
    (f"{MOUNT}/apis/{GROUP}/v1", f"/apis/{GROUP}/v1", MANAGEMENT),
    (f"{MOUNT}/apis/{GROUP}/v1/namespaces/demo", f"/apis/{GROUP}/v1/namespaces/demo", MANAGEMENT),
    (f"{MOUNT}/nowhere/v1/apps", "/nowhere/v1/apps", MANAGEMENT),
    (f"{MOUNT}/../version", "/../version", MANAGEMENT),
    ("/", "/", ""),
    ("", "", ""),
    ("/version", "/version", ""),
    ("//version", "//version", ""),
    (f"{MOUNT}x/version", f"{MOUNT}x/version", ""),
    (f"/{MOUNT}/version", f"/{MOUNT}/version", ""),
    ("/kubernetes", "/kubernetes", ""),
    ("/api/v1/namespaces", "/api/v1/namespaces", ""),
    ("/Kubernetes/management/version", "/Kubernetes/management/version", ""),
]


@pytest.mark.parametrize(("path", "rest", "root"), NO_RESOURCES)
def test_everything_else_is_a_path_below_one_of_the_two_roots(path: str, rest: str, root: str) -> None:
    assert routed("GET", path) == RequestInfo("get", rest, root)


@pytest.mark.parametrize(
    "path",
    [
        f"{CORE}//configmaps",
        f"{CORE}/namespaces//configmaps",
        f"{CORE}/namespaces/demo/namespaces/other",
        f"{NAMED}//apps/one",
        f"{MOUNT}/apis//v1/",
    ],
)
def test_a_resource_without_a_name_is_none(path: str) -> None:
    assert not routed("GET", path).is_resource


def test_another_mount_point_moves_the_whole_api() -> None:
    assert place(route("GET", "/here/api/v1/namespaces", {}, RouteConfig("/here")))[3] == "namespaces"
    assert not route("GET", f"{CORE}/namespaces", {}, RouteConfig("/here")).is_resource


ROOTS = RouteConfig(MOUNT, GROUP, "service-p-")
CLUSTER = ("cluster", GROUP, "v1", "", "clusters", "c")
SPACE = ("project-space", GROUP, "v1", "service-p-p", "spaceinstances", "s")
VIRTUAL = ("project-virtualcluster", GROUP, "v1", "service-p-p", "virtualclusterinstances", "v")
ENTRANCES = [
    ("/kubernetes/cluster/c", CLUSTER),
    ("/kubernetes/project/p/space/s", SPACE),
    ("/kubernetes/project/p/virtualcluster/v", VIRTUAL),
]
BEHIND = [
    ("", "get", "/", ("", "", "", "", "", "")),
    ("/", "get", "/", ("", "", "", "", "", "")),
    ("/version", "get", "/version", ("", "", "", "", "", "")),
    ("/api/v1/pods", "list", "/api/v1/pods", ("", "v1", "", "pods", "", "")),
    ("/api/v1/namespaces/n/pods/x/log", "get", "", ("", "v1", "n", "pods", "x", "log")),
    ("/api/v1/namespaces/n/pods/x/exec", "create", "", ("", "v1", "n", "pods", "x", "exec")),
    ("/api/v1/namespaces/n/pods/x/attach", "create", "", ("", "v1", "n", "pods", "x", "attach")),
    ("/api/v1/namespaces/n/pods/x/portforward", "create", "", ("", "v1", "n", "pods", "x", "portforward")),
    ("/api/v1/nodes/n/proxy/run/x", "proxy", "", ("", "v1", "", "nodes", "n", "proxy/run/x")),
    ("/api/v1/namespaces/n/services/s:80/proxy", "proxy", "", ("", "v1", "n", "services", "s:80", "proxy")),
    ("/apis/apps/v1/namespaces/n/deployments/", "list", "", ("apps", "v1", "n", "deployments", "", "")),
    ("/api/v1/watch/namespaces/n/secrets", "watch", "", ("", "v1", "n", "secrets", "", "")),
    ("/api/v1/watch/namespaces/n/secrets/s", "watch", "", ("", "v1", "n", "secrets", "s", "")),
    ("/kubernetes/cluster/d/api", "get", "/kubernetes/cluster/d/api", ("", "", "", "", "", "")),
]


@pytest.mark.parametrize(("start", "entrance"), ENTRANCES)
@pytest.mark.parametrize(("rest", "verb", "path", "inner"), BEHIND)
def test_a_gateway_is_an_entrance_and_what_is_asked_behind_it(
    start: str, entrance: tuple[str, ...], rest: str, verb: str, path: str, inner: tuple[str, ...]
) -> None:
    target = route("GET", start + rest, {}, ROOTS)
    via = target.gateway
    assert via is not None and via.verb == "use"
    assert (via.root, via.group, via.version, via.namespace, via.resource, via.name) == entrance
    assert (target.verb, target.path, target.root) == (verb, path or rest, via.root)
    assert place(target) == inner


@pytest.mark.parametrize(
    "path",
    [
        "/kubernetes",
        "/kubernetes/",
        "/kubernetes/cluster",
        "/kubernetes/cluster/",
        "/kubernetes/cluster//api",
        "/kubernetes/clusters/c/api",
        "/kubernetes/project/p",
        "/kubernetes/project/p/space",
        "/kubernetes/project/p/space/",
        "/kubernetes/project//space/s",
        "/kubernetes/project/p/spaces/s",
        "/kubernetes/virtualcluster/c/n/v",
        "/x/kubernetes/cluster/c",
    ],
)
def test_half_a_way_to_a_gateway_leads_nowhere(path: str) -> None:
    target = route("GET", path, {}, ROOTS)
    assert target.gateway is None and target.root == "" and not target.is_resource


@pytest.mark.parametrize("name", ["..", ".", "a%b"])
def test_an_entrance_has_no_tricky_name(name: str) -> None:
    with pytest.raises(BadRequest):
        route("GET", f"/kubernetes/cluster/{name}/api", {}, ROOTS)
    with pytest.raises(BadRequest):
        route("GET", f"/kubernetes/project/p/space/{name}/api", {}, ROOTS)


def test_the_management_api_knows_no_old_way_to_watch() -> None:
    assert place(routed("GET", f"{NAMED}/watch/apps")) == (GROUP, "v1", "", "watch", "apps", "")


WORDS = ("namespaces", "demo", "apps", "one", "status", "finalize", "watch", "proxy")
ODD = ("", ".", "..", "a b", "a%2Fb", "\x00", "Ü")
segments = some.sampled_from(WORDS + ODD)
methods = some.sampled_from(["GET", "HEAD", "POST", "PATCH", "DELETE", "BREW"])
beginnings = some.sampled_from(
    [CORE, NAMED, MOUNT, f"{MOUNT}/api", f"{MOUNT}x", "", "/kubernetes/cluster/c1/api/v1", "/kubernetes/cluster/c1"]
)


@given(methods, beginnings, some.lists(segments, max_size=6))
def test_what_is_remembered_of_a_path_makes_no_difference(method: str, beginning: str, steps: list[str]) -> None:
    path = "/".join([beginning, *steps])
    roots = RouteConfig(MOUNT, GROUP, "p-")
    router = Router(roots)
    try:
        expected = route(method, path, {"watch": ["1"]}, roots)
    except BadRequest as refusal:
        for _ in range(2):
            with pytest.raises(BadRequest, match=re.escape(str(refusal))):
                router(method, path, {"watch": ["1"]})
        return
    assert [router(method, path, {"watch": ["1"]}) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize(("path", "_"), PLACES)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("end", ["", "/", "//"])
def test_what_is_remembered_makes_no_difference_to_any_place(path: str, _: object, method: str, end: str) -> None:
    router = Router(RouteConfig(MOUNT))
    for _again in range(2):
        assert router(method, path + end, {}) == routed(method, path + end)


def test_not_more_is_remembered_than_there_is_room_for() -> None:
    router = Router(RouteConfig(MOUNT))
    assert router("GET", f"{NAMED}/{'a' * MAX_CACHED_PATH_LENGTH}/one", {}).name == "one"
    assert not router._collections
    for number in range(COLLECTION_CACHE_SIZE * 2 + 1):
        assert router("GET", f"{NAMED}/namespaces/n{number}/apps/one", {}).namespace == f"n{number}"
        assert len(router._collections) <= COLLECTION_CACHE_SIZE
