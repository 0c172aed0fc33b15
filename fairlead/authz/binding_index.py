"""RBAC bindings indexed by subject, updated incrementally, one binding at a time. Used by `authz/rbac.py`."""

from collections.abc import Iterable, Iterator

from fairlead.core.objects import Object
from fairlead.core.user import SERVICE_ACCOUNT, User
from fairlead.storage.view.view import Place

Who = tuple[bool, str]
"""A subject: whether it is a group, and its name. Service accounts are users with their full user name."""
Named = dict[str, int]
"""Names of bindings in one namespace, and the index of the subject in each."""


class Subjects:
    """Bindings by subject and by namespace; an empty namespace means ClusterRoleBindings."""

    def __init__(self) -> None:
        self._bindings: dict[Place, Object] = {}
        self._filed: dict[Who, dict[str, Named]] = {}

    def put(self, place: Place, binding: Object | None) -> None:
        """Adds or replaces a binding; None removes it."""
        old = self._bindings.pop(place, None)
        if old is not None:
            self._remove(place, old)
        if binding is not None:
            self._bindings[place] = binding
            namespace, name = place
            for number, who in _subjects(namespace, binding):
                self._filed.setdefault(who, {}).setdefault(namespace, {}).setdefault(name, number)

    def _remove(self, place: Place, binding: Object) -> None:
        namespace, name = place
        for _, who in _subjects(namespace, binding):
            filed = self._filed.get(who, {})
            named = filed.get(namespace, {})
            named.pop(name, None)
            if not named:
                filed.pop(namespace, None)
            if not filed:
                self._filed.pop(who, None)

    def find(self, user: User) -> list[dict[str, Named]]:
        """The index entries of a user and its groups, by namespace. Callers must not modify them."""
        subjects: Iterable[Who] = ((False, user.name), *((True, group) for group in dict.fromkeys(user.groups)))
        return [self._filed[subject] for subject in subjects if subject in self._filed]

    def bindings(self, found: Iterable[dict[str, Named]], namespace: str) -> Iterator[tuple[str, Object, Object]]:
        """The bindings of these index entries in a namespace, sorted by name: name, binding and subject."""
        places: Named = {}
        for filed in found:
            for name, number in filed.get(namespace, {}).items():
                places[name] = min(number, places.get(name, number))
        for name in sorted(places):
            binding = self._bindings[namespace, name]
            yield name, binding, binding["subjects"][places[name]]


def _subjects(namespace: str, binding: Object) -> Iterator[tuple[int, Who]]:
    for number, subject in enumerate(binding.get("subjects") or ()):
        kind, name = subject["kind"], subject["name"]
        if kind == "ServiceAccount":
            name = f"{SERVICE_ACCOUNT}{subject.get('namespace') or namespace}:{name}"
        yield number, (kind == "Group", name)
