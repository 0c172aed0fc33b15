"""What a repository may ask for in its devcontainer.json: the check of the merged configuration.

The configuration is what the dev container CLI reads, merged with the metadata of features and of the image. Properties
that are not listed are refused, because a later version of the CLI may give them a meaning. The shim checks again what
the CLI makes of it (`inside/run_options.py`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.inside.run_options import PERMITTED_RUN_ARGUMENTS, is_reserved

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
    "initializeCommand": "it would run outside of the container",
    "workspaceMount": "the runner mounts the work folder itself",
    "appPort": "it would open ports of the machine; use forwardPorts",
    "dockerComposeFile": "this runner does not support Compose",
    "service": "this runner does not support Compose",
    "runServices": "this runner does not support Compose",
}
PERMITTED = {"privileged": "privileged", "capAdd": "capAdd", "securityOpt": "securityOpt", "entrypoints": "entrypoints"}
"""Properties that a template allows as a whole, and the permission for each."""
_FEATURE = re.compile(
    r"(?P<path>(?:https://)?[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)+)"
    r"(?::[A-Za-z0-9._-]{1,128}|@sha256:[0-9a-f]{1,64})?"
)
"""The name of a feature in a registry, or the URL of its archive, in which every program sees the same host and path:
there are no users, escapes, or dots that lead up. The end is a tag or a digest."""
BUILD_PROPERTIES = frozenset({"dockerfile", "context", "target", "args", "cacheFrom"})


def check_configuration(result: Mapping[str, Any], grant: Grant) -> list[str]:
    """Sentences on everything in the result of `read-configuration` that is refused."""
    own = _expect_object(result.get("configuration"))
    merged = _expect_object(result.get("mergedConfiguration"))
    found = [
        *_check_properties(own, grant),
        *_check_properties(merged, grant),
        *_check_features(_list_fetched_features(result), grant),
    ]
    return list(dict.fromkeys(found))  # once, although most properties are in both


def _expect_object(value: Any) -> Mapping[str, Any]:
    """What a workspace prints in place of an object has no properties, and no meaning."""
    return value if isinstance(value, Mapping) else {}


def _list_fetched_features(result: Mapping[str, Any]) -> list[str]:
    """The features that the CLI has fetched, with those that others depend on."""
    sets = _expect_object(result.get("featuresConfiguration")).get("featureSets")
    sources = [_expect_object(_expect_object(each).get("sourceInformation")) for each in _expect_list(sets)]
    return [str(source.get("userFeatureId")) for source in sources]


def _expect_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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
    for name in features if isinstance(features, (Mapping, list)) else ():
        is_listed = any(_is_from(name, source) for source in grant.feature_sources)
        if not is_listed and not grant.allows("features"):
            yield f"feature {name!r} is not from a source that the runner lists; it needs the permission features"


def _is_from(feature: str, source: str) -> bool:
    """Whether a source of the list is the feature, or a folder above it, and not only the begin of another name."""
    found = _FEATURE.fullmatch(feature)
    return found is not None and f"{found['path']}/".startswith(f"{source.rstrip('/')}/")


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


def _check_nothing(value: Any, grant: Grant) -> Iterator[str]:
    """For the older forms of properties of `build`."""
    return iter(())


CHECKS: Mapping[str, Callable[[Any, Grant], Iterator[str]]] = {
    "build": _check_build,
    "features": _check_features,
    "mounts": _check_mounts,
    "runArgs": _check_run_arguments,
    "dockerFile": _check_nothing,
    "context": _check_nothing,
}
