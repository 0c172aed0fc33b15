"""What Role and ClusterRole have in common: their rules, how these come back, and what is wrong with them."""

from collections.abc import Iterable

from fairlead.core.objects import Object
from fairlead.registry import limits
from fairlead.registry.kind import Column, Problem
from fairlead.registry.schema import Schema, array, nullable, obj, string

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
