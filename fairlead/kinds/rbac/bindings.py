"""RoleBinding and ClusterRoleBinding of rbac.authorization.k8s.io: schemas, defaulting, validation and columns."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from fairlead.core.objects import Object, get_path
from fairlead.kinds.rbac.roles import GROUP, rbac_kind
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.names import dns_subdomain_errors, path_segment_errors
from fairlead.registry.schema import array, atomic, obj, string

SUBJECTS = array(
    atomic(
        obj(
            kind=string("`User`, `Group` or `ServiceAccount`."),
            apiGroup=string(f"`{GROUP}` for users and groups, empty for service accounts. Defaulted if omitted."),
            name=string("Name of the user, group or service account."),
            namespace=string("Namespace of a service account. Empty in a RoleBinding means the binding's namespace."),
        )
    ),
    "Subjects that the role is granted to.",
    max_items=limits.SUBJECTS,
)

ROLE_REF = atomic(
    obj(
        "The role to grant. Immutable: create a new binding instead.",
        apiGroup=string(f"`{GROUP}`. Defaulted if omitted."),
        kind=string("`ClusterRole`, or in a RoleBinding also `Role`."),
        name=string("Name of the role. A role that does not exist grants nothing until it is created."),
    )
)

FIELDS = {"subjects": SUBJECTS, "roleRef": ROLE_REF}


def set_defaults(change: Change) -> None:
    binding = change.obj
    binding["roleRef"] = {"apiGroup": GROUP, **_without_empty(binding.get("roleRef") or {}, "apiGroup")}
    subjects = [_default_subject(each) for each in binding.get("subjects") or ()]
    if subjects:
        binding["subjects"] = subjects
    else:
        binding.pop("subjects", None)


def _default_subject(subject: Object) -> Object:
    subject = _without_empty(subject, "apiGroup", "namespace")
    return {"apiGroup": GROUP, **subject} if subject.get("kind") in ("User", "Group") else subject


def _without_empty(part: Object, *fields: str) -> Object:
    return {name: value for name, value in part.items() if value or name not in fields}


def build_binding_check(*kinds: str, namespaced: bool) -> Callable[[Change], Iterable[Problem]]:
    """Builds the validation of a binding whose roleRef may have one of `kinds`."""

    def check(change: Change) -> Iterator[Problem]:
        reference = change.obj["roleRef"]
        yield from _role_ref_problems(reference, kinds)
        for index, subject in enumerate(change.obj.get("subjects") or ()):
            yield from _subject_problems(subject, f"subjects[{index}]", namespaced=namespaced)
        if change.old is not None and change.old["roleRef"] != reference:
            parts = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
            sent = {label: reference.get(name, "") for label, name in parts}
            yield Problem.invalid("roleRef", sent, "field is immutable")

    return check


def _role_ref_problems(reference: Object, kinds: tuple[str, ...]) -> Iterator[Problem]:
    if reference["apiGroup"] != GROUP:
        yield Problem.unsupported("roleRef.apiGroup", reference["apiGroup"], (GROUP,))
    if reference.get("kind") not in kinds:
        yield Problem.unsupported("roleRef.kind", reference.get("kind", ""), kinds)
    name = reference.get("name")
    if not name:
        yield Problem.required("roleRef.name")
    else:
        yield from (Problem.invalid("roleRef.name", name, fault) for fault in path_segment_errors(name))


def _subject_problems(subject: Object, path: str, *, namespaced: bool) -> Iterator[Problem]:
    kind = subject.get("kind", "")
    name = subject.get("name", "")
    group = subject.get("apiGroup", "")
    if not name:
        yield Problem.required(f"{path}.name")
    if kind in ("User", "Group"):
        if group != GROUP:
            yield Problem.unsupported(f"{path}.apiGroup", group, (GROUP,))
    elif kind == "ServiceAccount":
        yield from (Problem.invalid(f"{path}.name", name, fault) for fault in dns_subdomain_errors(name) if name)
        if group:
            yield Problem.unsupported(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield Problem.required(f"{path}.namespace")
    else:
        yield Problem.unsupported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))


def _format_role_ref(binding: Object) -> str:
    return f"{get_path(binding, 'roleRef.kind') or ''}/{get_path(binding, 'roleRef.name') or ''}"


def _subject_names(kind: str) -> Callable[[Object], str]:
    def names(binding: Object) -> str:
        return ", ".join(_subject_name(each) for each in binding.get("subjects") or () if each.get("kind") == kind)

    return names


def _subject_name(subject: Object) -> str:
    name = subject.get("name", "")
    return f"{subject.get('namespace', '')}/{name}" if subject.get("kind") == "ServiceAccount" else name


COLUMNS = (
    Column("Role", _format_role_ref, description="Kind and name of the role."),
    Column("Users", _subject_names("User"), description="Users in the binding.", wide=True),
    Column("Groups", _subject_names("Group"), description="Groups in the binding.", wide=True),
    Column(
        "ServiceAccounts", _subject_names("ServiceAccount"), description="Service accounts in the binding.", wide=True
    ),
)


def _binding_kind(name: str, description: str, *role_kinds: str, namespaced: bool) -> Kind:
    """A binding to roles of the kinds `role_kinds`."""
    return replace(
        rbac_kind(name, description, FIELDS, COLUMNS, namespaced=namespaced),
        default=set_defaults,
        check=build_binding_check(*role_kinds, namespaced=namespaced),
    )


ROLEBINDING = _binding_kind(
    "RoleBinding",
    "Grants a Role or ClusterRole to users and groups, within the namespace of the binding.",
    "Role",
    "ClusterRole",
    namespaced=True,
)

CLUSTERROLEBINDING = _binding_kind(
    "ClusterRoleBinding",
    "Grants a ClusterRole to users and groups, for cluster-scoped resources and in all namespaces.",
    "ClusterRole",
    namespaced=False,
)
