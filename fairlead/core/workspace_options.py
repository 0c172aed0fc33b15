"""Which options of a workspace template's provider give power or choose a place, and who may set them.

The server and the runner both enforce it. Options that are not listed here belong to engines of other packages, so they
count as powerful.
"""

from collections.abc import Iterator, Mapping
from typing import Any

ALLOW = "allow"
"""The option that lists the permissions of repositories."""
SIZE_OPTIONS = frozenset({"memory", "cpus", "processes", "storage", "ephemeralStorage"})
"""Limits. From a template that is not trusted, the runner accepts them up to its own defaults."""
UNTRUSTED_OPTIONS = SIZE_OPTIONS | {"image", "dotfiles", "user", "userNamespace"}
"""What every template may set: it concerns the inside of the workspace, or makes it stricter."""
PLACEMENT_OPTIONS = frozenset(
    {
        *(ALLOW, "cluster", "namespace", "cloneImage", "imagePullPolicy", "imagePullSecret", "storageClass"),
        *("accessMode", "runtimeClass", "nodeSelector", "networkPolicy"),
    }
)
"""Permissions and placement. Only the author of a trusted template chooses them."""


def find_untrusted_options(options: Any) -> list[str]:
    """The options that count only in a trusted template. Empty values are no values; values of the wrong type, which
    the schema of the API rejects, count as values."""
    found = _read_options(options)
    return sorted(name for name, value in found if name not in UNTRUSTED_OPTIONS or is_from_secret(value))


def find_secret_placement(options: Any) -> list[str]:
    """The options that come from a secret and must not, in no template: members of a project write its secrets."""
    decided = PLACEMENT_OPTIONS | SIZE_OPTIONS
    return sorted(name for name, value in _read_options(options) if name in decided and is_from_secret(value))


def is_from_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value.get("valueFrom"))


def _read_options(options: Any) -> Iterator[tuple[str, Any]]:
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if isinstance(value, Mapping) and not value.get("value") and not is_from_secret(value):
            continue
        if value not in (None, ""):
            yield str(name), value
