"""Which options of `podman run` pass: command lines as the dev container CLI makes them, and hostile ones."""

from collections.abc import Callable

import pytest

from fairlead.runner.engines.devcontainer.inside.run_options import Refused, is_reserved, rewrite_run
from tests.runner.harness.grants import UID

WORK = "/workspaces/demo"
WORK_MOUNT = f"type=bind,source={WORK},target={WORK}"
RUN = ["--sig-proxy=false", "-a", "STDOUT", "-a", "STDERR", "--mount", WORK_MOUNT, "-l", f"fairlead.workspace={UID}"]
OWN_TAIL = ["--security-opt", "label=disable", "--userns=keep-id", "--init", "--entrypoint", "/bin/sh"]
IMAGE = ["debian", "-c", "echo Container started", "--privileged"]
ALL = ("privileged", "capAdd", "securityOpt", "mounts", "runArgs", "gpu", "entrypoints")


def refuse(text: str) -> None:
    raise AssertionError(f"left out: {text}")


def rewrite(*options: str, permissions: tuple[str, ...] = (), note: Callable[[str], None] = refuse) -> list[str]:
    return rewrite_run([*RUN, *options, *IMAGE], permissions, WORK, note)


def test_what_the_cli_adds_for_every_container_passes_and_the_command_inside_is_left_alone() -> None:
    assert rewrite("-e", "A=b=c", "-u", "dev", "-l", "devcontainer.metadata=[{}]") == [
        *("--sig-proxy=false", "--attach=STDOUT", "--attach=STDERR", f"--mount={WORK_MOUNT}"),
        *(f"--label=fairlead.workspace={UID}", "--env=A=b=c", "--user=dev", "--label=devcontainer.metadata=[{}]"),
        *IMAGE,
    ]


def test_what_the_cli_adds_for_podman_without_root_is_left_out() -> None:
    assert rewrite(*OWN_TAIL)[-7:] == [f"--label=fairlead.workspace={UID}", "--init", "--entrypoint=/bin/sh", *IMAGE]


@pytest.mark.parametrize(
    ("permission", "option", "passed"),
    [
        ("privileged", ["--privileged"], "--privileged"),
        ("capAdd", ["--cap-add", "SYS_ADMIN"], "--cap-add=SYS_ADMIN"),
        ("securityOpt", ["--security-opt", "seccomp=unconfined"], "--security-opt=seccomp=unconfined"),
        ("runArgs", ["--ulimit", "nofile=4096"], "--ulimit=nofile=4096"),
        ("gpu", ["--gpus", "all"], "--device=nvidia.com/gpu=all"),
    ],
)
def test_an_option_needs_its_permission_of_the_template(permission: str, option: list[str], passed: str) -> None:
    notes: list[str] = []
    others = tuple(each for each in ALL if each != permission)
    assert rewrite(*option, permissions=others, note=notes.append) == rewrite()
    assert len(notes) == 1 and notes[0].endswith(f"the template does not allow {permission}")
    arguments = rewrite(*option, permissions=(permission,))
    assert arguments[-len(IMAGE) - 1 :] == [passed, *IMAGE]


@pytest.mark.parametrize(
    ("option", "passed"),
    [
        (["--mount", "type=volume,src=cache,dst=/c"], "--mount=type=volume,source=cache,target=/c"),
        (["--mount", "source=a.b_c-1,target=/c,external=true"], "--mount=type=volume,source=a.b_c-1,target=/c"),
        (["--mount", "type=tmpfs,destination=/scratch"], "--mount=type=tmpfs,target=/scratch"),
        (["--mount", f"type=bind,source={WORK},target=/app"], f"--mount=type=bind,source={WORK},target=/app"),
        (["--mount", f"type=bind,source={WORK}/x,target=/x"], f"--mount=type=bind,source={WORK}/x,target=/x"),
        (["--mount", f"type=bind,src={WORK},dst=/x,ro"], f"--mount=type=bind,source={WORK},target=/x,readonly"),
        (["--shm-size=1g"], "--shm-size=1g"),
        (["--cap-add", "SYS_PTRACE"], "--cap-add=SYS_PTRACE"),
        (["--cap-add=cap_sys_ptrace"], "--cap-add=cap_sys_ptrace"),
    ],
    ids=str,
)
def test_what_stays_within_the_workspace_needs_no_permission(option: list[str], passed: str) -> None:
    assert rewrite(*option)[-len(IMAGE) - 1 :] == [passed, *IMAGE]


