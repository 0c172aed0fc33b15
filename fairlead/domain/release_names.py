"""Names of Helm releases. Pure."""

import hashlib
from collections.abc import Iterable

from fairlead.core.errors import Problem
from fairlead.registry.names import dns_label_errors

MAX_RELEASE_NAME_LENGTH = 53
"""Helm's limit for release names."""
_HASH_LENGTH = 8


def release_name(name: str) -> str:
    """The release name for an object. Dots are replaced: charts often derive names from it that may not contain any."""
    text = name.replace(".", "-")
    if len(text) <= MAX_RELEASE_NAME_LENGTH:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{text[: MAX_RELEASE_NAME_LENGTH - _HASH_LENGTH - 1].rstrip('-.')}-{digest}"


def release_name_problems(path: str, name: str) -> Iterable[Problem]:
    """The name becomes part of names and paths in the cluster."""
    if len(name) > MAX_RELEASE_NAME_LENGTH:
        yield Problem.invalid(path, name, f"must be no more than {MAX_RELEASE_NAME_LENGTH} characters")
        return
    yield from (Problem.invalid(path, name, fault) for fault in dns_label_errors(name))
