"""Whose key is it? Components of the platform, such as runners and agents, are whoever comes with the key that was made
for an object that is still there. `runners.py` and `agents.py` say what each of them may do.
"""

import msgspec

from fairlead.core.user import User
from fairlead.kinds.components import Component
from fairlead.storage.view import View

KEYS = "ownedaccesskeys"


class _Reference(msgspec.Struct):
    kind: str = ""
    uid: str = ""


class _Meta(msgspec.Struct):
    uid: str = ""
    ownerReferences: list[_Reference] | None = None


class _Owned(msgspec.Struct):
    """Just enough of an object to know which one it is, and whose."""

    metadata: _Meta


_owned = msgspec.json.Decoder(_Owned).decode


class Bearers:
    """Those who come with keys of one sort of components."""

    def __init__(self, component: Component, api_group: str, view: View) -> None:
        self._component = component
        self._group = api_group
        self._view = view

    def owner(self, user: User) -> str | None:
        """The name of the object that the user stands for; None for everybody else."""
        prefix = self._component.subject_prefix
        if not user.name.startswith(prefix) or user.name not in user.groups:
            return None
        name = user.name.removeprefix(prefix)
        owner = self._view.get((self._group, self._component.plural, "", name))
        if owner is None:
            return None
        key = self._view.get((self._group, KEYS, "", user.key)) if user.key else None
        references = (_owned(key.body).metadata.ownerReferences or ()) if key is not None else ()
        # A key that was made for another object of this name is on its way out, and stands for nobody until then.
        uid = _owned(owner.body).metadata.uid
        foreign = any(each.kind == self._component.owner and each.uid != uid for each in references)
        return None if foreign else name
