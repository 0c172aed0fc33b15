"""Which texts name an image of a registry. Podman takes others, too: an archive or a folder says itself which names its
images get, and a repository or an image could contain one."""

import re

MAX_REFERENCE = 255
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?", re.A
)
TRANSPORTS = frozenset(
    {"containers-storage", "dir", "docker-archive", "docker-daemon", "oci", "oci-archive", "ostree", "sif", "tarball"}
)
"""Words that podman takes for the sort of place that follows, also where a tag could."""


def is_name(reference: str) -> bool:
    """Whether it names an image, and no place with some."""
    is_short = len(reference) <= MAX_REFERENCE
    return is_short and REFERENCE.fullmatch(reference) is not None and reference.partition(":")[0] not in TRANSPORTS


def is_pulled_here(reference: str) -> bool:
    """Names of registries, and no images that are built on this machine."""
    return is_name(reference) and not reference.startswith("localhost/")
