"""The project secrets with credentials for registries of images.

The annotation `service.sh/image-registry` of a ProjectSecret names a registry, with a port if it has one, and the path
below which images are meant, if not all: `registry.example.com/team`. They are for the runner alone, which pulls images
of the workspace with them: no program in a workspace gets them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fairlead.subresources.workspaces.project_secrets import ProjectSecret

USER_KEY, PASSWORD_KEY = "username", "password"
MAX_REGISTRIES = 32
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,254}(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._/-]{0,254})?")


@dataclass(frozen=True, slots=True)
class RegistrySecret:
    """One project secret with credentials for a registry."""

    name: str
    place: str


def list_registry_secrets(secrets: Iterable[ProjectSecret], owner: object) -> Iterator[RegistrySecret]:
    """Those of a project: the owner's own first, then by name."""
    found: list[tuple[bool, RegistrySecret]] = []
    for secret in secrets:
        place = secret.registry_place.rstrip("/")
        if _PLACE.fullmatch(place) and PASSWORD_KEY in secret.keys:
            is_own = bool(owner) and secret.owner == owner
            found.append((not is_own, RegistrySecret(secret.name, place)))
    yield from (each for _, each in sorted(found, key=lambda pair: (pair[0], pair[1].name)))
