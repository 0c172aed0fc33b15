"""Bindings by their subjects, kept up to date one binding at a time.

`authz/rbac.py` asks it what somebody holds. One more binding among thousands costs as much as the first: nothing is
gone through again but the binding that has changed.
"""

from collections.abc import Iterable, Iterator

from fairlead.core.objects import Object
from fairlead.core.user import SERVICE_ACCOUNT, User
from fairlead.storage.view.view import Place

Who = tuple[bool, str]
"""A subject: whether it is a group, and its name. Service accounts are users with long names."""
Named = dict[str, int]
"""Names of bindings in one namespace, and the place of the subject in each."""


class Subjects:
    """Files bindings under their subjects, and under the namespace where they count; the empty one is everywhere."""

    def __init__(self) -> None:
        self._bindings: dict[Place, Object] = {}
        self._filed: dict[Who, dict[str, Named]] = {}

    def put(self, place: Place, binding: Object | None) -> None:
        """Takes in what a binding is now; None where it is gone."""
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
        """All that is filed under a user and its groups, by namespace: to be looked at, not to be changed."""
        whoever: Iterable[Who] = ((False, user.name), *((True, group) for group in dict.fromkeys(user.groups)))
        return [self._filed[who] for who in whoever if who in self._filed]

    def bindings(self, found: Iterable[dict[str, Named]], namespace: str) -> Iterator[tuple[str, Object, Object]]:
        """Of what was found, the bindings that count in a namespace, in order: name, binding and subject."""
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
