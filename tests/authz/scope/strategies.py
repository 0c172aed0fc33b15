"""Scopes and requests by the thousand, out of few enough names that they meet each other."""

from dataclasses import fields
from itertools import product
from random import Random

from hypothesis import strategies as st

from fairlead.authz.scope import ScopeNaming, gateway_target
from fairlead.authz.scope.gateway_requests import CLUSTER, SPACE, VIRTUAL_CLUSTER
from fairlead.core.call import MANAGEMENT, RequestInfo
from fairlead.core.scope import Scope, ScopeResources, ScopeRole, ScopeRule

GROUP = "management.example.org"
NAMES = ScopeNaming(
    GROUP,
    "p-",
    {
        (GROUP, "projects"): False,
        (GROUP, "clusters"): False,
        (GROUP, "users"): False,
        (GROUP, "teams"): False,
        (GROUP, "selves"): False,
        (GROUP, "selfsubjectaccessreviews"): False,
        (GROUP, "ownedaccesskeys"): False,
        (GROUP, "spaceinstances"): True,
        (GROUP, "virtualclusterinstances"): True,
        (GROUP, "devpodworkspaceinstances"): True,
        ("", "namespaces"): False,
        ("", "configmaps"): True,
        ("", "secrets"): True,
    },
)
"""Names that no server has by default."""

KINDS = (*NAMES.namespaced, ("apiextensions.k8s.io", "customresourcedefinitions"), ("example.com", "things"))
SUBRESOURCES = ("", "status", "accesskey", "migratevirtualclusterinstance")
PLACES = ("", "p-web", "p-lab", "default", "p-")
OBJECTS = ("", "web", "lab", "p-web", "dev", "qa", "ada", "core", "berlin")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use", "impersonate")
PATHS = ("/", "/api", "/apis/x/v1", "/version", "/metrics", "/metrics/a", "/metrics/../api", "/openapi/v3/api/v1", "//")

projects = st.sampled_from(("web", "lab", "*", ""))
instances = st.tuples(st.sampled_from(("web", "lab", "*", "")), st.sampled_from(("dev", "qa", "*", "")))


def few(values: st.SearchStrategy[object], most: int = 2) -> st.SearchStrategy[tuple]:
    return st.lists(values, max_size=most).map(tuple)


def some(*values: str) -> st.SearchStrategy[tuple]:
    return few(st.sampled_from(values))


resources = st.builds(
    ScopeResources,
    st.sampled_from(("", GROUP)),
    some("configmaps", "projects", "*", "projects/*", "*/status", "clusters/status", "namespaces"),
    st.one_of(st.just(()), some("dev", "web", "p-web")),
)
rules = st.builds(
    ScopeRule,
    verbs=some("get", "list", "create", "*"),
    resources=st.one_of(st.just(()), few(resources)),
    object_names=st.one_of(st.just(()), some("dev", "web")),
    namespaces=st.one_of(st.just(()), some("", "p-web", "default")),
    paths=st.one_of(st.just(()), some("/metrics", "/metrics/*", "/*", "*", "/api", "/")),
    targets=st.one_of(st.just(()), some("Management", "Cluster", "ProjectSpace", "VirtualCluster", "Nothing")),
    cluster=st.sampled_from(("", "", "", "berlin")),
    virtual_clusters=st.one_of(
        st.just(()), few(st.tuples(st.sampled_from(("", "dev")), st.sampled_from(("", "p-web"))))
    ),
)
scopes = st.builds(
    Scope,
    allow_cli=st.booleans(),
    projects=few(projects),
    spaces=few(instances),
    virtual_clusters=few(instances),
    clusters=few(st.sampled_from(("berlin", "oslo", "*", ""))),
    rules=few(rules),
    roles=few(st.builds(ScopeRole, st.sampled_from(("agent", "runner")))),
)


@st.composite
def narrower(draw: st.DrawFn, outer: Scope) -> Scope:
    """A scope made out of parts of another one, or of what looks like a part of it."""
    entries = [each for each in outer.projects if draw(st.booleans())]
    inner = draw(st.sampled_from(("dev", "*")))
    return Scope(
        allow_cli=outer.allow_cli and draw(st.booleans()),
        projects=tuple("web" if each == "*" else each for each in entries if draw(st.booleans())),
        spaces=tuple((each, inner) for each in entries) + outer.spaces[:1],
        virtual_clusters=tuple((project, "dev" if name == "*" else name) for project, name in outer.virtual_clusters),
        clusters=tuple("berlin" if each == "*" else each for each in outer.clusters),
        rules=tuple(_narrower_rule(each, draw(rules)) for each in outer.rules),
        roles=outer.roles[:1],
    )


def _narrower_rule(rule: ScopeRule, other: ScopeRule) -> ScopeRule:
    """The rule with what the other one asks for in all dimensions that it leaves free."""
    return ScopeRule(**{each.name: getattr(rule, each.name) or getattr(other, each.name) for each in fields(ScopeRule)})


pairs = st.one_of(st.tuples(scopes, scopes), scopes.flatmap(lambda outer: st.tuples(st.just(outer), narrower(outer))))


def _resource_targets() -> list[RequestInfo]:
    every = product(VERBS, KINDS, SUBRESOURCES, PLACES, OBJECTS)
    return [
        RequestInfo(verb, "/x", MANAGEMENT, group, "v1", plural, subresource, place, name)
        for verb, (group, plural), subresource, place, name in every
    ]


def _entrances() -> list[RequestInfo]:
    instances = product((SPACE, VIRTUAL_CLUSTER), ("dev", "qa"), ("p-web", "p-lab"), ("use", "get"))
    clusters = [gateway_target(CLUSTER, name, verb=verb) for name, verb in product(("berlin", "oslo"), ("use", "get"))]
    return [*clusters, *(gateway_target(*words) for words in instances)]


RESOURCE_TARGETS = Random(20).sample(_resource_targets(), 400)
ENTRANCES = _entrances()
TARGETS = [
    *RESOURCE_TARGETS,
    *ENTRANCES,
    *(RequestInfo(*words) for words in product(("get", "post", ""), PATHS, (MANAGEMENT, "", "elsewhere"))),
]
"""Requests of all sorts: a scope is held against all of them at once, which is cheaper than to think of more scopes."""
