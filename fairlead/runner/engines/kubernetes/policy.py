"""What a repository may ask for in its devcontainer.json, if its workspace runs in a cluster.

The rules are those of the engine `devcontainer`, with two differences. Nothing is built, because that would need a
privileged Pod or a registry. And the metadata in labels of images has no effect, because nothing here reads it.
Properties that are not known are refused.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairlead.runner.engines.devcontainer.policy import HARMLESS, NEVER
from fairlead.runner.engines.kubernetes.settings import is_image

BUILD_ADVICE = (
    "nothing is built in a cluster; build the image elsewhere, for example with `devcontainer build --push`, and name "
    "it in `image`"
)
BUILDS = ("build", "dockerFile", "context", "features")
REFUSED = {**NEVER, "workspaceMount": "the runner mounts the work folder itself; leave it out"}
MOUNT_FIELDS = frozenset({"type", "source", "src", "target", "dst", "destination"})
RESERVED = ("proc", "sys", "dev", "run", "volume", "workspaces")
SHM_SIZE = re.compile(r"--shm-size=([1-9][0-9]*)([kmg]?)b?", re.IGNORECASE)
SECCOMP_UNCONFINED = "seccomp=unconfined"
_VOLUME = re.compile(r"[A-Za-z0-9][\w.-]{0,62}")
_CAPABILITY = re.compile(r"[A-Z][A-Z_]{1,40}")

Permissions = frozenset[str]


def find_violations(configuration: Mapping[str, Any], permissions: Permissions) -> list[str]:
    """Sentences on everything that is refused."""
    found: list[str] = []
    for name, value in configuration.items():
        if value in (None, False, [], {}, ""):
            continue
        if name in REFUSED:
            found.append(f"{name} is refused: {REFUSED[name]}")
        elif name in HARMLESS:
            continue
        elif name in BUILDS:
            found.append(f"{name} is refused: {BUILD_ADVICE}")
        elif name in CHECKS:
            found += CHECKS[name](value, permissions)
        else:
            found.append(f"{name} is not a property that this runner knows")
    image = configuration.get("image")
    if image and not (isinstance(image, str) and is_image(image)):
        found.append(f"image {image!r} is refused: it is not the name of an image")
    return list(dict.fromkeys(found))


def parse_mount(mount: Any) -> tuple[str, str, str]:
    """Type, source and target; an empty type if the mount makes no sense."""
    if isinstance(mount, str):
        fields = dict(part.partition("=")[::2] for part in mount.split(","))
    elif isinstance(mount, Mapping):
        fields = {str(name): str(value) for name, value in mount.items()}
    else:
        fields = {}
    target = fields.get("target") or fields.get("dst") or fields.get("destination") or ""
    source = fields.get("source") or fields.get("src") or ""
    kind = fields.get("type", "volume")
    is_known = fields.keys() <= MOUNT_FIELDS | {"consistency"}
    has_source = bool(_VOLUME.fullmatch(source)) if kind == "volume" else not source
    return (kind, source, target) if is_known and has_source and target else ("", source, target)


def is_reserved(target: str) -> bool:
    """Whether a mount there would replace something of the engine or the kernel."""
    parts = [part for part in posixpath.normpath(f"/{target}").split("/") if part]
    return not target.startswith("/") or ".." in target.split("/") or not parts or parts[0] in RESERVED


def _check_privileged(value: Any, permissions: Permissions) -> Iterator[str]:
    if "privileged" not in permissions:
        yield "privileged needs the permission privileged of the template"


def _check_capabilities(value: Any, permissions: Permissions) -> Iterator[str]:
    if "capAdd" not in permissions:
        yield "capAdd needs the permission capAdd of the template"
    elif not isinstance(value, list) or not all(
        isinstance(each, str) and _CAPABILITY.fullmatch(each) for each in value
    ):
        yield "capAdd must be a list of capabilities such as SYS_PTRACE"


def _check_security(value: Any, permissions: Permissions) -> Iterator[str]:
    for option in value if isinstance(value, list) else [value]:
        if option != SECCOMP_UNCONFINED:
            yield f"securityOpt {option!r} is refused: only {SECCOMP_UNCONFINED} has a meaning in a cluster"
        elif "securityOpt" not in permissions:
            yield f"securityOpt {option!r} needs the permission securityOpt of the template"


def _check_mounts(value: Any, permissions: Permissions) -> Iterator[str]:
    for mount in value if isinstance(value, list) else [value]:
        kind, _, target = parse_mount(mount)
        if kind not in ("volume", "tmpfs"):
            yield f"mount {mount} is refused: only volumes and tmpfs can be mounted"
        elif is_reserved(target):
            yield f"mount {mount} is refused: its target is reserved"
        elif "mounts" not in permissions:
            yield f"mount {mount} needs the permission mounts of the template"


def _check_run_arguments(value: Any, permissions: Permissions) -> Iterator[str]:
    for argument in value if isinstance(value, list) else [value]:
        if not isinstance(argument, str) or not SHM_SIZE.fullmatch(argument):
            yield f"runArgs {argument!r} is refused: only --shm-size=SIZE has a meaning in a cluster"
        elif "runArgs" not in permissions:
            yield f"runArgs {argument!r} needs the permission runArgs of the template"


CHECKS: Mapping[str, Callable[[Any, Permissions], Iterator[str]]] = {
    "privileged": _check_privileged,
    "capAdd": _check_capabilities,
    "securityOpt": _check_security,
    "mounts": _check_mounts,
    "runArgs": _check_run_arguments,
}
