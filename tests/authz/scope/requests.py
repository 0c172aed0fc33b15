"""Every request there can be, with its row in matrix.md.

Built from the catalog, so that new kinds, subresources and actions are included automatically. The names are those of
the table: project `web` with its space `dev` and virtual cluster `ci`, cluster `berlin`, ConfigMap `settings`. The
user is `ada`, a member of team `core`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fairlead.authz.scope import gateway_target
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.user import AUTHENTICATED_GROUPS, User
from fairlead.registry.kind import ALL_VERBS, MANAGEMENT_GROUP, Catalog, Kind, Sensitivity

PREFIX = "service-p-"
WEB, LAB, DEFAULT = f"{PREFIX}web", f"{PREFIX}lab", "default"

ADA = User("ada", ("service:user:ada", "service:user:*", "service:team:core", *AUTHENTICATED_GROUPS), key="k")

READ = ("get", "list", "watch")
OBJECT_VERBS = (*READ, "create", "update", "patch", "delete", "use", "bind", "escalate")
COLLECTION_VERBS = ("list", "watch", "create", "update", "patch", "deletecollection")
SUBRESOURCE_VERBS = ("get", "create", "update", "patch", "delete")
METHODS = ("get", "post", "put", "patch", "delete", "options", "")

QUESTIONS = {
    "selves": "identity review",
    "selfsubjectreviews": "identity review",
    "selfsubjectaccessreviews": "self access review",
}
MIGRATION = "migratevirtualclusterinstance"
INSTANCES = {"spaceinstances": "space", "virtualclusterinstances": "virtual cluster"}
NAMED = {"space": "dev", "virtual cluster": "ci"}
NAMES = ("x", "settings", *NAMED.values())
WORKSPACES = "devpodworkspaceinstances"
PEOPLE = {"users": ("ada", "bob"), "teams": ("core", "ops")}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its row, and what the authorizer gets. `behind` is what is asked of a cluster behind a gateway."""

    row: str
    verb: str
    target: RequestInfo
    behind: RequestInfo | None = None


def every_request(catalog: Catalog, documents: Iterable[str], public: Iterable[str]) -> Iterator[Asked]:
    for kind in catalog.kinds:
        if kind.namespaced:
            yield from _in_namespaces(kind)
        else:
            yield from _misplaced_too(_outside_of_namespaces(kind))
    for group, plural in (("", "endpoints"), ("example.com", "things")):
        unknown = Kind("Unknown", plural, True, {}, "", group=group, sensitivity=Sensitivity.NORMAL)
        for namespace in (WEB, LAB, DEFAULT, ""):
            yield from _objects("a kind that is not served", unknown, namespace, "x", "")
    yield from _paths(documents, frozenset(public))
    yield from _acting_as_others()
    yield from _through_gateways()


