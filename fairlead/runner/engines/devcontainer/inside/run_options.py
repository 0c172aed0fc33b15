"""Which options of `podman run` the dev container CLI may use for a workspace. Pure functions.

Nothing here keeps the workspace away from the machine: podman has no rights on it. What a template must allow is
checked so that a template means what it says, and what is not known is refused, because a later version may give it a
meaning.
"""

from collections.abc import Container, Mapping, Sequence


class Refused(Exception):
    """The command line asks for something that the workspace may not have."""


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
PERMITTED_RUN_ARGUMENTS = ("--shm-size", "--ulimit")
"""Those of `runArgs` that a template can allow."""
UID_LABEL = "fairlead.workspace"
"""The label by which the CLI finds the container again."""


def rewrite_run(arguments: Sequence[str], permissions: Container[str], work_folder: str) -> list[str]:
    """The options and operands for podman. `permissions` are those of the template."""
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
        passed += _rewrite_option(name, value, permissions, work_folder)
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
            return [f"--mount={_rewrite_mount(value, permissions, work_folder)}"]
        case "--security-opt":
            if value == "label=disable":  # the CLI adds it for podman, and SELinux would no longer separate anything
                return []
            return _permit("securityOpt", f"securityOpt {value}", permissions, [f"--security-opt={value}"])
        case "--cap-add":
            return _permit("capAdd", f"capAdd {value}", permissions, [f"--cap-add={value}"])
        case "--privileged":
            return _permit("privileged", "privileged", permissions, ["--privileged"])
        case "--gpus":
            return _permit("gpu", "GPUs", permissions, ["--device=nvidia.com/gpu=all"])
        case "--shm-size" | "--ulimit":
            return _permit("runArgs", f"runArgs {name}", permissions, [f"{name}={value}"])
        case "--init":
            return ["--init"]
        case _:  # -a, -u, --entrypoint, --sig-proxy: they concern the inside of the container only
            return [name, value] if not name.startswith("--") else [f"{name}={value}"]


def _rewrite_mount(value: str, permissions: Container[str], work_folder: str) -> str:
    fields = dict(part.partition("=")[::2] for part in value.split(","))
    target = fields.pop("target", "") or fields.pop("dst", "") or fields.pop("destination", "")
    source = fields.pop("source", "") or fields.pop("src", "")
    kind = fields.pop("type", "volume")
    fields.pop("consistency", None)
    if fields or not target.startswith("/") or is_reserved(target):
        raise Refused(f"the mount {value}")
    if kind == "bind" and source == work_folder:
        return f"type=bind,source={source},target={target}"
    if kind == "tmpfs" and not source:
        return _permit("mounts", f"the mount {value}", permissions, [f"type=tmpfs,target={target}"])[0]
    if kind == "volume" and source.replace("-", "").replace("_", "").replace(".", "").isalnum():
        return _permit("mounts", f"the mount {value}", permissions, [f"type=volume,source={source},target={target}"])[0]
    raise Refused(f"the mount {value}")


def is_reserved(target: str) -> bool:
    """Whether a mount there would replace something of the engine or the kernel."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    return not parts or ".." in parts or parts[0] in ("proc", "sys", "dev") or parts[:2] == ["run", "fairlead"]


def _expect(is_allowed: bool, what: str, result: list[str]) -> list[str]:
    if not is_allowed:
        raise Refused(what)
    return result


def _permit(permission: str, what: str, permissions: Container[str], result: list[str]) -> list[str]:
    return _expect(permission in permissions, f"{what}; the template does not allow {permission}", result)
