"""Which requests hand out, take in or change a credential. They are recorded whatever the policy says.

The kinds' own declarations say most of it. Some paths are known by their names alone, because what they answer with is
no field of an object.
"""

from collections.abc import Iterator

from fairlead.core.call import Target
from fairlead.registry.catalog import Catalog
from fairlead.registry.kind import Kind

WRITES = frozenset({"create", "update", "patch"})
READS = frozenset({"get", "list", "watch"})

LOGIN = "/auth/"
"""Everything below is about signing in."""

SUBRESOURCES = frozenset({"accesskey", "accesskeys", "kubeconfig", "profile", "resetaccesskey", "rotate", "token"})
RESOURCES = ("accesskeys", "tokens", "tokenkeyrotations")
"""How the names of resources end whose creation makes a credential, in case their kind does not say so itself."""

Asked = tuple[str, str, str, str]
"""Verb, group, resource and subresource."""


class Credentials:
    """The register of a catalog's requests about credentials."""

    def __init__(self, catalog: Catalog) -> None:
        self._known = frozenset(asked for kind in catalog.kinds for asked in _asked(kind))

    def concern(self, target: Target) -> bool:
        """Whether the request is about a credential. Rather once too often."""
        if not target.is_resource:
            return target.path.startswith(LOGIN)
        if target.subresource in SUBRESOURCES:
            return True
        if target.verb in WRITES and target.resource.endswith(RESOURCES):
            return True
        return (target.verb, target.group, target.resource, target.subresource) in self._known


def _asked(kind: Kind) -> Iterator[Asked]:
    for verb in _verbs(kind):
        for subresource in ("", *kind.subresources):
            yield verb, kind.group, kind.plural, subresource
    for action in kind.actions:
        if (action.kind or kind).secret:
            for verb in action.verbs:
                yield verb, kind.group, kind.plural, action.name


def _verbs(kind: Kind) -> frozenset[str]:
    """Writing is always about the credentials of a kind that has some; reading is where an answer shows them."""
    if not kind.secret:
        return frozenset()
    return WRITES if set(kind.secret) <= set(kind.hidden) else WRITES | READS
