"""RBAC bindings indexed by subject, updated incrementally, one binding at a time. Used by `authz/rbac.py`."""

from collections.abc import Iterable, Iterator

from fairlead.core.objects import Object
from fairlead.core.user import SERVICE_ACCOUNT_PREFIX, User
from fairlead.storage.view.view import NamespacedName

SubjectKey = tuple[bool, str]
"""A subject: whether it is a group, and its name. Service accounts are users with their full user name."""
SubjectIndexes = dict[str, int]
"""Names of bindings in one namespace, and the index of the subject in each."""


class BindingIndex:
    """Bindings by subject and by namespace; an empty namespace means ClusterRoleBindings."""

    def __init__(self) -> None:
        self._bindings: dict[NamespacedName, Object] = {}
        self._by_subject: dict[SubjectKey, dict[str, SubjectIndexes]] = {}

    def update(self, key: NamespacedName, binding: Object | None) -> None:
        """Adds or replaces a binding; None removes it."""
        old = self._bindings.pop(key, None)
        if old is not None:
            self._remove(key, old)
        if binding is not None:
            self._bindings[key] = binding
            namespace, name = key
            for number, who in _subject_keys(namespace, binding):
                self._by_subject.setdefault(who, {}).setdefault(namespace, {}).setdefault(name, number)

    def _remove(self, key: NamespacedName, binding: Object) -> None:
        namespace, name = key
        for _, who in _subject_keys(namespace, binding):
            filed = self._by_subject.get(who, {})
            named = filed.get(namespace, {})
            named.pop(name, None)
            if not named:
                filed.pop(namespace, None)
            if not filed:
                self._by_subject.pop(who, None)

    def find_for_user(self, user: User) -> list[dict[str, SubjectIndexes]]:
        """The index entries of a user and its groups, by namespace. Callers must not modify them."""
        subjects: Iterable[SubjectKey] = ((False, user.name), *((True, group) for group in dict.fromkeys(user.groups)))
        return [self._by_subject[subject] for subject in subjects if subject in self._by_subject]

    def bindings_in(
        self, found: Iterable[dict[str, SubjectIndexes]], namespace: str
    ) -> Iterator[tuple[str, Object, Object]]:
        """The bindings of these index entries in a namespace, sorted by name: name, binding and subject."""
        by_namespace: SubjectIndexes = {}
        for filed in found:
            for name, number in filed.get(namespace, {}).items():
                by_namespace[name] = min(number, by_namespace.get(name, number))
        for name in sorted(by_namespace):
            binding = self._bindings[namespace, name]
            yield name, binding, binding["subjects"][by_namespace[name]]


def _subject_keys(namespace: str, binding: Object) -> Iterator[tuple[int, SubjectKey]]:
    for number, subject in enumerate(binding.get("subjects") or ()):
        kind, name = subject["kind"], subject["name"]
        if kind == "ServiceAccount":
            name = f"{SERVICE_ACCOUNT_PREFIX}{subject.get('namespace') or namespace}:{name}"
        yield number, (kind == "Group", name)
