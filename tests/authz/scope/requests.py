"""All possible requests, with their rows in matrix.md.

Built from the catalog, so that new kinds, subresources and actions are included automatically. The names are those of
the table: project `web` with its space `dev` and virtual cluster `ci`, cluster `berlin`, ConfigMap `settings`. The
user is `ada`, a member of team `core`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from fairlead.authz.scope import gateway_target
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.kinds.core.empty_kinds import CUSTOM_RESOURCE_DEFINITION
from fairlead.registry.kind import ALL_VERBS, MANAGEMENT_GROUP, Catalog, Kind, Sensitivity

PREFIX = "service-p-"
WEB, LAB, DEFAULT = f"{PREFIX}web", f"{PREFIX}lab", "default"

ADA = User("ada", ("service:user:ada", "service:user:*", "service:team:core", *AUTHENTICATED_GROUPS), key="k")

READ = ("get", "list", "watch")
OBJECT_VERBS = (*READ, "create", "update", "patch", "delete", "use", "bind", "escalate")
COLLECTION_VERBS = ("list", "watch", "create", "update", "patch", "deletecollection")
SUBRESOURCE_VERBS = ("get", "create", "update", "patch", "delete")
METHODS = ("get", "post", "put", "patch", "delete", "options", "")

REVIEW_ROWS = {
    "selves": "identity review",
    "selfsubjectreviews": "identity review",
    "selfsubjectaccessreviews": "self access review",
    "selfsubjectaccessreviewbatches": "self access review",
    "resourcecounts": "resource counts",
}
CRD_ROW = "custom resource definitions"
MIGRATION = "migratevirtualclusterinstance"
INSTANCES = {"spaceinstances": "space", "virtualclusterinstances": "virtual cluster"}
INSTANCE_NAMES = {"space": "dev", "virtual cluster": "ci"}
OBJECT_NAMES = ("x", "settings", *INSTANCE_NAMES.values())
WORKSPACES = "devpodworkspaceinstances"
PRINCIPALS = {"users": ("ada", "bob"), "teams": ("core", "ops")}


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """A request with its row. `inner` is the request to the cluster behind a gateway."""

    row: str
    verb: str
    target: RequestInfo
    inner: RequestInfo | None = None


def all_requests(catalog: Catalog, documents: Iterable[str], public_paths: Iterable[str]) -> Iterator[MatrixRequest]:
    for kind in catalog.kinds:
        if kind.namespaced:
            yield from _namespaced_requests(kind)
        else:
            yield from _with_wrong_namespaces(_cluster_scoped_requests(kind))
    for group, plural in (("", "endpoints"), ("example.com", "things")):
        unknown = Kind("Unknown", plural, True, {}, "", group=group, sensitivity=Sensitivity.NORMAL)
        for namespace in (WEB, LAB, DEFAULT, ""):
            yield from _object_requests("a kind that is not served", unknown, namespace, "x", "")
    yield from _path_requests(documents, frozenset(public_paths))
    yield from _impersonation_requests()
    yield from _gateway_requests()


def _target(kind: Kind, verb: str, namespace: str = "", name: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, "/x", MANAGEMENT, kind.group, kind.version, kind.plural, subresource, namespace, name)


def _subresources(kind: Kind) -> tuple[str, ...]:
    """The subresources and actions of a kind, and an unknown one."""
    return (*kind.subresources, *(action.name for action in kind.actions), "unknown")


def _object_requests(row: str, kind: Kind, namespace: str, *names: str) -> Iterator[MatrixRequest]:
    """An object and its subresources, where they have the same row."""
    for name in names:
        yield from (MatrixRequest(row, verb, _target(kind, verb, namespace, name)) for verb in OBJECT_VERBS)
        for subresource in _subresources(kind):
            yield from _subresource_requests(row, kind, subresource, namespace, name)


def _subresource_requests(row: str, kind: Kind, subresource: str, namespace: str, name: str) -> Iterator[MatrixRequest]:
    return (MatrixRequest(row, verb, _target(kind, verb, namespace, name, subresource)) for verb in SUBRESOURCE_VERBS)


def _collection_requests(row: str, kind: Kind, namespace: str = "") -> Iterator[MatrixRequest]:
    return (MatrixRequest(row, verb, _target(kind, verb, namespace)) for verb in COLLECTION_VERBS)


# --- cluster-scoped kinds ---


def _with_wrong_namespaces(requests: Iterable[MatrixRequest]) -> Iterator[MatrixRequest]:
    """Adds each request with a namespace, which does not matter for cluster-scoped kinds."""
    for request in requests:
        yield request
        if request.target.resource != "namespaces":
            yield from (replace(request, target=replace(request.target, namespace=each)) for each in (WEB, DEFAULT))


def _cluster_scoped_requests(kind: Kind) -> Iterator[MatrixRequest]:
    is_management_kind = kind.group == MANAGEMENT_GROUP
    if is_management_kind and kind.plural == "projects":
        return _project_requests(kind)
    if is_management_kind and kind.plural == "clusters":
        return _cluster_requests(kind)
    if is_management_kind and kind.plural in PRINCIPALS:
        return _principal_requests(kind)
    if (kind.group, kind.plural) == ("", "namespaces"):
        return _namespace_requests(kind)
    if not kind.persisted:
        return _review_requests(kind)
    if kind == CUSTOM_RESOURCE_DEFINITION:
        return chain(_object_requests(CRD_ROW, kind, "", "x"), _collection_requests(CRD_ROW, kind))
    return _other_cluster_scoped_requests(kind)


def _other_cluster_scoped_requests(kind: Kind) -> Iterator[MatrixRequest]:
    yield from _object_requests("a cluster-scoped object of another kind", kind, "", "x")
    yield from _collection_requests("all cluster-scoped objects of another kind", kind)


def _review_requests(kind: Kind) -> Iterator[MatrixRequest]:
    row = REVIEW_ROWS.get(kind.plural, "another review")
    yield from (MatrixRequest(row, verb, _target(kind, verb)) for verb in ALL_VERBS)


def _project_requests(kind: Kind) -> Iterator[MatrixRequest]:
    for name, row in (("web", "project `web`"), ("lab", "another project")):
        yield from (MatrixRequest(row, verb, _target(kind, verb, "", name)) for verb in OBJECT_VERBS)
        for subresource in _subresources(kind):
            for request in _subresource_requests(f"{row}, a subresource", kind, subresource, "", name):
                is_migration = (subresource, request.verb) == (MIGRATION, "create")
                yield replace(request, row=f"{row}, a migration into it") if is_migration else request
    yield from _collection_requests("all projects", kind)


def _namespace_requests(kind: Kind) -> Iterator[MatrixRequest]:
    rows = {WEB: "namespace of project `web`", LAB: "namespace of another project", DEFAULT: "another namespace"}
    for name, row in rows.items():
        yield from _object_requests(row, kind, name, name)
        # A list or watch with a field selector for the name has a name, but no namespace.
        yield from (MatrixRequest(row, verb, _target(kind, verb, "", name)) for verb in ("list", "watch"))
    yield from _collection_requests("all namespaces", kind)


def _cluster_requests(kind: Kind) -> Iterator[MatrixRequest]:
    for name, row in (("berlin", "cluster `berlin`"), ("oslo", "another cluster")):
        yield from (MatrixRequest(row, verb, _target(kind, verb, "", name)) for verb in OBJECT_VERBS)
        for subresource in _subresources(kind):
            yield from _subresource_requests(
                row if subresource == "status" else f"{row}, a subresource", kind, subresource, "", name
            )
    yield from _collection_requests("all clusters", kind)


def _principal_requests(kind: Kind) -> Iterator[MatrixRequest]:
    own_name, other_name = PRINCIPALS[kind.plural]
    row = "own user or team"
    yield from (MatrixRequest(row, verb, _target(kind, verb, "", own_name)) for verb in OBJECT_VERBS)
    for subresource in _subresources(kind):
        yield from _subresource_requests(f"{row}, a subresource", kind, subresource, "", own_name)
    yield from _object_requests("another user or team", kind, "", other_name, "*")
    yield from _collection_requests("all users or teams", kind)


# --- namespaced kinds ---


def _namespaced_requests(kind: Kind) -> Iterator[MatrixRequest]:
    kind_name = INSTANCES.get(kind.plural) if kind.group == MANAGEMENT_GROUP else None
    if kind_name is not None:
        name = INSTANCE_NAMES[kind_name]
        yield from _object_requests(f"{kind_name} `{name}` of project `web`", kind, WEB, name)
        yield from _object_requests(f"another {kind_name} of project `web`", kind, WEB, "qa")
        yield from _other_namespace_requests(f"{kind_name}s", "instances", kind)
    elif kind.group == MANAGEMENT_GROUP and kind.plural == WORKSPACES:
        yield from _object_requests("another object of project `web`", kind, WEB, *OBJECT_NAMES)
        yield from _other_namespace_requests("workspaces", "instances", kind)
    elif (kind.group, kind.plural) == ("", "configmaps"):
        yield from _config_map_requests(kind)
        yield from _other_namespace_requests("config maps", "objects of another kind", kind)
    else:
        yield from _object_requests("another object of project `web`", kind, WEB, *OBJECT_NAMES)
        yield from _other_namespace_requests("objects of another kind", "objects of another kind", kind)


def _config_map_requests(kind: Kind) -> Iterator[MatrixRequest]:
    row = "config map `settings` of project `web`"
    yield from (MatrixRequest(row, verb, _target(kind, verb, WEB, "settings")) for verb in OBJECT_VERBS)
    for subresource in _subresources(kind):
        yield from _subresource_requests("another object of project `web`", kind, subresource, WEB, "settings")
    yield from _object_requests("another object of project `web`", kind, WEB, "x")


def _other_namespace_requests(plural: str, other_plural: str, kind: Kind) -> Iterator[MatrixRequest]:
    """Collections of the kind. Single objects outside of project `web` share one row."""
    yield from _collection_requests(f"all {plural} of project `web`", kind, WEB)
    for namespace, location in ((LAB, "of another project"), (DEFAULT, "in another namespace")):
        yield from _object_requests(f"an object {location}", kind, namespace, *OBJECT_NAMES)
        yield from _collection_requests(f"all {other_plural} {location}", kind, namespace)
    yield from _object_requests("a namespaced object without a namespace", kind, "", *OBJECT_NAMES)
    yield from _collection_requests(f"all {plural} in all namespaces", kind)


# --- paths, impersonation and gateways ---


def _path_requests(documents: Iterable[str], public_paths: frozenset[str]) -> Iterator[MatrixRequest]:
    rows = dict.fromkeys(documents, "discovery, OpenAPI and version")
    rows |= {f"{path}/": row for path, row in rows.items()}
    rows |= dict.fromkeys(public_paths, "version and health")
    rows |= dict.fromkeys(("/metrics", "/metrics/"), "`/metrics`")
    rows |= dict.fromkeys(
        ("/debug", "/logs/x", "/openapi/v4", "/apisx", "/api//v1", "/apis/../metrics"), "another path"
    )
    for path, row in rows.items():
        for method in METHODS:
            yield MatrixRequest(row, method, RequestInfo(method, path, MANAGEMENT))
            yield MatrixRequest(
                row if path in public_paths or "metrics" in row else "another path", method, RequestInfo(method, path)
            )


def _impersonation_requests() -> Iterator[MatrixRequest]:
    resources = (("", "users", ""), ("", "groups", ""), ("authentication.k8s.io", "userextras", "scopes"))
    for group, plural, subresource in resources:
        target = RequestInfo("impersonate", "", MANAGEMENT, group, "v1", plural, subresource, "", "ada")
        yield MatrixRequest("impersonation", "impersonate", target)


def _gateway_requests() -> Iterator[MatrixRequest]:
    gateways = {
        "through the gateway to cluster `berlin`": gateway_target(CLUSTER, "berlin"),
        "through the gateway to another cluster": gateway_target(CLUSTER, "oslo"),
    }
    for root, kind_name, name in ((SPACE, "space", "dev"), (VIRTUAL_CLUSTER, "virtual cluster", "ci")):
        prefix = "through the gateway to"
        gateways[f"{prefix} {kind_name} `{name}` of project `web`"] = gateway_target(root, name, WEB)
        gateways[f"{prefix} another {kind_name} of project `web`"] = gateway_target(root, "qa", WEB)
        gateways[f"{prefix} a {kind_name} of another project"] = gateway_target(root, name, LAB)
    inner_requests = [
        RequestInfo("get", "/api/v1/namespaces/default/pods/x", "", "", "v1", "pods", "", DEFAULT, "x"),
        RequestInfo("list", "/api/v1/pods", "", "", "v1", "pods"),
        RequestInfo("create", "/api/v1/namespaces/default/pods", "", "", "v1", "pods", "", DEFAULT),
        RequestInfo("create", "/api/v1/namespaces/default/pods/x/exec", "", "", "v1", "pods", "exec", DEFAULT, "x"),
    ]
    for row, gateway in gateways.items():
        yield from (MatrixRequest(row, inner.verb, gateway, inner) for inner in inner_requests)
        destination = row.removeprefix("through the gateway to ")
        yield from (
            MatrixRequest(f"discovery at {destination}", inner.verb, gateway, inner) for inner in _discovery_requests()
        )
        self_review_row = f"self review at {destination}"
        yield from (MatrixRequest(self_review_row, inner.verb, gateway, inner) for inner in _self_review_requests())


def _discovery_requests() -> Iterator[RequestInfo]:
    paths = ("/", "/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1")
    for path in (*paths, "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/version", "/healthz", "/readyz"):
        yield RequestInfo("get", path)
        yield RequestInfo("post", path)


def _self_review_requests() -> Iterator[RequestInfo]:
    for verb in ("create", "get"):
        yield RequestInfo(verb, "/", "", "authentication.k8s.io", "v1", "selfsubjectreviews")
        yield RequestInfo(verb, "/", "", "authorization.k8s.io", "v1", "selfsubjectaccessreviews")
        yield RequestInfo(verb, "/", "", "authorization.k8s.io", "v1", "selfsubjectrulesreviews")
