"""Annotations that an App sets on all objects that it deploys: which keys it may set. Pure."""

from collections.abc import Iterator
from typing import Any

from fairlead.registry.names import qualified_name_errors

RESERVED_DOMAINS = ("service.sh", "helm.sh")
"""Of keys that Fairlead and Helm act on, also with a subdomain."""

ReleaseAnnotations = tuple[tuple[str, str], ...]
"""Keys and values, sorted by key."""


def find_annotation_problems(annotations: Any) -> Iterator[tuple[str, str]]:
    """The keys that an App may not set, each with the reason."""
    for key in annotations if isinstance(annotations, dict) else ():
        domain = key.rpartition("/")[0].lower()
        if any(domain == each or domain.endswith(f".{each}") for each in RESERVED_DOMAINS):
            yield key, "is reserved for Fairlead and Helm; use a prefix of your own"
        else:
            yield from ((key, f"is not the key of an annotation: {fault}") for fault in qualified_name_errors(key))


def read_annotations(config: Any) -> ReleaseAnnotations:
    """The annotations in the rendered content of an App."""
    found = config.get("annotations") or {}
    return tuple(sorted((key, str(value or "")) for key, value in found.items()))
