"""Role of the group rbac.authorization.k8s.io: rights inside one namespace, for RoleBindings to give to people."""

from collections.abc import Iterable, Iterator

from fairlead.core.objects import Object
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.metadata import label_problems
from fairlead.registry.names import qualified_faults, value_faults
from fairlead.registry.schema import Schema, array, atomic, mapping, nullable, obj, string

# DOC-MERGED kinds/rules
# What Role and ClusterRole have in common: their rules, how these come back, and what is wrong with them.


GROUP = "rbac.authorization.k8s.io"

RULE = obj(
    "Verbs on resources, or on paths that are no resources.",
    verbs=array(string(), "What may be done: `get`, `list`, `create` and so on. `*` means everything."),
    apiGroups=array(string(), "Groups of the resources. The empty text is the core group, `*` means all of them."),
    resources=array(
        string(),
        "Resources by their plural, such as `configmaps`, and subresources, such as `namespaces/status`. `*` means all "
        "of both, `*/status` that subresource of every resource.",
    ),
    resourceNames=array(
        string(), "Names of the objects that the rule is about. Empty means all of them.", most=limits.ROLE_NAMES
    ),
    nonResourceURLs=array(
        string(),
        "Paths that are no resources, such as `/version`. A `*` at the end stands for everything that goes on from "
        "there. Only in a ClusterRole, and not beside resources.",
    ),
)

RULES: Schema = nullable(
    array(RULE, "What the role allows. Rules add up and never take rights away.", most=limits.ROLE_RULES)
)

EVERYTHING: tuple[Object, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
"""The rules of those who may do everything."""

COLUMNS = (
    Column("Name", "metadata.name", description="Name of the role."),
    Column("Created At", "metadata.creationTimestamp", description="When it was created."),
)
"""A role shows a date instead of an age: so `kubectl get` has printed roles from the beginning."""


def tidy(role: Object) -> None:
    """Clients rely on `rules` being there, null when there are none; inside a rule, empty lists say nothing."""
    rules = [{field: values for field, values in rule.items() if values} for rule in role.get("rules") or ()]
    role["rules"] = rules or None


def rule_problems(role: Object, *, namespaced: bool) -> Iterable[Problem]:
    for index, rule in enumerate(role.get("rules") or ()):
        yield from _problems(rule, f"rules[{index}]", namespaced=namespaced)


def _problems(rule: Object, path: str, *, namespaced: bool) -> Iterable[Problem]:
    if not rule.get("verbs"):
        yield Problem.required(f"{path}.verbs", "verbs must contain at least one value")
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            why = "namespaced rules cannot apply to non-resource URLs"
            yield Problem.invalid(f"{path}.nonResourceURLs", urls, why)
        if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield Problem.invalid(f"{path}.nonResourceURLs", urls, why)
        return
    if not rule.get("apiGroups"):
        yield Problem.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield Problem.required(f"{path}.resources", "resource rules must supply at least one resource")


def default_role(change: Change) -> None:
    tidy(change.obj)


def check_role(change: Change) -> Iterable[Problem]:
    return rule_problems(change.obj, namespaced=True)


ROLE = Kind(
    name="Role",
    plural="roles",
    namespaced=True,
    group=GROUP,
    fields={"rules": RULES},
    description="Rights inside one namespace. A RoleBinding gives them to users and groups.",
    columns=COLUMNS,
    whole_table=True,
    name_is_path_segment=True,
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=default_role,
    check=check_role,
)


# DOC-MERGED kinds/clusterrole
# ClusterRole of the group rbac.authorization.k8s.io: rights everywhere, or wherever a RoleBinding gives them.
#
# One with an aggregation rule gets its rules from others: `controllers/core/role_aggregation.py` keeps them so.


_SELECTORS = "aggregationRule.clusterRoleSelectors"

SELECTOR = atomic(
    obj(
        "A choice by labels. Everything in it must hold; an empty one chooses all.",
        matchLabels=mapping(string(), "Labels that must be there with these values."),
        matchExpressions=array(
            obj(
                required=("key", "operator"),
                key=string("Key of the label."),
                operator=string("`In`, `NotIn`, `Exists` or `DoesNotExist`."),
                values=array(
                    string(),
                    "What `In` and `NotIn` compare with; the other two take none.",
                    most=limits.SELECTOR_VALUES,
                ),
            ),
            "Further conditions on labels.",
            most=limits.SELECTOR_TERMS,
        ),
    )
)

AGGREGATION = obj(
    "Makes the server gather the rules of other ClusterRoles into this one. Its own rules are overwritten.",
    clusterRoleSelectors=array(SELECTOR, "Which ClusterRoles: those that at least one of these chooses."),
)


def default_cluster_role(change: Change) -> None:
    role = change.obj
    tidy(role)
    aggregation = role.get("aggregationRule")
    if aggregation and aggregation.get("clusterRoleSelectors"):
        aggregation["clusterRoleSelectors"] = [_full(each) for each in aggregation["clusterRoleSelectors"]]
    elif aggregation is not None:
        role["aggregationRule"] = {}


def _full(selector: Object) -> Object:
    """A selector without what is empty in it."""
    expressions = [
        {field: value for field, value in each.items() if value or field != "values"}
        for each in selector.get("matchExpressions") or ()
    ]
    parts = {"matchLabels": selector.get("matchLabels"), "matchExpressions": expressions}
    return {name: part for name, part in parts.items() if part}


def check_cluster_role(change: Change) -> Iterable[Problem]:
    yield from rule_problems(change.obj, namespaced=False)
    aggregation = change.obj.get("aggregationRule")
    if aggregation is None:
        return
    selectors = aggregation.get("clusterRoleSelectors") or ()
    if not selectors:
        why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield Problem.required(_SELECTORS, why)
    for index, selector in enumerate(selectors):
        yield from _selector_problems(selector, f"{_SELECTORS}[{index}]")


def _selector_problems(selector: Object, path: str) -> Iterator[Problem]:
    yield from label_problems(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, each in enumerate(selector.get("matchExpressions") or ()):
        yield from _expression_problems(each, f"{path}.matchExpressions[{index}]")


def _expression_problems(expression: Object, path: str) -> Iterator[Problem]:
    operator, values = expression["operator"], expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            yield Problem.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield Problem.forbidden(f"{path}.values", why)
    else:
        why = "not a valid selector operator; use In, NotIn, Exists or DoesNotExist"
        yield Problem.invalid(f"{path}.operator", operator, why)
    yield from (
        Problem.invalid(f"{path}.key", expression["key"], fault) for fault in qualified_faults(expression["key"])
    )
    for index, value in enumerate(values):
        yield from (Problem.invalid(f"{path}.values[{index}]", value, fault) for fault in value_faults(value))


CLUSTERROLE = Kind(
    name="ClusterRole",
    plural="clusterroles",
    namespaced=False,
    group=GROUP,
    fields={"rules": RULES, "aggregationRule": AGGREGATION},
    description="Rights in all namespaces and outside of them, or in the namespace of the RoleBinding that gives them.",
    columns=COLUMNS,
    whole_table=True,
    name_is_path_segment=True,
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=default_cluster_role,
    check=check_cluster_role,
)
