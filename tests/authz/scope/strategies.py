"""Hypothesis strategies for scopes and requests, with few enough names that they match each other."""

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
        (GROUP, "selfsubjectaccessreviewbatches"): False,
        (GROUP, "resourcecounts"): False,
        (GROUP, "ownedaccesskeys"): False,
        (GROUP, "spaceinstances"): True,
        (GROUP, "virtualclusterinstances"): True,
        (GROUP, "devpodworkspaceinstances"): True,
        ("", "namespaces"): False,
        ("", "configmaps"): True,
        ("", "secrets"): True,
        ("apiextensions.k8s.io", "customresourcedefinitions"): False,
    },
)
"""Naming that differs from the defaults of the server."""

KINDS = (*NAMES.namespaced, ("example.com", "things"))
SUBRESOURCES = ("", "status", "accesskey", "migratevirtualclusterinstance")
NAMESPACES = ("", "p-web", "p-lab", "default", "p-")
OBJECTS = ("", "web", "lab", "p-web", "dev", "qa", "ada", "core", "berlin")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "use", "impersonate")
PATHS = ("/", "/api", "/apis/x/v1", "/version", "/metrics", "/metrics/a", "/metrics/../api", "/openapi/v3/api/v1", "//")

projects = st.sampled_from(("web", "lab", "*", ""))
instances = st.tuples(st.sampled_from(("web", "lab", "*", "")), st.sampled_from(("dev", "qa", "*", "")))


def tuples_of(values: st.SearchStrategy[object], max_size: int = 2) -> st.SearchStrategy[tuple]:
    return st.lists(values, max_size=max_size).map(tuple)


def sampled_tuples(*values: str) -> st.SearchStrategy[tuple]:
    return tuples_of(st.sampled_from(values))


resources = st.builds(
    ScopeResources,
    st.sampled_from(("", GROUP)),
    sampled_tuples("configmaps", "projects", "*", "projects/*", "*/status", "clusters/status", "namespaces"),
    st.one_of(st.just(()), sampled_tuples("dev", "web", "p-web")),
)
rules = st.builds(
    ScopeRule,
    verbs=sampled_tuples("get", "list", "create", "*"),
    resources=st.one_of(st.just(()), tuples_of(resources)),
    object_names=st.one_of(st.just(()), sampled_tuples("dev", "web")),
    namespaces=st.one_of(st.just(()), sampled_tuples("", "p-web", "default")),
    paths=st.one_of(st.just(()), sampled_tuples("/metrics", "/metrics/*", "/*", "*", "/api", "/")),
    targets=st.one_of(
        st.just(()), sampled_tuples("Management", "Cluster", "ProjectSpace", "VirtualCluster", "Nothing")
    ),
    cluster=st.sampled_from(("", "", "", "berlin")),
    virtual_clusters=st.one_of(
        st.just(()), tuples_of(st.tuples(st.sampled_from(("", "dev")), st.sampled_from(("", "p-web"))))
    ),
)
scopes = st.builds(
    Scope,
    allow_cli=st.booleans(),
    projects=tuples_of(projects),
    spaces=tuples_of(instances),
    virtual_clusters=tuples_of(instances),
    clusters=tuples_of(st.sampled_from(("berlin", "oslo", "*", ""))),
    rules=tuples_of(rules),
    roles=tuples_of(st.builds(ScopeRole, st.sampled_from(("agent", "runner")))),
)


@st.composite
def narrower_scopes(draw: st.DrawFn, outer: Scope) -> Scope:
    """A scope of entries of another one, or of entries that look similar."""
    entries = [each for each in outer.projects if draw(st.booleans())]
    instance_name = draw(st.sampled_from(("dev", "*")))
    return Scope(
        allow_cli=outer.allow_cli and draw(st.booleans()),
        projects=tuple("web" if each == "*" else each for each in entries if draw(st.booleans())),
        spaces=tuple((each, instance_name) for each in entries) + outer.spaces[:1],
        virtual_clusters=tuple((project, "dev" if name == "*" else name) for project, name in outer.virtual_clusters),
        clusters=tuple("berlin" if each == "*" else each for each in outer.clusters),
        rules=tuple(_narrower_rule(each, draw(rules)) for each in outer.rules),
        roles=outer.roles[:1],
    )


def _narrower_rule(rule: ScopeRule, other: ScopeRule) -> ScopeRule:
    """The rule, with its empty fields filled from the other one."""
    return ScopeRule(**{each.name: getattr(rule, each.name) or getattr(other, each.name) for each in fields(ScopeRule)})


pairs = st.one_of(
    st.tuples(scopes, scopes), scopes.flatmap(lambda outer: st.tuples(st.just(outer), narrower_scopes(outer)))
)


def _resource_targets() -> list[RequestInfo]:
    combinations = product(VERBS, KINDS, SUBRESOURCES, NAMESPACES, OBJECTS)
    return [
        RequestInfo(verb, "/x", MANAGEMENT, group, "v1", plural, subresource, namespace, name)
        for verb, (group, plural), subresource, namespace, name in combinations
    ]


def _gateways() -> list[RequestInfo]:
    instances = product((SPACE, VIRTUAL_CLUSTER), ("dev", "qa"), ("p-web", "p-lab"), ("use", "get"))
    clusters = [gateway_target(CLUSTER, name, verb=verb) for name, verb in product(("berlin", "oslo"), ("use", "get"))]
    return [*clusters, *(gateway_target(*arguments) for arguments in instances)]


RESOURCE_TARGETS = Random(20).sample(_resource_targets(), 400)
GATEWAYS = _gateways()
TARGETS = [
    *RESOURCE_TARGETS,
    *GATEWAYS,
    *(RequestInfo(*arguments) for arguments in product(("get", "post", ""), PATHS, (MANAGEMENT, "", "elsewhere"))),
]
"""A sample of all kinds of requests: checking each scope against all of them is cheaper than drawing more scopes."""
