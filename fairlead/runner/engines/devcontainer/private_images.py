"""Images for which the project of a workspace has credentials: they are pulled for this workspace alone.

A holder of its own pulls them, in which nothing of the repository runs or was written, and which gets the credentials
of that registry through a pipe. It writes to a store that the workspace then sees read-only, like that of the images
that all workspaces share (`pulled_images.py`). So neither a program in the workspace nor what took its holder over
before comes near the credentials, and no workspace sees the images of another one.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence

from fairlead.runner.engines.contract import EngineError, Reason, RegistryCredentials
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.image_names import is_pulled_here
from fairlead.runner.engines.devcontainer.isolation.holder import ImageStore
from fairlead.runner.engines.devcontainer.isolation.workspace_holder import OWN_IMAGES, HolderFactory
from fairlead.runner.engines.devcontainer.layout import WorkspaceFolder, read_json, write_json
from fairlead.runner.engines.devcontainer.programs import last_line

DEFAULT_REGISTRY, DEFAULT_FOLDER = "docker.io", "library"
DEFAULT_REGISTRY_NAMES = ("index.docker.io", "registry-1.docker.io")
PULL = """
umask 077
cat >/run/auth.json
if [ -n "$3" ] || ! "$1" image exists "$2"; then exec "$1" pull --quiet --authfile=/run/auth.json "$2"; fi
"""
MAX_REASON = 1000


def select_private(
    references: Sequence[str], registries: Sequence[RegistryCredentials]
) -> dict[str, RegistryCredentials]:
    """The images for which there are credentials, and which: the most precise place counts."""
    places = sorted(registries, key=lambda each: -len(each.place))
    found: dict[str, RegistryCredentials] = {}
    for reference in filter(is_pulled_here, references):
        name = full_name(reference)
        for each in places:
            if f"{name}/".startswith(f"{_canonical_place(each.place)}/"):
                found[reference] = each
                break
    return found


def full_name(reference: str) -> str:
    """The name of an image with its registry, and without its version."""
    name = reference.partition("@")[0]
    last = name.rpartition("/")[2]
    name = name.removesuffix(f":{last.partition(':')[2]}") if ":" in last else name
    host, has_path, rest = name.partition("/")
    if not has_path or not ("." in host or ":" in host or host == "localhost"):
        host, rest = DEFAULT_REGISTRY, name
    host = _canonical_place(host)
    rest = f"{DEFAULT_FOLDER}/{rest}" if host == DEFAULT_REGISTRY and "/" not in rest else rest
    return f"{host}/{rest}"


def _canonical_place(place: str) -> str:
    host, has_path, rest = place.rstrip("/").partition("/")
    host = DEFAULT_REGISTRY if host.lower() in DEFAULT_REGISTRY_NAMES else host.lower()
    return f"{host}/{rest}" if has_path else host


def private_store(folder: WorkspaceFolder, grant: Grant) -> list[ImageStore]:
    """For the holder of the workspace; empty as long as nothing was pulled."""
    if not folder.private_images.exists():
        return []
    if folder.disk.exists():
        return [ImageStore(f"{OWN_IMAGES}/store", "/images/private", grant.first_uid, str(folder.disk))]
    return [ImageStore(str(folder.root / OWN_IMAGES / "store"), "/images/private", grant.first_uid)]


def list_missing(
    folder: WorkspaceFolder, wanted: Mapping[str, RegistryCredentials], grant: Grant
) -> dict[str, RegistryCredentials]:
    known = [] if grant.pulls_always else read_json(folder.private_images) or []
    return {reference: each for reference, each in wanted.items() if reference not in known}


async def pull_private(factory: HolderFactory, missing: Mapping[str, RegistryCredentials]) -> None:
    """To be called when no other holder of the workspace runs. Raises EngineError with podman's reason."""
    for reference, credentials in missing.items():
        await _pull(factory, reference, credentials)
        known = read_json(factory.folder.private_images) or []
        names = list(dict.fromkeys([*known, reference]))
        await asyncio.to_thread(write_json, factory.folder.private_images, names)


async def _pull(factory: HolderFactory, reference: str, credentials: RegistryCredentials) -> None:
    encoded = b64encode(f"{credentials.user}:{credentials.password}".encode()).decode()
    host = full_name(reference).partition("/")[0]
    auth = json.dumps({"auths": {host: {"auth": encoded}}}).encode()
    is_fresh = "fresh" if factory.grant.pulls_always else ""
    command = ("/bin/sh", "-c", PULL, "pull", factory.grant.podman, reference, is_fresh)
    result = await factory.pull_alone(command, auth)
    if result.code != 0:
        reason = last_line(result.errors)[:MAX_REASON].removeprefix("Error: ")
        raise EngineError(
            Reason.IMAGE_PULL_FAILED,
            f"the image {reference} cannot be pulled with the credentials of the project for {credentials.place}: "
            f"{reason}",
        )
