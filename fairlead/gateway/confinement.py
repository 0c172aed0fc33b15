"""What may be asked through the gateway of a space: its namespace, and what everybody may know about the cluster.

Kubernetes' own permissions decide inside; this keeps everything else out of sight. It looks at the path that is handed
on and at nothing that was made of it, so there is no second reading to disagree with. `gateways.py` calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.authz.scope.basics import QUESTIONS, is_document
from fairlead.core.errors import Forbidden
from fairlead.gateway.paths import plain_path

READS = frozenset({"GET", "HEAD"})
NO_RESOURCES = frozenset({"", "status", "finalize", "namespaces"})
"""What below a namespace is about the namespace itself, or nothing at all."""


@dataclass(frozen=True, slots=True)
class Space:
    """A space as far as its gateway knows it: what people call it, and where it is."""

    title: str
    cluster: str
    namespace: str


def confine(method: str, inner: str, space: Space) -> None:
    """Raises Forbidden for what is not the space's. `inner` is a path, free of tricks, and perhaps a query."""
    path = plain_path(inner)
    if is_inside(method, path.strip("/").split("/"), space.namespace):
        return
    raise Forbidden(
        f'forbidden: {space.title} is the namespace "{space.namespace}" and nothing else of its cluster: {method} '
        f'{path} is outside. Name the namespace, as with "kubectl -n {space.namespace}", or go through the gateway of '
        f'the cluster, /kubernetes/cluster/{space.cluster}, if you may use cluster "{space.cluster}"'
    )


def is_inside(method: str, steps: Sequence[str], namespace: str) -> bool:
    match steps:
        case ["api", _, "namespaces", place, *rest] | ["apis", _, _, "namespaces", place, *rest]:
            return place == namespace and (method in READS if not rest else rest[0] not in NO_RESOURCES)
        case ["apis", group, _, question] if (group, question) in QUESTIONS:
            return method == "POST"
        case _:
            return method in READS and is_document(steps)
