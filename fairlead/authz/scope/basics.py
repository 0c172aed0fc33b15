"""What every client asks of a cluster, whatever it does then: discovery documents, and questions about oneself.

No client can do without, and nobody learns or changes anything by it that is not theirs to know. So it is inside every
scope that reaches the cluster, space or virtual cluster (`boundary.py`), and inside every space (`gateway/`).
"""

from collections.abc import Sequence

from fairlead.authz.scope.paths import is_plain
from fairlead.core.call import Target

HEALTH = frozenset({"version", "healthz", "livez", "readyz"})
QUESTIONS = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)
"""`kubectl auth whoami`, `kubectl auth can-i` and `kubectl auth can-i --list`, by group and resource."""


def is_basic(target: Target) -> bool:
    """Whether a request behind a gateway is one of these."""
    if target.resource:
        plain = not (target.name or target.subresource or target.namespace)
        return plain and target.verb == "create" and (target.group, target.resource) in QUESTIONS
    return target.verb == "get" and is_plain(target.path) and is_document(target.path.strip("/").split("/"))


def is_document(steps: Sequence[str]) -> bool:
    """Discovery, schemas, the version and whether the cluster is well. `steps` are those of a path."""
    match steps:
        case [""] | ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] | ["openapi", *_]:
            return True
        case [only]:
            return only in HEALTH
        case _:
            return False
