"""Names of Helm releases. Pure."""

from collections.abc import Iterable

from fairlead.core.errors import Problem
from fairlead.core.truncation import truncate_with_hash
from fairlead.registry.names import dns_label_errors

MAX_RELEASE_NAME_LENGTH = 53
"""Helm's limit for release names."""


def release_name(name: str) -> str:
    """The release name for an object. Dots are replaced: charts often derive names from it that may not contain any."""
    return truncate_with_hash(name.replace(".", "-"), MAX_RELEASE_NAME_LENGTH)


def release_name_problems(path: str, name: str) -> Iterable[Problem]:
    """The name becomes part of names and paths in the cluster."""
    if len(name) > MAX_RELEASE_NAME_LENGTH:
        yield Problem.invalid(path, name, f"must be no more than {MAX_RELEASE_NAME_LENGTH} characters")
        return
    yield from (Problem.invalid(path, name, fault) for fault in dns_label_errors(name))
