"""Role of the group rbac.authorization.k8s.io: rights inside one namespace, for RoleBindings to give to people."""

from collections.abc import Iterable

from fairlead.kinds.rules import COLUMNS, GROUP, RULES, rule_problems, tidy
from fairlead.registry.kind import Change, Kind, Problem


def prepare(change: Change) -> None:
    tidy(change.obj)


def check(change: Change) -> Iterable[Problem]:
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
    prepare=prepare,
    check=check,
)