@pytest.mark.parametrize(
    "option",
    [
        *(["--pid=host"], ["--pid", "host"], ["--network=host"], ["--net=none"], ["--ipc=host"], ["--uts=host"]),
        *(["--cgroupns=host"], ["--cgroup-parent=/"], ["--userns=host"], ["--uidmap=0:0:65536"]),
        *(["--device=/dev/sda"], ["-v", "/:/host"], ["--volume=/:/host"], ["--volumes-from", "other"]),
        *(["--env-file=/etc/environment"], ["--env-host"], ["-e", "HOME"], ["-e", "HO*"], ["-e", "*"], ["-e", "=x"]),
        *(["-p", "22:22"], ["--publish-all"], ["--memory=64g"], ["--pids-limit=-1"], ["--oom-score-adj=-1000"]),
        *(["--sysctl=net.ipv4.ip_forward=1"], ["--hooks-dir=/workspaces/demo"], ["--runtime=/workspaces/demo/x"]),
        *(["--conmon-pidfile=/x"], ["--cidfile=/x"], ["--pidfile=/x"], ["--log-opt=path=/x"], ["--secret=other"]),
        *(["--authfile=/x"], ["--name=other"], ["--rootfs"], ["--pod=other"], ["--label=x=y"]),
        *(["-l", "fairlead.runner=other"], ["-l", "fairlead.recovery=true"], ["-l", "fairlead.workspaces=x"]),
        *(["--privileged=true"], ["--init=false"], ["-it"], ["-ePATH=/x"], ["-e=PATH=/x"], ["-"], ["--"], ["--=x"]),
    ],
    ids=" ".join,
)
def test_other_options_are_refused_whatever_the_template_allows(option: list[str]) -> None:
    with pytest.raises(Refused):
        rewrite(*option, permissions=ALL)


@pytest.mark.parametrize(
    "option",
    [
        ["--mount", "type=bind,source=/,target=/host"],
        ["--mount", "type=bind,source=/private,target=/x"],
        ["--mount", f"type=bind,source={WORK}/../other,target=/x"],
        ["--mount", f"type=bind,source={WORK}-2/sub,target=/x"],
        ["--mount", f"type=bind,source={WORK}/sub/../..,target=/x"],
        ["--mount", f"type=bind,source={WORK},target=/x,bind-propagation=rshared"],
        ["--mount", f"type=bind,source={WORK},target=/x,ro=false"],
        ["--mount", f"type=bind,source={WORK},target=/run/fairlead"],
        ["--mount", f"type=bind,source={WORK},target=relative"],
        ["--mount", f"type=bind,source={WORK}"],
        ["--mount", f"type=bind,source={WORK},src=/,target=/x"],
        ["--mount", "type=volume,source=cache,target=/x,volume-opt=device=/"],
        ["--mount", "type=volume,source=cache,target=/x,dst=/proc"],
        ["--mount", "type=volume,source=/etc,target=/x"],
        ["--mount", "type=volume,source=..,target=/x"],
        ["--mount", "type=volume,target=/x"],
        ["--mount", "type=image,source=other,target=/x"],
        ["--mount", "type=devpts,target=/x"],
        ["--mount", "type=tmpfs,source=x,target=/x"],
        ["--mount", "type=tmpfs,target=/proc/sys"],
        ["--mount", ""],
        ["--cap-add=SYS_ADMIN"],
        ["--cap-add=ALL"],
        ["--cap-add=SYS_PTRACE,SYS_ADMIN"],
    ],
    ids=" ".join,
)
def test_what_would_reach_further_is_left_out_and_noted(option: list[str]) -> None:
    notes: list[str] = []
    allowed = tuple(each for each in ALL if each != "capAdd")
    assert rewrite(*option, permissions=allowed, note=notes.append) == rewrite()
    assert len(notes) == 1


@pytest.mark.parametrize("arguments", [[], RUN, [*RUN, "-e"], [*RUN, "--mount"], [*RUN, "-l"]], ids=" ".join)
def test_a_command_line_that_ends_too_early_is_refused(arguments: list[str]) -> None:
    with pytest.raises(Refused):
        rewrite_run(arguments, ALL, WORK, refuse)


@pytest.mark.parametrize(
    ("target", "reserved"),
    [
        *((each, True) for each in ("/", "/.", "//", "/proc", "//proc/x", "/./sys", "/dev/shm", "/run/./fairlead")),
        *((each, True) for each in ("/run//fairlead/secrets", "/x/../proc", "/x/..", "")),
        *((each, False) for each in ("/x", "/run/fairlead-x", "/run/other", "/home/dev", "/process", "/x/proc")),
    ],
)
def test_mounts_do_not_replace_what_belongs_to_the_engine_or_the_kernel(target: str, reserved: bool) -> None:
    assert is_reserved(target) is reserved
