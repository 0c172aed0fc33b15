"""Which commands of podman the dev container CLI may run for a workspace, and with which options.

Everything is refused that is not listed here. What is allowed is not passed on as it is: the command line is built anew
from the options that were understood, with the limits and the confinement of the workspace added. Pure functions; only
`shim.py` acts.
"""

import os.path
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fairlead.runner.engines.contract import is_variable_name
from fairlead.runner.engines.devcontainer.build_limits import build_cgroup
from fairlead.runner.engines.devcontainer.grant import PRIVATE_FOLDER, Grant
from fairlead.runner.engines.devcontainer.images import resolve_image


class Refused(Exception):
    """The command line asks for something that the workspace may not have."""


class WrongPlatform(Exception):
    """An image is for another kind of machine."""


@dataclass(frozen=True, slots=True)
class Options:
    """A command line, taken apart: options in their order, with their values or None, then everything else."""

    options: Sequence[tuple[str, str | None]]
    operands: Sequence[str]


@dataclass(frozen=True, slots=True)
class Build:
    """A build that the CLI wants, apart from its limits."""

    dockerfile: str
    """The Dockerfile that must be checked; its place in the arguments of the command has this text."""
    context: str
    tags: Sequence[str]
    """The names of the new image in the image store."""
    arguments: Mapping[str, str]
    options: Sequence[str]
    """All others that change the result."""
    is_fresh: bool
    """Nothing that was built before may be used."""


@dataclass(frozen=True, slots=True)
class Command:
    """What the shim has to do."""

    arguments: list[str]
    image: str = ""
    """The image that the CLI looks at, and the shim, too."""
    is_creation: bool = False
    build: Build | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for podman, whose values must not be part of its command line."""
    session_user: str = ""
    """The user of a session inside: before the first one, the work folder becomes that user's."""