def _target(kind: Kind, verb: str, namespace: str = "", name: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(verb, "/x", MANAGEMENT, kind.group, kind.version, kind.plural, subresource, namespace, name)


def _parts(kind: Kind) -> tuple[str, ...]:
    """The subresources and actions of a kind, and one that it does not have."""
    return (*kind.subresources, *(action.name for action in kind.actions), "unheard-of")


def _objects(row: str, kind: Kind, namespace: str, *names: str) -> Iterator[Asked]:
    """One object and its subresources, where these are decided alike."""
    for name in names:
        yield from (Asked(row, verb, _target(kind, verb, namespace, name)) for verb in OBJECT_VERBS)
        for part in _parts(kind):
            yield from _part(row, kind, part, namespace, name)


def _part(row: str, kind: Kind, part: str, namespace: str, name: str) -> Iterator[Asked]:
    return (Asked(row, verb, _target(kind, verb, namespace, name, part)) for verb in SUBRESOURCE_VERBS)


def _collection(row: str, kind: Kind, namespace: str = "") -> Iterator[Asked]:
    return (Asked(row, verb, _target(kind, verb, namespace)) for verb in COLLECTION_VERBS)


# --- kinds outside of namespaces ---


def _misplaced_too(requests: Iterable[Asked]) -> Iterator[Asked]:
    """A kind outside of namespaces is decided alike when the path pretends that it is inside of one."""
    for asked in requests:
        yield asked
        if asked.target.resource != "namespaces":
            yield from (replace(asked, target=replace(asked.target, namespace=each)) for each in (WEB, DEFAULT))


def _outside_of_namespaces(kind: Kind) -> Iterator[Asked]:
    ours = kind.group == MANAGEMENT_GROUP
    if ours and kind.plural == "projects":
        return _projects(kind)
    if ours and kind.plural == "clusters":
        return _clusters(kind)
    if ours and kind.plural in PEOPLE:
        return _people(kind)
    if (kind.group, kind.plural) == ("", "namespaces"):
        return _namespaces(kind)
    if not kind.persisted:
        return _questions(kind)
    return _others(kind)


def _others(kind: Kind) -> Iterator[Asked]:
    yield from _objects("a cluster-scoped object of another kind", kind, "", "x")
    yield from _collection("all cluster-scoped objects of another kind", kind)


def _questions(kind: Kind) -> Iterator[Asked]:
    row = QUESTIONS.get(kind.plural, "another review")
    yield from (Asked(row, verb, _target(kind, verb)) for verb in ALL_VERBS)


def _projects(kind: Kind) -> Iterator[Asked]:
    for name, row in (("web", "project `web`"), ("lab", "another project")):
        yield from (Asked(row, verb, _target(kind, verb, "", name)) for verb in OBJECT_VERBS)
        for part in _parts(kind):
            for asked in _part(f"{row}, a subresource", kind, part, "", name):
                migrates = (part, asked.verb) == (MIGRATION, "create")
                yield replace(asked, row=f"{row}, a migration into it") if migrates else asked
    yield from _collection("all projects", kind)


def _namespaces(kind: Kind) -> Iterator[Asked]:
    rows = {WEB: "namespace of project `web`", LAB: "namespace of another project", DEFAULT: "another namespace"}
    for name, row in rows.items():
        yield from _objects(row, kind, name, name)
        # A list or watch that selects one name has it, but no namespace.
        yield from (Asked(row, verb, _target(kind, verb, "", name)) for verb in ("list", "watch"))
    yield from _collection("all namespaces", kind)


def _clusters(kind: Kind) -> Iterator[Asked]:
    for name, row in (("berlin", "cluster `berlin`"), ("oslo", "another cluster")):
        yield from (Asked(row, verb, _target(kind, verb, "", name)) for verb in OBJECT_VERBS)
        for part in _parts(kind):
            yield from _part(row if part == "status" else f"{row}, a subresource", kind, part, "", name)
    yield from _collection("all clusters", kind)


def _people(kind: Kind) -> Iterator[Asked]:
    own, other = PEOPLE[kind.plural]
    row = "own user or team"
    yield from (Asked(row, verb, _target(kind, verb, "", own)) for verb in OBJECT_VERBS)
    for part in _parts(kind):
        yield from _part(f"{row}, a subresource", kind, part, "", own)
    yield from _objects("another user or team", kind, "", other, "*")
    yield from _collection("all users or teams", kind)


# --- kinds in namespaces ---


def _in_namespaces(kind: Kind) -> Iterator[Asked]:
    word = INSTANCES.get(kind.plural) if kind.group == MANAGEMENT_GROUP else None
    if word is not None:
        known = NAMED[word]
        yield from _objects(f"{word} `{known}` of project `web`", kind, WEB, known)
        yield from _objects(f"another {word} of project `web`", kind, WEB, "qa")
        yield from _elsewhere(f"{word}s", "instances", kind)
    elif kind.group == MANAGEMENT_GROUP and kind.plural == WORKSPACES:
        yield from _objects("another object of project `web`", kind, WEB, *NAMES)
        yield from _elsewhere("workspaces", "instances", kind)
    elif (kind.group, kind.plural) == ("", "configmaps"):
        yield from _config_maps(kind)
        yield from _elsewhere("config maps", "objects of another kind", kind)
    else:
        yield from _objects("another object of project `web`", kind, WEB, *NAMES)
        yield from _elsewhere("objects of another kind", "objects of another kind", kind)


def _config_maps(kind: Kind) -> Iterator[Asked]:
    row = "config map `settings` of project `web`"
    yield from (Asked(row, verb, _target(kind, verb, WEB, "settings")) for verb in OBJECT_VERBS)
    for part in _parts(kind):
        yield from _part("another object of project `web`", kind, part, WEB, "settings")
    yield from _objects("another object of project `web`", kind, WEB, "x")


def _elsewhere(here: str, elsewhere: str, kind: Kind) -> Iterator[Asked]:
    """The kind as a whole. Outside of project `web` no single object has a row of its own."""
    yield from _collection(f"all {here} of project `web`", kind, WEB)
    for namespace, where in ((LAB, "of another project"), (DEFAULT, "in another namespace")):
        yield from _objects(f"an object {where}", kind, namespace, *NAMES)
        yield from _collection(f"all {elsewhere} {where}", kind, namespace)
    yield from _objects("a namespaced object without a namespace", kind, "", *NAMES)
    yield from _collection(f"all {here} in all namespaces", kind)


# --- what is no resource of the management API ---


def _paths(documents: Iterable[str], public: frozenset[str]) -> Iterator[Asked]:
    rows = dict.fromkeys(documents, "discovery, OpenAPI and version")
    rows |= {f"{path}/": row for path, row in rows.items()}
    rows |= dict.fromkeys(public, "version and health")
    rows |= dict.fromkeys(("/metrics", "/metrics/"), "`/metrics`")
    rows |= dict.fromkeys(
        ("/debug", "/logs/x", "/openapi/v4", "/apisx", "/api//v1", "/apis/../metrics"), "another path"
    )
    crds = next(path for path in rows if "customresourcedefinitions" in path)
    for path, row in rows.items():
        if path.startswith(crds):
            continue
        for method in METHODS:
            yield Asked(row, method, RequestInfo(method, path, MANAGEMENT))
            yield Asked(
                row if path in public or "metrics" in row else "another path", method, RequestInfo(method, path)
            )
    group, version, plural = crds.removeprefix("/apis/").split("/")
    for verb in COLLECTION_VERBS:
        yield Asked("custom resource definitions", verb, RequestInfo(verb, crds, MANAGEMENT, group, version, plural))


def _acting_as_others() -> Iterator[Asked]:
    named = (("", "users", ""), ("", "groups", ""), ("authentication.k8s.io", "userextras", "scopes"))
    for group, plural, part in named:
        target = RequestInfo("impersonate", "", MANAGEMENT, group, "v1", plural, part, "", "ada")
        yield Asked("impersonation", "impersonate", target)


def _through_gateways() -> Iterator[Asked]:
    entrances = {
        "through the gateway to cluster `berlin`": gateway_target(CLUSTER, "berlin"),
        "through the gateway to another cluster": gateway_target(CLUSTER, "oslo"),
    }
    for root, word, known in ((SPACE, "space", "dev"), (VIRTUAL_CLUSTER, "virtual cluster", "ci")):
        way = "through the gateway to"
        entrances[f"{way} {word} `{known}` of project `web`"] = gateway_target(root, known, WEB)
        entrances[f"{way} another {word} of project `web`"] = gateway_target(root, "qa", WEB)
        entrances[f"{way} a {word} of another project"] = gateway_target(root, known, LAB)
    inners = [
        RequestInfo("get", "/api/v1/namespaces/default/pods/x", "", "", "v1", "pods", "", DEFAULT, "x"),
        RequestInfo("list", "/api/v1/pods", "", "", "v1", "pods"),
        RequestInfo("create", "/api/v1/namespaces/default/pods", "", "", "v1", "pods", "", DEFAULT),
        RequestInfo("create", "/api/v1/namespaces/default/pods/x/exec", "", "", "v1", "pods", "exec", DEFAULT, "x"),
    ]
    for row, entrance in entrances.items():
        yield from (Asked(row, inner.verb, entrance, inner) for inner in inners)
        place = row.removeprefix("through the gateway to ")
        yield from (Asked(f"discovery at {place}", inner.verb, entrance, inner) for inner in _discovery())
        about = f"self review at {place}"
        yield from (Asked(about, inner.verb, entrance, inner) for inner in _about_oneself())


def _discovery() -> Iterator[RequestInfo]:
    paths = ("/", "/api", "/api/", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1")
    for path in (*paths, "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/version", "/healthz", "/readyz"):
        yield RequestInfo("get", path)
        yield RequestInfo("post", path)


def _about_oneself() -> Iterator[RequestInfo]:
    for verb in ("create", "get"):
        yield RequestInfo(verb, "/", "", "authentication.k8s.io", "v1", "selfsubjectreviews")
        yield RequestInfo(verb, "/", "", "authorization.k8s.io", "v1", "selfsubjectaccessreviews")
        yield RequestInfo(verb, "/", "", "authorization.k8s.io", "v1", "selfsubjectrulesreviews")
