"""What a repository may ask for in its devcontainer.json: the check of the merged configuration.

The configuration is what the dev container CLI reads, merged with the metadata of features and of the image. Properties
that are not listed are refused, because a later version of the CLI may give them a meaning. The shim checks again what
the CLI makes of it (`command_lines.py`).
"""

import os.path
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairlead.runner.engines.devcontainer.command_lines import PERMITTED_RUN_ARGUMENTS, is_reserved
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.images import is_local_host, resolve_image

HARMLESS = frozenset(
    {
        *("$schema", "name", "image", "containerEnv", "remoteEnv", "remoteUser", "containerUser", "workspaceFolder"),
        *("init", "overrideCommand", "waitFor", "userEnvProbe", "forwardPorts", "portsAttributes"),
        *("otherPortsAttributes", "customizations", "extensions", "settings", "devPort", "secrets"),
        *("shutdownAction", "updateRemoteUserUID", "hostRequirements", "overrideFeatureInstallOrder"),
        *("onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand"),
        *("onCreateCommands", "updateContentCommands", "postCreateCommands", "postStartCommands"),
        *("postAttachCommands", "configFilePath"),
    }
)
"""They concern the inside of the container, or tools of the user, or are ignored."""
NEVER = {
    "initializeCommand": "it would run on the machine of the runner",
    "workspaceMount": "the runner mounts the work folder itself",
    "appPort": "it would open ports of the machine; use forwardPorts",
    "dockerComposeFile": "this runner does not support Compose",
    "service": "this runner does not support Compose",
    "runServices": "this runner does not support Compose",
}
PERMITTED = {"privileged": "privileged", "capAdd": "capAdd", "securityOpt": "securityOpt", "entrypoints": "entrypoints"}
"""Properties that a template allows as a whole, and the permission for each."""
BUILD_PROPERTIES = frozenset({"dockerfile", "context", "target", "args", "cacheFrom"})


def check_configuration(result: Mapping[str, Any], grant: Grant) -> list[str]:
    """Sentences on everything in the result of `read-configuration` that is refused."""
    own, merged = result.get("configuration") or {}, result.get("mergedConfiguration") or {}
    found = [*_check_properties(own, grant), *_check_properties(merged, grant)]
    found += _check_paths(own, grant)
    return list(dict.fromkeys(found))  # once, although most properties are in both


def _check_properties(configuration: Mapping[str, Any], grant: Grant) -> Iterator[str]:
    for name, value in configuration.items():
        if name in HARMLESS or value in (None, False, [], {}, ""):
            continue
        if name in NEVER:
            yield f"{name} is refused: {NEVER[name]}"
        elif name in PERMITTED:
            if not grant.allows(PERMITTED[name]):
                yield f"{name} needs the permission {PERMITTED[name]} of the template"
        elif name in CHECKS:
            yield from CHECKS[name](value, grant)
        else:
            yield f"{name} is not a property that this runner knows"
    if isinstance(image := configuration.get("image"), str) and image and resolve_image(image, grant.uid) is None:
        yield f"image {image!r} is refused: use a name, not a digest or a part of one"


def _check_build(build: Any, grant: Grant) -> Iterator[str]:
    if not isinstance(build, Mapping):
        yield "build must be an object"
        return
    for name, value in build.items():
        if name == "options":
            if value and not grant.allows("buildOptions"):
                yield "build.options needs the permission buildOptions of the template"
        elif name not in BUILD_PROPERTIES:
            yield f"build.{name} is not a property that this runner knows"


def _check_features(features: Any, grant: Grant) -> Iterator[str]:
    for name in features if isinstance(features, Mapping) else ():
        is_listed = name.startswith(grant.feature_sources) if grant.feature_sources else False
        if not is_listed and not grant.allows("features"):
            yield f"feature {name!r} is not from a source that the runner lists; it needs the permission features"
        elif not name.startswith(".") and not _is_remote(name):
            yield f"feature {name!r} is refused: it is not the name of a feature in a registry or on a web server"


def _check_mounts(mounts: Any, grant: Grant) -> Iterator[str]:
    for mount in mounts if isinstance(mounts, list) else [mounts]:
        if isinstance(mount, str):
            fields = dict(part.partition("=")[::2] for part in mount.split(","))
        elif isinstance(mount, Mapping):
            fields = {str(name): str(value) for name, value in mount.items()}
        else:
            fields = {}
        target = fields.get("target") or fields.get("dst") or fields.get("destination") or ""
        if fields.get("type", "volume") not in ("volume", "tmpfs"):
            yield f"mount {mount} is refused: only volumes and tmpfs can be mounted"
        elif is_reserved(target):
            yield f"mount {mount} is refused: its target is reserved"
        elif not grant.allows("mounts"):
            yield f"mount {mount} needs the permission mounts of the template"


def _check_run_arguments(arguments: Any, grant: Grant) -> Iterator[str]:
    for argument in arguments if isinstance(arguments, list) else [arguments]:
        if not isinstance(argument, str) or not argument.startswith(tuple(f"{a}=" for a in PERMITTED_RUN_ARGUMENTS)):
            yield f"runArgs {argument!r} is refused: only {' and '.join(PERMITTED_RUN_ARGUMENTS)}=VALUE can be allowed"
        elif not grant.allows("runArgs"):
            yield f"runArgs {argument!r} needs the permission runArgs of the template"


def _check_paths(configuration: Mapping[str, Any], grant: Grant) -> Iterator[str]:
    """The CLI follows symbolic links when it reads these files, as root."""
    config_file = (configuration.get("configFilePath") or {}).get("fsPath") or ""
    folder = os.path.dirname(config_file)
    build = configuration.get("build")
    build = build if isinstance(build, Mapping) else {}
    dockerfile = build.get("dockerfile") or configuration.get("dockerFile")
    context = build.get("context") or configuration.get("context")
    for name, path in (("devcontainer.json", config_file), ("dockerfile", dockerfile), ("context", context)):
        if isinstance(path, str) and path and not is_inside(os.path.join(folder, path), grant.staging):
            yield f"{name} {path!r} is refused: it leaves the repository"
    for name in configuration.get("features") or {}:
        if name.startswith(".") and not _is_contained(os.path.join(folder, name), grant.staging):
            yield f"feature {name!r} is refused: it leaves the repository, or a link in it does"


def _is_contained(folder: str, root: str) -> bool:
    """Whether a folder and all that it links to are below the root. The CLI copies it, and follows links."""
    if not is_inside(folder, root):
        return False
    entries = (os.path.join(parent, name) for parent, folders, names in os.walk(folder) for name in (*folders, *names))
    return all(is_inside(path, root) for path in entries if os.path.islink(path))


def _is_remote(feature: str) -> bool:
    """Whether the CLI would fetch the feature from another machine. It does so in the network of this one."""
    host = feature.removeprefix("https://").partition("/")[0].partition(":")[0]
    return "." in host and "/" in feature.removeprefix("https://") and not is_local_host(host)


def is_inside(path: str, root: str) -> bool:
    real = os.path.realpath(path)
    return real == root or real.startswith(root + "/")


def _check_nothing(value: Any, grant: Grant) -> Iterator[str]:
    """For the older forms of properties of `build`; `_check_paths` looks at them."""
    return iter(())


CHECKS: Mapping[str, Callable[[Any, Grant], Iterator[str]]] = {
    "build": _check_build,
    "features": _check_features,
    "mounts": _check_mounts,
    "runArgs": _check_run_arguments,
    "dockerFile": _check_nothing,
    "context": _check_nothing,
}