RUN_OPTIONS: Mapping[str, bool] = {
    "--sig-proxy": True,
    "-a": True,
    "--mount": True,
    "-l": True,
    "-e": True,
    "-u": True,
    "--security-opt": True,
    "--cap-add": True,
    "--userns": True,
    "--entrypoint": True,
    "--shm-size": True,
    "--ulimit": True,
    "--gpus": True,
    "--init": False,
    "--privileged": False,
}
"""True if the option has a value."""
BUILD_OPTIONS: Mapping[str, bool] = {
    "-f": True,
    "-t": True,
    "--target": True,
    "--build-arg": True,
    "--cache-from": True,
    "--platform": True,
    "--label": True,
    "--pull": False,
    "--no-cache": False,
}
VARIABLES_OF_PODMAN = ("PATH", "HOME", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK")
PREFIXES_OF_PODMAN = ("CONTAINER", "XDG_", "TMP", "LD_", "DBUS_", "STORAGE_", "_CONT", "PODMAN_", "BUILDAH_", "SSL_")
"""Variables that configure podman, or the programs that it starts."""
EXEC_OPTIONS: Mapping[str, bool] = {"-u": True, "-e": True, "-w": True, "-i": False, "-t": False}
PERMITTED_RUN_ARGUMENTS = ("--shm-size", "--ulimit")
"""Those of `runArgs` that a template can allow."""


def rewrite_command(arguments: Sequence[str], grant: Grant, container_id: str) -> Command:
    """The command to run in place of the one that the CLI wants. `container_id` is that of the workspace, if any."""
    match list(arguments):
        case ["-v"] | ["version", "--format", _] | ["buildx", "version"]:
            return Command(list(arguments))
        case ["ps", "-q", "-a", "--filter", filter_] if filter_ == f"label={grant.id_label}":
            return Command(list(arguments))
        case ["events", "--format", _, "--filter", "event=start"]:
            # Events of all workspaces would be readable; the CLI only waits for its own container.
            return Command([*arguments, "--filter", f"label={grant.id_label}"])
        case ["inspect", "--type", "image", image]:
            resolved = _resolve(image, grant)
            return Command(["inspect", "--type", "image", resolved], image=resolved)
        case ["pull", image]:
            return Command(["pull", _resolve(image, grant)])
        case ["tag", old, new]:
            return Command(["tag", _resolve(old, grant), _resolve_built(new, grant)])
        case ["inspect", "--type", "container", container] | ["start", container]:
            _check_container(container, container_id)
            return Command(list(arguments))
    handlers: dict[str, Callable[[Sequence[str], Grant, str], Command]] = {
        "run": _rewrite_run,
        "build": _rewrite_build,
        "exec": _rewrite_exec,
    }
    handler = handlers.get(arguments[0] if arguments else "")
    if handler is None:
        raise Refused(f"the command {' '.join(arguments[:3])!r}")
    return handler(arguments[1:], grant, container_id)


def parse_options(arguments: Sequence[str], known: Mapping[str, bool]) -> Options:
    """Takes a command line apart as podman would. Forms that are not needed, like `-it`, are refused."""
    options: list[tuple[str, str | None]] = []
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        name, has_value, value = arguments[index].partition("=")
        if name not in known:
            raise Refused(f"the option {name}")
        index += 1
        if not known[name]:
            if has_value:
                raise Refused(f"the option {name} with a value")
            options.append((name, None))
        elif has_value and name.startswith("--"):
            options.append((name, value))
        elif not has_value and index < len(arguments):
            options.append((name, arguments[index]))
            index += 1
        else:
            raise Refused(f"the option {name} without a value")
    return Options(options, arguments[index:])


# --- run --------------------------------------------------------------------------------------------------------------


def _rewrite_run(arguments: Sequence[str], grant: Grant, container_id: str) -> Command:
    parsed = parse_options(arguments, RUN_OPTIONS)
    if not parsed.operands:
        raise Refused("a container without an image")
    passed: list[str] = []
    for name, value in parsed.options:
        passed += _rewrite_run_option(name, value or "", grant)
    image = _resolve(parsed.operands[0], grant)
    environment = [f"--env={name}={value}" for name, value in grant.environment.items()]
    return Command(
        [
            "run",
            *grant.confinement,
            *grant.labels,
            f"--name=fairlead-{grant.uid}",
            f"--cidfile={grant.folder}/container.id",
            f"--volume={grant.folder}/private:{PRIVATE_FOLDER}:ro,nosuid,nodev",
            *passed,
            *environment,
            image,
            *parsed.operands[1:],
        ],
        is_creation=True,
    )


def _rewrite_run_option(name: str, value: str, grant: Grant) -> list[str]:
    match name:
        case "--userns":  # the CLI wants it for podman without root; the workspace has its own user namespace
            return _expect(value == "keep-id", f"--userns={value}", [])
        case "-l":
            is_own = value == grant.id_label or value.startswith("devcontainer.")
            return _expect(is_own, f"the label {value.partition('=')[0]}", [f"--label={value}"])
        case "-e":
            return _expect("=" in value[1:], f"the variable {value!r} of the host", [f"--env={value}"])
        case "--mount":
            return [f"--mount={_rewrite_mount(value, grant)}"]
        case "--security-opt":
            if value == "label=disable":  # the CLI adds it for podman, and SELinux would no longer separate anything
                return []
            return _permit("securityOpt", f"securityOpt {value}", grant, [f"--security-opt={value}"])
        case "--cap-add":
            return _permit("capAdd", f"capAdd {value}", grant, [f"--cap-add={value}"])
        case "--privileged":
            return _permit("privileged", "privileged", grant, ["--privileged"])
        case "--gpus":
            return _permit("gpu", "GPUs", grant, ["--device=nvidia.com/gpu=all"])
        case "--shm-size" | "--ulimit":
            return _permit("runArgs", f"runArgs {name}", grant, [f"{name}={value}"])
        case "--init":
            return ["--init"]
        case _:  # -a, -u, --entrypoint, --sig-proxy: they concern the inside of the container only
            return [name, value] if not name.startswith("--") else [f"{name}={value}"]


def _rewrite_mount(value: str, grant: Grant) -> str:
    """The mount of the project comes from the staging folder, and gets its twin in the work folder."""
    fields = dict(part.partition("=")[::2] for part in value.split(","))
    target = fields.pop("target", "") or fields.pop("dst", "") or fields.pop("destination", "")
    source = fields.pop("source", "") or fields.pop("src", "")
    kind = fields.pop("type", "volume")
    fields.pop("consistency", None)
    if fields or not target.startswith("/") or is_reserved(target):
        raise Refused(f"the mount {value}")
    if kind == "bind" and source == f"{grant.staging}/{grant.project}":
        return f"type=bind,source={grant.folder}/work/{grant.project},target={target}"
    if kind == "tmpfs" and not source:
        return _permit("mounts", f"the mount {value}", grant, [f"type=tmpfs,target={target}"])[0]
    if kind == "volume" and source.replace("-", "").replace("_", "").replace(".", "").isalnum():
        name = volume_name(grant.uid, source)
        return _permit("mounts", f"the mount {value}", grant, [f"type=volume,source={name},target={target}"])[0]
    raise Refused(f"the mount {value}")


def is_reserved(target: str) -> bool:
    """Whether a mount there would replace something of the engine or the kernel."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    return not parts or ".." in parts or parts[0] in ("proc", "sys", "dev") or parts[:2] == ["run", "fairlead"]


def volume_name(uid: str, source: str) -> str:
    """Volumes belong to one workspace: the same name in two repositories means two volumes."""
    return f"fairlead-{uid}-{source}"


# --- build and exec ---------------------------------------------------------------------------------------------------


def _rewrite_build(arguments: Sequence[str], grant: Grant, container_id: str) -> Command:
    parsed = parse_options(arguments, BUILD_OPTIONS)
    passed: list[str] = []
    build_arguments: dict[str, str] = {}
    tags: list[str] = []
    options: list[str] = []
    dockerfile = ""
    for name, value in parsed.options:
        value = value or ""
        match name:
            case "-f":
                dockerfile = _check_path(value, grant)
                passed += ["-f", dockerfile]
            case "-t":
                tags.append(_resolve_built(value, grant))
                passed += ["-t", tags[-1]]
            case "--build-arg":
                key, has_value, text = value.partition("=")
                _expect(bool(has_value), f"the variable {key} of the host", [])
                build_arguments[key] = text
                if key.startswith("_DEV_CONTAINERS_"):  # the CLI names images in its own arguments
                    text = resolve_image(text, grant.uid) or text
                passed.append(f"--build-arg={key}={text}")
            case "--cache-from":
                passed.append(f"--cache-from={_resolve(value, grant)}")
            case _:
                options.append(name if not BUILD_OPTIONS[name] else f"{name}={value}")
    if len(parsed.operands) != 1 or not dockerfile:
        raise Refused("a build without one Dockerfile and one context")
    context = _check_path(parsed.operands[0], grant)
    confinement = [
        f"--memory={grant.memory_bytes}",
        f"--memory-swap={grant.memory_bytes}",
        "--cpu-period=100000",
        f"--cpu-quota={int(grant.cpus * 100000)}",
        f"--network={grant.network}",
        "--cap-drop=NET_RAW,MKNOD,AUDIT_WRITE",
        "--force-rm",
    ]
    # The cgroup is a path, which podman only accepts if it does not leave cgroups to systemd.
    command = ["--cgroup-manager=cgroupfs", "build", f"--cgroup-parent={build_cgroup(grant.uid)}"]
    is_fresh = not {"--pull", "--no-cache"}.isdisjoint(options)
    build = Build(dockerfile, context, tags, build_arguments, options, is_fresh)
    return Command([*command, *confinement, *passed, *options, context], build=build)


def _rewrite_exec(arguments: Sequence[str], grant: Grant, container_id: str) -> Command:
    """Values of variables go through the environment of podman, because lifecycle commands get secrets as variables."""
    parsed = parse_options(arguments, EXEC_OPTIONS)
    if not parsed.operands:
        raise Refused("exec without a container")
    _check_container(parsed.operands[0], container_id)
    passed: list[str] = []
    variables: dict[str, str] = {}
    for name, value in parsed.options:
        if name == "-e":
            key, has_value, text = (value or "").partition("=")
            _expect(bool(key and has_value), f"the variable {key} of the host", [])
            variables[key] = text
        else:
            passed += [name] if value is None else [name, value]
    named, environment = pass_variables(variables)
    passed += named
    user = next((value or "" for name, value in parsed.options if name == "-u"), "")
    return Command(["exec", *passed, *parsed.operands], environment=environment, session_user=user)


def pass_variables(variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Options of `podman exec` that name variables, and the environment with their values. The options have the values
    of those that podman itself would act upon, and of unusual names: `*` alone would be all of podman's variables."""
    options: list[str] = []
    environment: dict[str, str] = {}
    for name, value in variables.items():
        is_of_podman = name in VARIABLES_OF_PODMAN or name.startswith(PREFIXES_OF_PODMAN)
        if is_of_podman or not is_variable_name(name):
            options += ["-e", f"{name}={value}"]
        else:
            options += ["-e", name]
            environment[name] = value
    return options, environment


# --- small checks -----------------------------------------------------------------------------------------------------


def _expect(is_allowed: bool, what: str, result: list[str]) -> list[str]:
    if not is_allowed:
        raise Refused(what)
    return result


def _permit(permission: str, what: str, grant: Grant, result: list[str]) -> list[str]:
    if not grant.allows(permission):
        raise Refused(f"{what}; the template does not allow {permission}")
    return result


def _resolve(image: str, grant: Grant) -> str:
    resolved = resolve_image(image, grant.uid)
    if resolved is None or image.startswith("-"):
        raise Refused(f"the image {image!r}; only names are accepted, and none of other workspaces")
    return resolved


def _resolve_built(image: str, grant: Grant) -> str:
    """A name for an image that is built here. It must not replace an image that others use."""
    resolved = _resolve(image, grant)
    if resolved == image:
        raise Refused(f"the name {image!r} for a new image")
    return resolved


def _check_container(container: str, container_id: str) -> None:
    if len(container) < 12 or not container_id.startswith(container):
        raise Refused(f"the container {container}, which is not that of this workspace")


def _check_path(path: str, grant: Grant) -> str:
    """A path that podman reads on the host: below the staging folder or the CLI's own temporary files."""
    real = os.path.realpath(path)
    roots = (grant.staging, f"{grant.folder}/tmp")
    if not any(real == root or real.startswith(root + "/") for root in roots):
        raise Refused(f"the path {path}, which leaves the repository")
    return real
