"""Which options of `podman run` the dev container CLI may use for a workspace. Pure functions.

Nothing here keeps the workspace away from the machine: podman has no rights on it. What a template must allow is
checked so that a template means what it says, and what is not known is refused, because a later version may give it a
meaning.
"""

from collections.abc import Callable, Container, Mapping, Sequence


class Refused(Exception):
    """The command line asks for something that the workspace may not have."""


class LeftOut(Exception):
    """The workspace works without this option."""


OPTIONS: Mapping[str, bool] = {
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
LONG_NAMES = {"-a": "--attach", "-u": "--user"}
MOUNT_NAMES = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
UID_LABEL = "fairlead.workspace"
"""The label by which the CLI finds the container again."""


HARMLESS_CAPABILITIES = frozenset({"SYS_PTRACE"})
"""In the user namespace of a workspace and the pid namespace of its container, they reach its own processes only."""
IGNORED_MOUNT_OPTIONS = ("consistency", "external")
Note = Callable[[str], None]


def rewrite_run(arguments: Sequence[str], permissions: Container[str], work_folder: str, note: Note) -> list[str]:
    """The options and operands for podman. `permissions` are those of the template. What the workspace works without
    is left out, and noted: features and images ask for it, which the repository cannot change."""
    passed: list[str] = []
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        name, has_value, value = arguments[index].partition("=")
        if name not in OPTIONS:
            raise Refused(f"the option {name}")
        if OPTIONS[name] and not (has_value and name.startswith("--")):
            index += 1
            if has_value or index >= len(arguments):
                raise Refused(f"the option {name} without a value")
            value = arguments[index]
        elif not OPTIONS[name] and has_value:
            raise Refused(f"the option {name} with a value")
        index += 1
        try:
            passed += _rewrite_option(name, value, permissions, work_folder)
        except LeftOut as reason:
            note(str(reason))
    if index >= len(arguments):
        raise Refused("a container without an image")
    return [*passed, *arguments[index:]]


def _rewrite_option(name: str, value: str, permissions: Container[str], work_folder: str) -> list[str]:
    match name:
        case "--userns":  # the CLI wants it for podman without root; the holder is the user namespace
            return _expect(value == "keep-id", f"--userns={value}", [])
        case "-l":
            is_own = value.startswith((f"{UID_LABEL}=", "devcontainer."))
            return _expect(is_own, f"the label {value.partition('=')[0]}", [f"--label={value}"])
        case "-e":
            return _expect("=" in value[1:], f"the variable {value!r} of the tools", [f"--env={value}"])
        case "--mount":
            return [f"--mount={_rewrite_mount(value, work_folder)}"]
        case "--security-opt":
            if value == "label=disable":  # the CLI adds it for podman, and SELinux would no longer separate anything
                return []
            return _permit("securityOpt", f"securityOpt {value}", permissions, [f"--security-opt={value}"])
        case "--cap-add":
            is_allowed = is_capability_allowed(value, permissions)
            return [f"--cap-add={value}"] if is_allowed else _permit("capAdd", f"capAdd {value}", permissions, [])
        case "--privileged":
            return _permit("privileged", "privileged", permissions, ["--privileged"])
        case "--gpus":
            return _permit("gpu", "GPUs", permissions, ["--device=nvidia.com/gpu=all"])
        case "--ulimit":
            return _permit("runArgs", f"runArgs {name}", permissions, [f"{name}={value}"])
        case "--init":
            return ["--init"]
        case _:  # -a, -u, --entrypoint, --sig-proxy, --shm-size: they concern the inside of the container only
            return [f"{LONG_NAMES.get(name, name)}={value}"]


def is_capability_allowed(name: str, permissions: Container[str]) -> bool:
    return "capAdd" in permissions or name.upper().removeprefix("CAP_") in HARMLESS_CAPABILITIES


def read_mount(mount: object) -> dict[str, str] | None:
    """The fields of a mount, with one name for each; None if it is no mount, or names something twice."""
    if isinstance(mount, str):
        pairs = [part.partition("=")[::2] for part in mount.split(",")]
    elif isinstance(mount, Mapping):
        pairs = [(str(name), str(value)) for name, value in mount.items()]
    else:
        return None
    fields: dict[str, str] = {"type": "volume", "source": "", "target": ""}
    named: set[str] = set()
    for given, value in pairs:
        name = MOUNT_NAMES.get(given, given)
        if name in named:
            return None
        named.add(name)
        fields[name] = value
    return {name: value for name, value in fields.items() if name not in IGNORED_MOUNT_OPTIONS}


def find_mount_problem(fields: Mapping[str, str] | None, work_folder: str) -> str:
    """Why a mount cannot be had; empty if it can. Volumes and memory are of the workspace, as is its work folder: they
    are on its disk, and within its limits."""
    if fields is None:
        return "it is not understood"
    is_bind = fields["type"] == "bind"
    if is_bind and not is_below(fields["source"], work_folder):
        return "only volumes, tmpfs and files of the repository can be mounted; files of the machine cannot"
    if not is_bind and fields["type"] not in ("volume", "tmpfs"):
        return "only volumes, tmpfs and files of the repository can be mounted"
    if not fields["target"].startswith("/") or is_reserved(fields["target"]):
        return "its target is reserved, or no path"
    if further := fields.keys() - {"type", "source", "target", "readonly"}:
        return f"its option {min(further)} is not supported"
    if fields.get("readonly", "") not in ("", "1", "true"):
        return "its option readonly is not understood"
    is_named = fields["source"].replace("-", "").replace("_", "").replace(".", "").isalnum()
    if fields["type"] == "volume" and (not is_named or not fields["source"].isascii()):
        return "its source is not the name of a volume"
    if fields["type"] == "tmpfs" and fields["source"]:
        return "a tmpfs has no source"
    return ""


def _rewrite_mount(value: str, work_folder: str) -> str:
    fields = read_mount(value)
    if problem := find_mount_problem(fields, work_folder):
        raise LeftOut(f"the mount {value} is left out: {problem}")
    assert fields is not None
    source = f"source={fields['source']}," if fields["source"] else ""
    read_only = ",readonly" if "readonly" in fields else ""
    return f"type={fields['type']},{source}target={fields['target']}{read_only}"


def is_below(path: str, folder: str) -> bool:
    """Whether a path is this folder or below it, as it is written. Where links lead, is seen when it is mounted."""
    return path == folder or (path.startswith(f"{folder}/") and ".." not in path.split("/"))


def is_reserved(target: str) -> bool:
    """Whether a mount there would replace something of the engine or the kernel."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    return not parts or ".." in parts or parts[0] in ("proc", "sys", "dev") or parts[:2] == ["run", "fairlead"]


def _expect(is_allowed: bool, what: str, result: list[str]) -> list[str]:
    if not is_allowed:
        raise Refused(what)
    return result


def _permit(permission: str, what: str, permissions: Container[str], result: list[str]) -> list[str]:
    if permission not in permissions:
        raise LeftOut(f"{what} is left out: the template does not allow {permission}")
    return result
