"""References to images: which of them a repository may use.

All workspaces of a runner share its image store. Images that were built for a workspace have a name with its uid, which
only the shim gives. A reference by a digest or a part of one could name the image of another workspace, and so could
one with a transport, such as `containers-storage:` or `oci-archive:`, which also reads files of the machine. So only
plain names are accepted. Podman pulls them from the network of the machine itself: registries on its own addresses are
refused, too.
"""

import ipaddress
import re
from collections.abc import Sequence

FEATURE_CONTENT = "dev_container_feature_content_temp"
"""The CLI's name for the files of features during a build, the same for all workspaces: two builds at the same time
would mix them up."""
BUILT = "vsc-"
"""How the names begin that the CLI gives to the images that it builds."""
OWN = "localhost/fairlead-"
SHARED = f"{OWN}shared/{BUILT}"
"""How the names begin of images that workspaces of one repository share. Podman also finds an image by the last part of
its name, so that part begins like those of the CLI, which mean images of the own workspace."""

_PART_OF_DIGEST = re.compile(r"(?:sha256:)?[0-9a-fA-F]+")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?P<host>[A-Za-z0-9.-]+(?::[0-9]+)?)/)?{_PART}(?:/{_PART})*"
    r"(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_TRANSPORT = re.compile(
    r"(?:containers-storage|dir|docker-archive|docker-daemon|oci|oci-archive|ostree|sif|tarball):.*"
)
_NUMERIC_HOST = re.compile(r"(?:0[xX][0-9A-Fa-f]+|[0-9.])+")


def own_image(name: str, uid: str) -> str:
    """The name in the image store of an image that was built for a workspace."""
    return f"{OWN}{uid}/{name}"


def resolve_image(reference: str, uid: str) -> str | None:
    """The name in the store for a name that the CLI or a repository uses; None if it may not be used."""
    plain = reference.removeprefix("localhost/")
    if not is_plain_reference(reference):
        return None
    if plain.startswith((BUILT, FEATURE_CONTENT)):
        return own_image(plain, uid)
    if plain.startswith(OWN.removeprefix("localhost/")):
        return reference if reference.startswith(f"{OWN}{uid}/") else None
    return reference


def is_plain_reference(reference: str) -> bool:
    match = _REFERENCE.fullmatch(reference)
    if match is None or _PART_OF_DIGEST.fullmatch(reference) or _TRANSPORT.fullmatch(reference):
        return False
    host, has_port, _ = (match["host"] or "").partition(":")
    is_registry = "." in host or has_port  # else it is a part of the name, also `localhost`: images of this machine
    return not is_registry or not is_local_host(host)


def is_local_host(host: str) -> bool:
    """Whether a server of this name would be the machine itself, or a service for this machine only."""
    if host.lower().rstrip(".").endswith("localhost"):
        return True
    if not _NUMERIC_HOST.fullmatch(host):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # short and octal forms, which some resolvers accept
        return True
    return address.is_loopback or address.is_link_local or address.is_unspecified


def is_foreign(names: Sequence[str], uid: str) -> bool:
    """Whether an image with these names belongs to other workspaces only: a digest may lead to it."""
    built = [name for name in names if name.startswith(OWN)]
    return bool(built) and len(built) == len(names) and not any(name.startswith(f"{OWN}{uid}/") for name in names)
