"""What a repository may ask for in its devcontainer.json: the check of the merged configuration.

The configuration is what the dev container CLI reads, merged with the metadata of features and of the image. Properties
that are not listed are refused, because a later version of the CLI may give them a meaning. The shim checks again what
the CLI makes of it (`inside/run_options.py`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairlead.runner.engines.devcontainer.grant import Grant

HARMLESS = frozenset(
    {
        *("$schema", "name", "image", "containerEnv", "remoteEnv", "remoteUser", "containerUser", "workspaceFolder"),
        *("init", "overrideCommand", "waitFor", "userEnvProbe", "forwardPorts", "portsAttributes"),
        *("otherPortsAttributes", "customizations", "extensions", "settings", "devPort", "secrets"),
        *("shutdownAction", "updateRemoteUserUID", "hostRequirements", "overrideFeatureInstallOrder"),
        *("onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand"),
        *("onCreateCommands", "updateContentCommands", "postCreateCommands", "postStartCommands"),
        *("postAttachCommands", "configFilePath", "entrypoints", "workspaceMount"),
    }
)
"""They concern the inside of the container, or tools of the user, or are ignored. Of `workspaceMount`, the shim lets
pass what mounts the work folder."""
COMPOSE = frozenset({"dockerComposeFile", "service", "runServices"})
NEVER = {
    "initializeCommand": "it would run outside of the container",
    "appPort": "it would open ports of the machine; use forwardPorts",
    "dockerComposeFile": "Compose files are not read here",
    "service": "Compose files are not read here",
    "runServices": "Compose files are not read here",
}
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
        elif name in CHECKS:
            yield from CHECKS[name](value, grant)
        elif name in LEFT_OUT:
            continue
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
        pin = grant.feature_pins.get(feature_path(name))
        if pin and name != f"{feature_path(name)}@{pin}":
            yield f"feature {name!r} is refused: the operator of the runner has pinned it to {pin}"
        is_listed = bool(pin) or any(_is_from(name, source) for source in grant.feature_sources)
        if not is_listed and not grant.allows("features"):
            yield f"feature {name!r} is not from a source that the runner lists; it needs the permission features"


def feature_path(feature: str) -> str:
    """The name of a feature without its version; empty if it is none of a registry."""
    found = _FEATURE.fullmatch(feature)
    return found["path"] if found is not None else ""


def _is_from(feature: str, source: str) -> bool:
    """Whether a source of the list is the feature, or a folder above it, and not only the begin of another name."""
    path = feature_path(feature)
    return bool(path) and f"{path}/".startswith(f"{source.rstrip('/')}/")


def _check_run_arguments(arguments: Any, grant: Grant) -> Iterator[str]:
    """Those that are left when the configuration was adapted."""
    for argument in arguments if isinstance(arguments, list) else [arguments]:
        name = str(argument).partition("=")[0]
        if not isinstance(argument, str) or "=" not in argument or name not in ("--shm-size", "--ulimit"):
            yield f"runArgs {argument!r} is refused: only --shm-size=VALUE and --ulimit=VALUE can be passed on"
        elif name == "--ulimit" and not grant.allows("runArgs"):
            yield f"runArgs {argument!r} needs the permission runArgs of the template"


def _check_nothing(value: Any, grant: Grant) -> Iterator[str]:
    """For the older forms of properties of `build`."""
    return iter(())


CHECKS: Mapping[str, Callable[[Any, Grant], Iterator[str]]] = {
    "build": _check_build,
    "features": _check_features,
    "runArgs": _check_run_arguments,
    "dockerFile": _check_nothing,
    "context": _check_nothing,
}
LEFT_OUT = frozenset({"privileged", "capAdd", "securityOpt", "mounts"})
"""What the shim leaves out as far as the template does not allow it."""
KNOWN_PROPERTIES = HARMLESS | NEVER.keys() | CHECKS.keys() | LEFT_OUT
