"""server.api.routing: the target of every method, path and query, including malicious ones."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.errors import BadRequest
from fairlead.features.clusters import find_gateways
from fairlead.server.api.routing import (
    COLLECTION_CACHE_SIZE,
    MAX_CACHED_METHOD_LENGTH,
    MAX_CACHED_PATH_LENGTH,
    RouteConfig,
    Router,
    parse_bool_param,
    route,
)

MOUNT = "/kubernetes/management"
GROUP = "management.service.sh"


def route_request(method: str, path: str, **query: str) -> RequestInfo:
    return route(method, path, {name: [value] for name, value in query.items()}, RouteConfig(MOUNT))


def get_resource_fields(target: RequestInfo) -> tuple[str, str, str, str, str, str]:
    """The fields that name a resource, in the order of a path."""
    return target.group, target.version, target.namespace, target.resource, target.name, target.subresource


CORE = f"{MOUNT}/api/v1"
GROUP_ROOT = f"{MOUNT}/apis/{GROUP}/v1"

RESOURCE_PATHS = [
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
    (f"{GROUP_ROOT}/apps", (GROUP, "v1", "", "apps", "", "")),
    (f"{GROUP_ROOT}/apps/one", (GROUP, "v1", "", "apps", "one", "")),
    (f"{GROUP_ROOT}/clusters/one/status", (GROUP, "v1", "", "clusters", "one", "status")),
    (f"{GROUP_ROOT}/clusters/one/proxy/deep/er", (GROUP, "v1", "", "clusters", "one", "proxy/deep/er")),
    (f"{GROUP_ROOT}/namespaces/demo/workspaces/one", (GROUP, "v1", "demo", "workspaces", "one", "")),
    # Only the core group has namespaces, so in other groups these are resources in a namespace.
    (f"{GROUP_ROOT}/namespaces/demo/status", (GROUP, "v1", "demo", "status", "", "")),
    (f"{GROUP_ROOT}/namespaces/demo/finalize/one", (GROUP, "v1", "demo", "finalize", "one", "")),
    (f"{GROUP_ROOT}/namespaces", (GROUP, "v1", "", "namespaces", "", "")),
]


@pytest.mark.parametrize(("path", "expected"), RESOURCE_PATHS)
def test_a_path_names_one_resource(path: str, expected: tuple[str, ...]) -> None:
    target = route_request("GET", path)
    assert get_resource_fields(target) == expected
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
def test_each_method_has_one_verb(method: str, rest: str, verb: str) -> None:
    assert route_request(method, f"{GROUP_ROOT}/apps{rest}").verb == verb


@pytest.mark.parametrize("method", ["get", "Get", "delete", "post", "OPTIONS", "TRACE", "CONNECT", "", "GET ", "WATCH"])
@pytest.mark.parametrize("rest", ["", "/one"])
def test_other_methods_have_no_verb_on_resources(method: str, rest: str) -> None:
    assert route_request(method, f"{GROUP_ROOT}/apps{rest}").verb == ""


@pytest.mark.parametrize("path", ["/version", f"{MOUNT}/version"])
@pytest.mark.parametrize("method", ["get", "gET", "head", ""])
def test_lower_case_methods_have_no_verb_on_other_paths(method: str, path: str) -> None:
    assert route_request(method, path).verb == ""


@pytest.mark.parametrize(
    ("method", "verb"), [("GET", "get"), ("HEAD", "get"), ("POST", "post"), ("OPTIONS", "options")]
)
def test_the_verb_on_other_paths_is_the_method(method: str, verb: str) -> None:
    assert route_request(method, "/version").verb == verb


@pytest.mark.parametrize("flag", ["", "1", "true", "True", "yes", "no", "00", " false"])
def test_a_list_with_a_true_watch_parameter_is_a_watch(flag: str) -> None:
    assert route_request("GET", f"{GROUP_ROOT}/apps", watch=flag).verb == "watch"


@pytest.mark.parametrize("flag", ["0", "false", "False", "FALSE"])
def test_a_list_with_a_false_watch_parameter_is_a_list(flag: str) -> None:
    assert route_request("GET", f"{GROUP_ROOT}/apps", watch=flag).verb == "list"


@pytest.mark.parametrize(("method", "verb"), [("POST", "create"), ("DELETE", "deletecollection")])
def test_only_lists_become_watches(method: str, verb: str) -> None:
    assert route_request(method, f"{GROUP_ROOT}/apps", watch="1").verb == verb
    assert route_request("GET", f"{GROUP_ROOT}/apps/one", watch="1").verb == "get"


def test_the_first_watch_parameter_counts() -> None:
    assert route("GET", f"{GROUP_ROOT}/apps", {"watch": ["0", "1"]}, RouteConfig(MOUNT)).verb == "list"
    assert route("GET", f"{GROUP_ROOT}/apps", {"watch": ["1", "0"]}, RouteConfig(MOUNT)).verb == "watch"


def test_an_absent_boolean_parameter_is_false() -> None:
    assert not parse_bool_param("", present=False)
    assert parse_bool_param("")


# The HTTP server passes decoded paths: %2e%2e has become .., and %252e has become %2e.
MALICIOUS_SEGMENTS = ["..", ".", "%2e%2e", "%", "a%2fb", "one%00", "a\x00b", "\x00"]


@pytest.mark.parametrize("segment", MALICIOUS_SEGMENTS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_malicious_name_is_rejected(method: str, segment: str) -> None:
    for path in (
        f"{GROUP_ROOT}/apps/{segment}",
        f"{GROUP_ROOT}/apps/{segment}/status",
        f"{CORE}/namespaces/demo/configmaps/{segment}",
    ):
        with pytest.raises(BadRequest, match="Name parameter invalid"):
            route_request(method, path)


@pytest.mark.parametrize("segment", MALICIOUS_SEGMENTS)
def test_a_malicious_namespace_is_rejected(segment: str) -> None:
    for path in (f"{CORE}/namespaces/{segment}/configmaps", f"{GROUP_ROOT}/namespaces/{segment}/workspaces/one"):
        with pytest.raises(BadRequest, match="Name parameter invalid"):
            route_request("GET", path)


@pytest.mark.parametrize("segment", ["..", "%2e%2e", "a\x00b"])
def test_a_malicious_subresource_stays_a_subresource(segment: str) -> None:
    """It is not served, and must never become another resource or name."""
    target = route_request("GET", f"{GROUP_ROOT}/apps/one/{segment}/clusters")
    assert get_resource_fields(target) == (GROUP, "v1", "", "apps", "one", f"{segment}/clusters")


NON_RESOURCE_PATHS = [
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


@pytest.mark.parametrize(("path", "rest", "root"), NON_RESOURCE_PATHS)
def test_other_paths_are_below_one_of_the_two_roots(path: str, rest: str, root: str) -> None:
    assert route_request("GET", path) == RequestInfo("get", rest, root)


@pytest.mark.parametrize(
    "path",
    [
        f"{CORE}//configmaps",
        f"{CORE}/namespaces//configmaps",
        f"{CORE}/namespaces/demo/namespaces/other",
        f"{GROUP_ROOT}//apps/one",
        f"{MOUNT}/apis//v1/",
    ],
)
def test_a_path_with_empty_segments_is_not_a_resource(path: str) -> None:
    assert not route_request("GET", path).is_resource


def test_another_mount_point_moves_the_whole_api() -> None:
    assert get_resource_fields(route("GET", "/here/api/v1/namespaces", {}, RouteConfig("/here")))[3] == "namespaces"
    assert not route("GET", f"{CORE}/namespaces", {}, RouteConfig("/here")).is_resource


ROOTS = RouteConfig(MOUNT, (find_gateways(GROUP, "service-p-"),))
CLUSTER = ("cluster", GROUP, "v1", "", "clusters", "c")
SPACE = ("project-space", GROUP, "v1", "service-p-p", "spaceinstances", "s")
VIRTUAL = ("project-virtualcluster", GROUP, "v1", "service-p-p", "virtualclusterinstances", "v")
GATEWAYS = [
    ("/kubernetes/cluster/c", CLUSTER),
    ("/kubernetes/project/p/space/s", SPACE),
    ("/kubernetes/project/p/virtualcluster/v", VIRTUAL),
]
GATEWAY_PATHS = [
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


@pytest.mark.parametrize(("prefix", "gateway_fields"), GATEWAYS)
@pytest.mark.parametrize(("rest", "verb", "path", "fields"), GATEWAY_PATHS)
def test_a_gateway_request_has_a_gateway_and_a_target_behind_it(
    prefix: str, gateway_fields: tuple[str, ...], rest: str, verb: str, path: str, fields: tuple[str, ...]
) -> None:
    target = route("GET", prefix + rest, {}, ROOTS)
    gateway = target.gateway
    assert gateway is not None and gateway.verb == "use"
    assert (
        gateway.root,
        gateway.group,
        gateway.version,
        gateway.namespace,
        gateway.resource,
        gateway.name,
    ) == gateway_fields
    assert (target.verb, target.path, target.root) == (verb, path or rest, gateway.root)
    assert get_resource_fields(target) == fields


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
def test_an_incomplete_gateway_path_is_not_a_gateway(path: str) -> None:
    target = route("GET", path, {}, ROOTS)
    assert target.gateway is None and target.root == "" and not target.is_resource


@pytest.mark.parametrize("name", ["..", ".", "a%b"])
def test_a_malicious_gateway_name_is_rejected(name: str) -> None:
    with pytest.raises(BadRequest):
        route("GET", f"/kubernetes/cluster/{name}/api", {}, ROOTS)
    with pytest.raises(BadRequest):
        route("GET", f"/kubernetes/project/p/space/{name}/api", {}, ROOTS)


def test_the_management_api_has_no_watch_paths() -> None:
    assert get_resource_fields(route_request("GET", f"{GROUP_ROOT}/watch/apps")) == (
        GROUP,
        "v1",
        "",
        "watch",
        "apps",
        "",
    )


SEGMENTS = ("namespaces", "demo", "apps", "one", "status", "finalize", "watch", "proxy")
SPECIAL_SEGMENTS = ("", ".", "..", "a b", "a%2Fb", "\x00", "Ü")
segments = st.sampled_from(SEGMENTS + SPECIAL_SEGMENTS)
methods = st.sampled_from(["GET", "HEAD", "POST", "PATCH", "DELETE", "BREW"])
prefixes = st.sampled_from(
    [
        CORE,
        GROUP_ROOT,
        MOUNT,
        f"{MOUNT}/api",
        f"{MOUNT}x",
        "",
        "/kubernetes/cluster/c1/api/v1",
        "/kubernetes/cluster/c1",
    ]
)


@given(methods, prefixes, st.lists(segments, max_size=6))
def test_a_cached_route_equals_an_uncached_one(method: str, prefix: str, path_segments: list[str]) -> None:
    path = "/".join([prefix, *path_segments])
    roots = RouteConfig(MOUNT, (find_gateways(GROUP, "p-"),))
    router = Router(roots)
    try:
        expected = route(method, path, {"watch": ["1"]}, roots)
    except BadRequest as error:
        for _ in range(2):
            with pytest.raises(BadRequest, match=re.escape(str(error))):
                router(method, path, {"watch": ["1"]})
        return
    for _ in range(2):
        target = router(method, path, {"watch": ["1"]})
        assert target == expected
        if target.cached_shape is not None and target.name != target.namespace:
            assert target.cached_shape == expected.compute_shape()


@pytest.mark.parametrize(("path", "_"), RESOURCE_PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("suffix", ["", "/", "//"])
def test_cached_routes_of_all_resource_paths_equal_uncached_ones(
    path: str, _: object, method: str, suffix: str
) -> None:
    router = Router(RouteConfig(MOUNT))
    for _attempt in range(2):
        assert router(method, path + suffix, {}) == route_request(method, path + suffix)


def test_the_route_cache_is_bounded() -> None:
    router = Router(RouteConfig(MOUNT))
    assert router("GET", f"{GROUP_ROOT}/{'a' * MAX_CACHED_PATH_LENGTH}/one", {}).name == "one"
    assert not router._targets
    assert not router("A" * (MAX_CACHED_METHOD_LENGTH + 1), f"{GROUP_ROOT}/apps/one", {}).verb
    assert not router._targets
    for number in range(COLLECTION_CACHE_SIZE * 2 + 1):
        assert router("GET", f"{GROUP_ROOT}/namespaces/n{number}/apps/one", {}).namespace == f"n{number}"
        assert len(router._targets) <= COLLECTION_CACHE_SIZE
