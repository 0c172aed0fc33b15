"""ClusterRole of the group rbac.authorization.k8s.io: rights everywhere, or wherever a RoleBinding gives them.

One with an aggregation rule gets its rules from others: `controllers/aggregation.py` keeps them so.
"""

from collections.abc import Iterable, Iterator

from fairlead.core.objects import Object
from fairlead.kinds.rules import COLUMNS, GROUP, RULES, rule_problems, tidy
from fairlead.registry import limits
from fairlead.registry.kind import Change, Kind, Problem
from fairlead.registry.meta import label_problems
from fairlead.registry.names import qualified_faults, value_faults
from fairlead.registry.schema import array, atomic, mapping, obj, string

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


def prepare(change: Change) -> None:
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


def check(change: Change) -> Iterable[Problem]:
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
    prepare=prepare,
    check=check,
)
