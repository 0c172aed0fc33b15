"""Role and ClusterRole of rbac.authorization.k8s.io: schemas, defaulting, validation and columns.

`controllers/core/role_aggregation.py` maintains the rules of a ClusterRole with an aggregation rule.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fairlead.core.objects import Object
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.names import label_value_errors, qualified_name_errors
from fairlead.registry.object_metadata import label_problems
from fairlead.registry.schema import Schema, array, atomic, mapping, nullable, obj, string

GROUP = "rbac.authorization.k8s.io"

RULE = obj(
    "Allows verbs on resources, or on non-resource paths.",
    verbs=array(string(), "Verbs: `get`, `list`, `create` and so on. `*` means all verbs."),
    apiGroups=array(string(), "API groups of the resources. The empty string is the core group, `*` means all groups."),
    resources=array(
        string(),
        "Plural names of resources, such as `configmaps`, and subresources, such as `namespaces/status`. `*` means all "
        "resources and subresources, `*/status` that subresource of every resource.",
    ),
    resourceNames=array(
        string(), "Names of the objects that the rule applies to. Empty means all objects.", max_items=limits.ROLE_NAMES
    ),
    nonResourceURLs=array(
        string(),
        "Non-resource paths, such as `/version`. A `*` at the end matches every path with that prefix. Only in a "
        "ClusterRole, and not together with resources.",
    ),
)

RULES: Schema = nullable(
    array(RULE, "Permissions of the role. Rules are additive; there are no deny rules.", max_items=limits.ROLE_RULES)
)

ALL_PERMISSIONS: tuple[Object, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
"""The rules of `cluster-admin`: all verbs on all resources and paths."""

COLUMNS = (
    Column("Name", "metadata.name", description="Name of the role."),
    Column("Created At", "metadata.creationTimestamp", description="When it was created."),
)
"""As in Kubernetes, roles show the creation date instead of the age."""


def normalize_rules(role: Object) -> None:
    """Sets `rules` to null if there are none, which clients rely on, and drops empty lists within rules."""
    rules = role.setdefault("rules", None)
    if rules:
        role["rules"] = [{field: values for field, values in rule.items() if values} for rule in rules]


def canonicalize_rules(role: Object) -> None:
    """Stores an empty list of rules as null. Its sender owns the field all the same."""
    role["rules"] = role["rules"] or None


def rule_problems(role: Object, *, namespaced: bool) -> Iterable[Problem]:
    for index, rule in enumerate(role.get("rules") or ()):
        yield from _policy_rule_problems(rule, f"rules[{index}]", namespaced=namespaced)


def _policy_rule_problems(rule: Object, path: str, *, namespaced: bool) -> Iterable[Problem]:
    if not rule.get("verbs"):
        yield Problem.required(f"{path}.verbs", "verbs must contain at least one value")
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            reason = "namespaced rules cannot apply to non-resource URLs"
            yield Problem.invalid(f"{path}.nonResourceURLs", urls, reason)
        if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            reason = "rules cannot apply to both regular resources and non-resource URLs"
            yield Problem.invalid(f"{path}.nonResourceURLs", urls, reason)
        return
    if not rule.get("apiGroups"):
        yield Problem.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield Problem.required(f"{path}.resources", "resource rules must supply at least one resource")


def rbac_kind(
    name: str, description: str, fields: Mapping[str, Schema], columns: tuple[Column, ...], *, namespaced: bool
) -> Kind:
    """A role or a binding, without its rules."""
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        namespaced=namespaced,
        group=GROUP,
        fields=fields,
        description=description,
        columns=columns,
        selectable=() if namespaced else ("metadata.namespace",),  # as in Kubernetes, where it is empty
        name_is_path_segment=True,
        tracks_generation=False,
        builtin=True,
        allows_create_on_update=True,
        allows_unconditional_update=True,
        sensitivity=Sensitivity.NORMAL,
    )


def default_role(change: Change) -> None:
    normalize_rules(change.obj)


def check_role(change: Change) -> Iterable[Problem]:
    return rule_problems(change.obj, namespaced=True)


ROLE = replace(
    rbac_kind(
        "Role",
        "Permissions within one namespace. A RoleBinding grants them to users and groups.",
        {"rules": RULES},
        COLUMNS,
        namespaced=True,
    ),
    explicit_columns=True,
    empty_fields={"rules": None},
    canonicalize=canonicalize_rules,
    default=default_role,
    check=check_role,
)


_SELECTORS = "aggregationRule.clusterRoleSelectors"

SELECTOR = atomic(
    obj(
        "A label selector. All requirements must match; an empty selector matches all objects.",
        matchLabels=mapping(string(), "Labels that must have these values."),
        matchExpressions=array(
            obj(
                required=("key", "operator"),
                key=string("Key of the label."),
                operator=string("`In`, `NotIn`, `Exists` or `DoesNotExist`."),
                values=array(
                    string(),
                    "Values for `In` and `NotIn`; must be empty for the other operators.",
                    max_items=limits.SELECTOR_VALUES,
                ),
            ),
            "Further requirements on labels.",
            max_items=limits.SELECTOR_TERMS,
        ),
    )
)

AGGREGATION = obj(
    "Aggregates the rules of other ClusterRoles into this one. The controller overwrites `rules`.",
    clusterRoleSelectors=array(SELECTOR, "Selects the ClusterRoles that match at least one of these selectors."),
)


def default_cluster_role(change: Change) -> None:
    role = change.obj
    normalize_rules(role)
    aggregation = role.get("aggregationRule")
    if aggregation and aggregation.get("clusterRoleSelectors"):
        aggregation["clusterRoleSelectors"] = [
            _without_empty_fields(each) for each in aggregation["clusterRoleSelectors"]
        ]
    elif aggregation is not None:
        role["aggregationRule"] = {}


def _without_empty_fields(selector: Object) -> Object:
    """The selector without empty fields."""
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
        reason = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield Problem.required(_SELECTORS, reason)
    for index, selector in enumerate(selectors):
        path = f"{_SELECTORS}[{index}]"
        found = list(_selector_problems(selector, path))
        yield from found
        if found:  # as in Kubernetes, where the selector is parsed as well
            yield Problem.invalid(path, selector, "not a valid label selector")


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
            reason = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield Problem.forbidden(f"{path}.values", reason)
    else:
        reason = "not a valid selector operator; use In, NotIn, Exists or DoesNotExist"
        yield Problem.invalid(f"{path}.operator", operator, reason)
    yield from (
        Problem.invalid(f"{path}.key", expression["key"], fault) for fault in qualified_name_errors(expression["key"])
    )
    for index, value in enumerate(values):
        yield from (Problem.invalid(f"{path}.values[{index}]", value, fault) for fault in label_value_errors(value))


CLUSTERROLE = replace(
    rbac_kind(
        "ClusterRole",
        "Permissions for cluster-scoped resources and all namespaces, or for the namespace of a RoleBinding.",
        {"rules": RULES, "aggregationRule": AGGREGATION},
        COLUMNS,
        namespaced=False,
    ),
    explicit_columns=True,
    empty_fields={"rules": None},
    canonicalize=canonicalize_rules,
    default=default_cluster_role,
    check=check_cluster_role,
)
