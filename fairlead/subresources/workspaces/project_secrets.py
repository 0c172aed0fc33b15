"""What a runner's requests need to know of the project secrets with credentials: their annotations, owners and keys.

Each `git` in a workspace asks anew, and members store megabytes of secrets. So a secret is read once for each of its
revisions, without its values, and those without such an annotation not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.core.bounded_cache import BoundedCache
from fairlead.domain.secret_references import PROJECT_SECRETS
from fairlead.storage.contract import Key
from fairlead.storage.view.entry import Entry
from fairlead.storage.view.view import View

GIT_HOST_ANNOTATION = "service.sh/git-host"
"""On a ProjectSecret: it has credentials for repositories on this host, `host`, `host:port` or `host/path`."""
REGISTRY_ANNOTATION = "service.sh/image-registry"
MAX_NAMESPACES, MAX_SECRETS = 10_000, 100_000
"""That are remembered."""


@dataclass(frozen=True, slots=True)
class ProjectSecret:
    name: str
    git_place: str
    registry_place: str
    owner: object
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProjectSecrets:
    view: View
    group: str
    _known: BoundedCache[str, dict[Key, tuple[int, ProjectSecret | None]]] = field(
        default_factory=lambda: BoundedCache(MAX_NAMESPACES, MAX_SECRETS, len)
    )

    def list(self, namespace: str) -> Sequence[ProjectSecret]:
        """Those of a project that have one of the annotations."""
        known = self._known.get(namespace, {})
        current: dict[Key, tuple[int, ProjectSecret | None]] = {}
        for entry in self.view.entries(self.group, PROJECT_SECRETS, namespace):
            found = known.get(entry.key)
            is_current = found is not None and found[0] == entry.revision
            current[entry.key] = found if found is not None and is_current else (entry.revision, _read(entry))
        self._known[namespace] = current
        return [secret for _, secret in current.values() if secret is not None]


class _Metadata(msgspec.Struct):
    name: str
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None
    owner: Any = None


class _Secret(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


_decode = msgspec.json.Decoder(_Secret).decode
_MARKS = (GIT_HOST_ANNOTATION.encode(), REGISTRY_ANNOTATION.encode())


def _read(entry: Entry) -> ProjectSecret | None:
    body = entry.full_body or entry.body
    if not any(mark in body for mark in _MARKS):
        return None
    secret = _decode(body)
    annotations = secret.metadata.annotations or {}
    git_place, registry_place = (annotations.get(each) or "" for each in (GIT_HOST_ANNOTATION, REGISTRY_ANNOTATION))
    if not git_place and not registry_place:
        return None
    spec = secret.spec or _Spec()
    return ProjectSecret(secret.metadata.name, git_place, registry_place, spec.owner, frozenset(spec.data or ()))
