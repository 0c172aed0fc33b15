"""Adapts the devcontainer.json of a repository to what a workspace can have. Pure.

Repositories are written for Docker on a developer's own machine. What has another form here gets that form (ports,
variables and capabilities in `runArgs`, the place of the work folder), and what the workspace works without is left
out, with a warning that says why. Only what the workspace is made of is refused, by the policy (`policy.py`), which
also checks the result.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.body_errors import Malformed, TooManyValues
from fairlead.core.json import encode, parse_jsonc
from fairlead.runner.engines.devcontainer.grant import Grant
from fairlead.runner.engines.devcontainer.inside.run_options import (
    find_mount_problem,
    is_capability_allowed,
    is_reserved,
    read_mount,
)
from fairlead.runner.engines.devcontainer.policy import BUILD_PROPERTIES, COMPOSE, KNOWN_PROPERTIES, feature_path

MAX_SHOWN = 200
MAX_WARNINGS = 100
"""That the log of a task shows."""
_VARIABLE = re.compile(r"\$\{[A-Za-z]{1,64}\}")
BIND, VOLUME, TMPFS = "bind", "volume", "tmpfs"
MACHINE_PATHS = ("/", "~", "$")
LOCAL_FOLDER = "${localWorkspaceFolder}"
FLAGS_OF_RUN = frozenset(
    {
        *("--init", "--privileged", "--rm", "-it", "-ti", "-i", "-t", "-d", "--interactive", "--tty", "--detach"),
        *("--read-only", "--oom-kill-disable", "--no-healthcheck", "--publish-all", "-P"),
    }
)
"""Options of `docker run` without a value."""
ALIASES = {"-e": "--env", "-u": "--user", "-p": "--publish", "-v": "--volume", "-h": "--hostname", "-m": "--memory"}
LISTS = {"--cap-add": "capAdd", "--security-opt": "securityOpt", "--publish": "appPort", "--mount": "mounts"}
"""Options of `docker run` that are entries of a property."""
SWITCHES = {"--init": "init", "--privileged": "privileged"}
OWN_NETWORK = "a workspace has a network of its own, and its ports are forwarded"
WHY_LEFT_OUT = {
    "--network": OWN_NETWORK,
    "--net": OWN_NETWORK,
    "--publish-all": OWN_NETWORK,
    "--pid": "a workspace has processes of its own",
    "--ipc": "a workspace has its own shared memory; its size is --shm-size",
    "--userns": "a workspace has user ids of its own",
    "--device": "a workspace has no devices of the machine",
    "--gpus": "a template gives GPUs, with the permission gpu",
    "--memory": "the template has the limits",
    "--cpus": "the template has the limits",
    "--env-file": "it would be read on the machine; name the variables in containerEnv",
    "--ulimit": "it needs the permission runArgs of the template",
}
WITHOUT_MEANING = frozenset({"--rm", "--name", "--label", "-l", "-it", "-ti", "-i", "-t", "-d", "--detach", "--tty"})
"""Options that change nothing that a user could miss."""


@dataclass(slots=True)
class Adaptation:
    """Lists and objects in the configuration are copies, so that they can be changed: a repository may list hundreds of
    thousands of things."""

    configuration: dict[str, Any]
    grant: Grant
    warnings: dict[str, None] = field(default_factory=dict)
    """Each once, in order."""

    def warn(self, what: str, text: str) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings[f"{what[:MAX_SHOWN]}{text}"] = None

    def leave_out(self, what: str, why: str) -> None:
        self.warn(what, f" is left out: {why}")

    def append(self, name: str, value: Any) -> None:
        self.own_list(name).append(value)

    def own_list(self, name: str) -> list[Any]:
        """The property, which becomes an empty list if it is none."""
        listed = self.configuration.get(name)
        if not isinstance(listed, list):
            listed = self.configuration[name] = []
        return listed

    def own_object(self, name: str) -> dict[str, Any]:
        """The property, which becomes an empty object if it is none."""
        fields = self.configuration.get(name)
        if not isinstance(fields, dict):
            fields = self.configuration[name] = {}
        return fields


@dataclass(frozen=True, slots=True)
class Adapted:
    text: str
    """A devcontainer.json as JSON; empty if that of the repository needs no change, or cannot be read here."""
    warnings: Sequence[str] = ()


def adapt_configuration(text: str, grant: Grant) -> Adapted:
    """What cannot be parsed is left to the CLI, and to the policy."""
    try:
        parsed = parse_jsonc(text)
    except (Malformed, TooManyValues):
        return Adapted("")
    adaptation = adapt_properties(parsed, grant)
    if adaptation.configuration == parsed:
        return Adapted("")
    return Adapted(encode(adaptation.configuration).decode(), tuple(adaptation.warnings))


def adapt_properties(properties: Mapping[str, Any], grant: Grant) -> Adaptation:
    """The properties of a configuration, or of a service of Compose files, as a workspace can have them."""
    adaptation = Adaptation({name: copy(value) for name, value in properties.items()}, grant)
    for adapt in STEPS:
        adapt(adaptation)
    return adaptation


# --- properties -------------------------------------------------------------------------------------------------------


def _adapt_properties(adaptation: Adaptation) -> None:
    """Properties that have no place here, and those that are not known."""
    for name in list(adaptation.configuration):
        if name in COMPOSE and "dockerComposeFile" not in adaptation.configuration:
            adaptation.leave_out(name, "there is no dockerComposeFile that it belongs to")
            del adaptation.configuration[name]
        elif name == "initializeCommand":
            adaptation.leave_out(name, "it would run outside of the container; use onCreateCommand")
            del adaptation.configuration[name]
        elif name not in KNOWN_PROPERTIES:
            adaptation.leave_out(name, "this runner does not know it")
            del adaptation.configuration[name]


def _adapt_run_arguments(adaptation: Adaptation) -> None:
    arguments = adaptation.configuration.pop("runArgs", None)
    remaining = deque(each for each in arguments if isinstance(each, str)) if isinstance(arguments, list) else deque()
    passed_on: list[str] = []
    while remaining:
        option, has_value, value = remaining.popleft().partition("=")
        name = ALIASES.get(option, option)
        if not has_value and name not in FLAGS_OF_RUN and remaining and not remaining[0].startswith("-"):
            value = remaining.popleft()
        passed_on += _adapt_run_argument(adaptation, name, value)
    if passed_on:
        adaptation.configuration["runArgs"] = passed_on


def _adapt_run_argument(adaptation: Adaptation, name: str, value: str) -> list[str]:
    """Moves an argument to the property that has its meaning. Returns what stays an argument."""
    is_passed_on = name == "--shm-size" or (name == "--ulimit" and adaptation.grant.allows("runArgs"))
    if is_passed_on and value:
        return [f"{name}={value}"]
    if name in LISTS and value:
        adaptation.append(LISTS[name], value)
    elif name in SWITCHES:
        adaptation.configuration[SWITCHES[name]] = True
    elif name == "--env" and "=" in value[1:]:
        variable, _, text = value.partition("=")
        adaptation.own_object("containerEnv")[variable] = text
    elif name == "--user" and value:
        adaptation.configuration.setdefault("containerUser", value)
    elif name == "--volume" and value:
        adaptation.append("mounts", parse_volume(value).describe())
    elif name not in WITHOUT_MEANING:
        shown = f"runArgs {name}={value}" if value else f"runArgs {name}"
        adaptation.leave_out(shown, WHY_LEFT_OUT.get(name, "it has no meaning for a workspace"))
    return []


@dataclass(frozen=True, slots=True)
class Volume:
    kind: str
    source: str
    """Empty for one without a name."""
    target: str
    is_read_only: bool

    def describe(self) -> str:
        source = f"source={self.source}," if self.kind != TMPFS else ""
        return f"type={self.kind},{source}target={self.target}{',readonly' if self.is_read_only else ''}"


def parse_volume(text: str) -> Volume:
    """The short form of Docker and Compose, `[SOURCE:]TARGET[:OPTIONS]`."""
    source, has_target, rest = text.partition(":")
    if not has_target:
        return Volume(VOLUME, "", text, is_read_only=False)
    target, _, options = rest.partition(":")
    kind = BIND if source.startswith((*MACHINE_PATHS, ".")) else VOLUME
    return Volume(kind, source, target, "ro" in options.split(","))


def _adapt_ports(adaptation: Adaptation) -> None:
    ports = adaptation.configuration.pop("appPort", None)
    listed = adaptation.configuration.get("forwardPorts")
    forwarded = {each for each in listed if isinstance(each, int)} if isinstance(listed, list) else set[int]()
    for entry in ports if isinstance(ports, list) else [ports]:
        port = _find_inner_port(entry)
        if port is None:
            if entry:
                adaptation.leave_out(f"appPort {entry}", "it is no port of the container")
            continue
        if port not in forwarded:
            forwarded.add(port)
            adaptation.append("forwardPorts", port)
        adaptation.warn(f"appPort {entry}", f": no port of the machine is opened; it is forwarded as {port}")


def _find_inner_port(entry: Any) -> int | None:
    """That of the container, in `8080`, `"80:8080"` or `"127.0.0.1:80:8080/tcp"`."""
    if isinstance(entry, bool) or not isinstance(entry, int | str):
        return None
    return parse_port(str(entry).rpartition(":")[2].removesuffix("/tcp"))


def parse_port(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len("65535")
    return int(text) if is_number and 0 < int(text) < 65536 else None


def _adapt_work_folder(adaptation: Adaptation) -> None:
    """The work folder is mounted by the runner, at the place that the repository wants."""
    mount = adaptation.configuration.pop("workspaceMount", None)
    if not mount:
        return
    fields = read_mount(mount) or {}
    target = fields.get("target", "")
    if not target.startswith("/") or is_reserved(target):
        adaptation.leave_out(f"workspaceMount {mount}", "it has no target that can be used")
        return
    adaptation.configuration["workspaceMount"] = f"type=bind,source={LOCAL_FOLDER},target={target}"
    if fields.get("source") != LOCAL_FOLDER:
        adaptation.warn(f"workspaceMount: the work folder is mounted at {target}", ", from the workspace's disk")


def _adapt_mounts(adaptation: Adaptation) -> None:
    mounts = adaptation.configuration.pop("mounts", None)
    for mount in mounts if isinstance(mounts, list) else [mounts]:
        if not mount:
            continue
        work_folder = adaptation.grant.work_folder
        problem = find_mount_problem(_replace_variables(read_mount(mount), work_folder), work_folder)
        if problem:
            adaptation.leave_out(f"mount {mount}", problem)
        else:
            adaptation.append("mounts", mount)


def _replace_variables(fields: Mapping[str, str] | None, work_folder: str) -> dict[str, str] | None:
    """The CLI replaces variables later, and the shim checks the result. Of the machine there are none but the place of
    the work folder, which begins with a slash like all paths."""
    if fields is None:
        return None
    placed = {name: value.replace(LOCAL_FOLDER, work_folder) for name, value in fields.items()}
    replaced = {name: _VARIABLE.sub("x", value) for name, value in placed.items()}
    if fields["target"].startswith("${containerWorkspaceFolder}"):
        replaced["target"] = f"/{replaced['target']}"
    return replaced


def _adapt_privileges(adaptation: Adaptation) -> None:
    configuration = adaptation.configuration
    grant = adaptation.grant
    if configuration.get("privileged") and not grant.allows("privileged"):
        adaptation.leave_out("privileged", "it needs the permission privileged of the template")
        del configuration["privileged"]
    capabilities = configuration.pop("capAdd", None)
    for each in capabilities if isinstance(capabilities, list) else []:
        if is_capability_allowed(str(each), grant.permissions):
            adaptation.append("capAdd", each)
        else:
            adaptation.leave_out(f"capAdd {each}", "it needs the permission capAdd of the template")
    options = configuration.pop("securityOpt", None)
    for each in options if isinstance(options, list) else []:
        if grant.allows("securityOpt"):
            adaptation.append("securityOpt", each)
        else:
            adaptation.leave_out(f"securityOpt {each}", "it needs the permission securityOpt of the template")


def _adapt_build(adaptation: Adaptation) -> None:
    build = adaptation.configuration.get("build")
    if not isinstance(build, Mapping):
        return
    known = dict(build)
    if known.get("options") and not adaptation.grant.allows("buildOptions"):
        adaptation.leave_out("build.options", "they need the permission buildOptions of the template")
        del known["options"]
    for name in known.keys() - BUILD_PROPERTIES - {"options"}:
        adaptation.leave_out(f"build.{name}", "this runner does not know it")
        del known[name]
    adaptation.configuration["build"] = known


def _adapt_features(adaptation: Adaptation) -> None:
    """A feature that the operator has pinned has that content, whichever version the repository names."""
    features = adaptation.configuration.get("features")
    if not isinstance(features, Mapping):
        return
    chosen: dict[str, Any] = {}
    for name, options in features.items():
        path = feature_path(name)
        digest = adaptation.grant.feature_pins.get(path)
        pinned = f"{path}@{digest}" if digest else name
        if pinned != name:
            adaptation.warn(f"feature {name}", f": the operator of the runner has pinned {pinned}")
        chosen[pinned] = options
    adaptation.configuration["features"] = chosen


STEPS: Sequence[Callable[[Adaptation], None]] = (
    _adapt_properties,
    _adapt_run_arguments,
    _adapt_ports,
    _adapt_work_folder,
    _adapt_mounts,
    _adapt_privileges,
    _adapt_build,
    _adapt_features,
)
