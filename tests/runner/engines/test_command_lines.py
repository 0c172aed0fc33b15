"""What the shim in front of podman lets pass: command lines as the dev container CLI makes them, and hostile ones."""

import pytest

from fairlead.runner.engines.devcontainer.command_lines import Command, Refused, rewrite_command
from fairlead.runner.engines.devcontainer.grant import Grant
from tests.runner.harness.grants import CONTAINER, UID, make_grant

FOLDER = "/state/workspaces/w"
WORK_MOUNT = f"type=bind,source={FOLDER}/staging/demo,target=/workspaces/demo"
RUN = [
    "run",
    "--sig-proxy=false",
    "-a",
    "STDOUT",
    "-a",
    "STDERR",
    "--mount",
    WORK_MOUNT,
    "-l",
    f"fairlead.workspace={UID}",
]
OWN_TAIL = ["--security-opt", "label=disable", "--userns=keep-id", "--init", "--entrypoint", "/bin/sh"]
IMAGE = ["debian", "-c", "echo Container started"]


def rewrite(*arguments: str, grant: Grant | None = None, container: str = CONTAINER) -> Command:
    return rewrite_command(arguments, grant or make_grant(FOLDER), container)


def test_a_container_gets_the_limits_and_the_confinement_of_its_workspace() -> None:
    arguments = rewrite(*RUN, *OWN_TAIL, *IMAGE).arguments
    assert arguments[0] == "run"
    assert {"--memory=268435456", "--memory-swap=268435456", "--cpus=1.5", "--pids-limit=128"} < set(arguments)
    assert {"--uidmap=0:1000000000:65536", "--gidmap=0:1000000000:65536"} < set(arguments)
    assert {"--security-opt=no-new-privileges", f"--network=fairlead-{UID}", "--env=STAGE=test"} < set(arguments)
    assert arguments[-3:] == IMAGE


def test_what_the_cli_adds_for_podman_without_root_is_left_out() -> None:
    arguments = rewrite(*RUN, *OWN_TAIL, *IMAGE).arguments
    assert not [argument for argument in arguments if "userns" in argument or "label=disable" in argument]


def test_the_work_folder_is_mounted_in_place_of_the_copy_that_the_cli_reads() -> None:
    arguments = rewrite(*RUN, *IMAGE).arguments
    assert f"--mount=type=bind,source={FOLDER}/work/demo,target=/workspaces/demo" in arguments
    assert not [argument for argument in arguments if "staging" in argument]


@pytest.mark.parametrize(
    "option",
    [
        ["--privileged"],
        ["--cap-add", "SYS_ADMIN"],
        ["--security-opt", "seccomp=unconfined"],
        ["--mount", "type=volume,source=cache,target=/cache"],
        ["--mount", "type=tmpfs,target=/scratch"],
        ["--shm-size=1g"],
        ["--ulimit=nofile=4096"],
        ["--gpus", "all"],
    ],
    ids=" ".join,
)
def test_options_that_need_a_permission_are_refused_without_it_and_pass_with_it(option: list[str]) -> None:
    with pytest.raises(Refused):
        rewrite(*RUN, *option, *IMAGE)
    permissions = ("privileged", "capAdd", "securityOpt", "mounts", "runArgs", "gpu")
    assert rewrite(*RUN, *option, *IMAGE, grant=make_grant(FOLDER, *permissions)).arguments[-3:] == IMAGE


@pytest.mark.parametrize(
    "option",
    [
        ["--pid=host"],
        ["--pid", "host"],
        ["--network=host"],
        ["--network", f"fairlead-{'2' * 8}"],
        ["--net=host"],
        ["--ipc=host"],
        ["--uts=host"],
        ["--cgroupns=host"],
        ["--cgroup-parent=/"],
        ["--userns=host"],
        ["--uidmap=0:0:65536"],
        ["--device=/dev/sda"],
        ["-v", "/:/host"],
        ["--volume=/:/host"],
        ["--volumes-from", "other"],
        ["--env-file=/etc/environment"],
        ["--env-host"],
        ["-e", "AWS_SECRET_ACCESS_KEY"],
        ["-e", "AWS_*"],
        ["-p", "22:22"],
        ["--publish-all"],
        ["--memory=64g"],
        ["--pids-limit=-1"],
        ["--oom-score-adj=-1000"],
        ["--sysctl=net.ipv4.ip_forward=1"],
        ["--security-opt=unmask=all"],
        ["--hooks-dir=/workspaces/demo"],
        ["--runtime=/workspaces/demo/runtime"],
        ["--conmon-pidfile=/etc/cron.d/x"],
        ["--cidfile=/etc/cron.d/x"],
        ["--pidfile=/etc/cron.d/x"],
        ["--log-opt=path=/etc/cron.d/x"],
        ["--secret=other"],
        ["--authfile=/root/.docker/config.json"],
        ["--name=fairlead-other"],
        ["--rootfs"],
        ["--pod=other"],
        ["-l", "fairlead.workspace=other"],
        ["-l", "fairlead.runner=other"],
        ["--label=fairlead.workspace=other"],
        ["--privileged=true"],
        ["-it"],
        ["-ePATH=/x"],
        ["--"],
        ["--mount", "type=bind,source=/,target=/host"],
        ["--mount", "type=bind,source=/run/podman/podman.sock,target=/var/run/docker.sock"],
        ["--mount", f"type=bind,source={FOLDER}/staging/demo/../../../other/work,target=/x"],
        ["--mount", f"type=bind,source={FOLDER}/staging/demo,target=/x,bind-propagation=rshared"],
        ["--mount", f"type=bind,source={FOLDER}/staging/demo,target=/run/fairlead"],
        ["--mount", "type=volume,source=fairlead-other-cache,target=/x,volume-opt=device=/"],
        ["--mount", "type=volume,source=/etc,target=/x"],
        ["--mount", "type=image,source=other,target=/x"],
        ["--mount", "type=devpts,target=/x"],
        ["--mount", "type=tmpfs,target=/proc/sys"],
    ],
    ids=" ".join,
)
def test_options_that_reach_out_of_the_container_are_refused_whatever_the_template_allows(option: list[str]) -> None:
    grant = make_grant(FOLDER, "privileged", "capAdd", "mounts", "runArgs", "gpu", "entrypoints")
    with pytest.raises(Refused):
        rewrite(*RUN, *option, *IMAGE, grant=grant)


def test_a_volume_belongs_to_one_workspace_whatever_its_name() -> None:
    volume = ["--mount", f"type=volume,source=fairlead-{'2' * 8}-cache,target=/cache"]
    arguments = rewrite(*RUN, *volume, *IMAGE, grant=make_grant(FOLDER, "mounts")).arguments
    assert f"--mount=type=volume,source=fairlead-{UID}-fairlead-22222222-cache,target=/cache" in arguments


@pytest.mark.parametrize(
    "image",
    [
        *("be", "39c377c59689", "sha256:39c377", f"localhost/fairlead-{'2' * 8}/vsc-x", "fairlead-2/x", "--privileged"),
        *(f"containers-storage:localhost/fairlead-{'2' * 8}/vsc-x", "localhost/fairlead-shared/vsc-1:2"),
        *("dir:/etc", "dir:x", "oci-archive:/x.tar", "docker-archive:x", "oci:/etc:x", "docker://debian"),
        *("localhost:5000/x", "127.0.0.1:5000/x", "127.1:80/x", "0x7f.1/x", "169.254.169.254/x", "x.localhost/y"),
        *("[::1]:80/x", "0.0.0.0:1/x", "debian:12/../x"),
    ],
)
def test_images_of_other_workspaces_cannot_be_named(image: str) -> None:
    for command in (["inspect", "--type", "image", image], ["pull", image], [*RUN, image]):
        with pytest.raises(Refused):
            rewrite(*command)


@pytest.mark.parametrize(
    "image",
    [
        *("debian", "debian:12", "library/debian", "123/x", "localhost/workspace", "ghcr.io/a/b:1.2-x"),
        *(
            "10.1.2.3:5000/x",
            "registry.example.com:5000/a/b",
            f"debian@sha256:{'a' * 64}",
            f"x.io/a:1@sha256:{'a' * 64}",
        ),
    ],
)
def test_ordinary_images_can_be_named(image: str) -> None:
    assert rewrite("pull", image).arguments == ["pull", image]


def test_names_that_the_cli_gives_to_images_are_those_of_the_workspace() -> None:
    own = f"localhost/fairlead-{UID}/vsc-demo-1"
    assert rewrite("inspect", "--type", "image", "vsc-demo-1").arguments[-1] == own
    assert rewrite(*RUN, "vsc-demo-1", "-c", "x").arguments[-3:] == [own, "-c", "x"]


def test_a_build_gets_limits_and_may_only_read_the_copy_of_the_repository() -> None:
    dockerfile = f"{FOLDER}/staging/demo/Dockerfile"
    command = rewrite("build", "-f", dockerfile, "-t", "vsc-demo-1", "--build-arg", "A=b", f"{FOLDER}/staging/demo")
    assert {"--memory=268435456", "--cpu-quota=150000", f"--network=fairlead-{UID}"} < set(command.arguments)
    assert command.build is not None
    assert (command.build.dockerfile, command.build.arguments) == (dockerfile, {"A": "b"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["-f", "/etc/shadow", "-t", "vsc-x", f"{FOLDER}/staging/demo"],
        ["-f", f"{FOLDER}/staging/demo/Dockerfile", "-t", "vsc-x", "/"],
        ["-f", f"{FOLDER}/staging/demo/Dockerfile", "-t", "vsc-x", f"{FOLDER}/staging/demo/../../../other/work"],
        ["-f", f"{FOLDER}/staging/demo/Dockerfile", "-t", "vsc-x", "https://example.com/context.git"],
        ["-f", f"{FOLDER}/staging/demo/Dockerfile", "-t", "debian", f"{FOLDER}/staging/demo"],
        *(
            ["-f", f"{FOLDER}/staging/demo/Dockerfile", "-t", "vsc-x", option, f"{FOLDER}/staging/demo"]
            for option in (
                "--volume=/:/host",
                "--secret=id=key,src=/etc/shadow",
                "--ssh=default",
                "--network=host",
                "--isolation=chroot",
                "--device=/dev/sda",
                "--security-opt=seccomp=unconfined",
                "--cap-add=SYS_ADMIN",
                "--userns=host",
                "--build-context=x=/etc",
                "--iidfile=/etc/cron.d/x",
                "--squash",
                "--build-arg=HOME",
            )
        ),
    ],
    ids=lambda arguments: arguments[-2],
)
def test_builds_that_reach_out_of_the_repository_are_refused(arguments: list[str]) -> None:
    with pytest.raises(Refused):
        rewrite("build", *arguments)


def test_values_of_variables_do_not_show_on_the_command_line_of_podman() -> None:
    command = rewrite("exec", "-i", "-u", "dev", "-e", "TOKEN=canary", CONTAINER, "/bin/sh")
    assert command.arguments == ["exec", "-i", "-u", "dev", "-e", "TOKEN", CONTAINER, "/bin/sh"]
    assert command.environment == {"TOKEN": "canary"}


@pytest.mark.parametrize("name", ["PATH", "CONTAINERS_CONF", "CONTAINER_HOST", "LD_PRELOAD", "TMPDIR", "XDG_DATA"])
def test_variables_for_the_container_do_not_configure_podman(name: str) -> None:
    command = rewrite("exec", "-i", "-e", f"{name}=/workspaces/demo", CONTAINER, "/bin/sh")
    assert command.environment == {}
    assert f"{name}=/workspaces/demo" in command.arguments


@pytest.mark.parametrize("name", ["*", "HO*", "a b", "1"])
def test_unusual_names_of_variables_are_not_left_to_podman(name: str) -> None:
    """With a star, podman would pass on all of its own variables that begin so."""
    command = rewrite("exec", "-e", f"{name}=x", CONTAINER, "/bin/sh")
    assert command.environment == {}
    assert command.arguments[1:3] == ["-e", f"{name}=x"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec", "-i", "d" * 64, "/bin/sh"],
        ["exec", "-i", "c", "/bin/sh"],
        ["exec", "--privileged", CONTAINER, "/bin/sh"],
        ["inspect", "--type", "container", "d" * 64],
        ["start", "d" * 64],
        ["ps", "-q", "-a", "--filter", "label=fairlead.workspace=other"],
        ["ps", "-a"],
        ["rm", "-f", CONTAINER],
        ["rmi", "debian"],
        ["cp", f"{CONTAINER}:/etc/passwd", "/etc/passwd"],
        ["volume", "ls"],
        ["volume", "create", "x", "--opt", "device=/"],
        ["system", "prune"],
        ["--root=/", "ps"],
        ["--url=tcp://example.com", "ps"],
        ["run"],
        [],
    ],
    ids=" ".join,
)
def test_commands_on_anything_else_are_refused(arguments: list[str]) -> None:
    with pytest.raises(Refused):
        rewrite(*arguments)


def test_a_container_that_does_not_exist_yet_cannot_be_entered() -> None:
    with pytest.raises(Refused):
        rewrite("exec", "-i", CONTAINER, "/bin/sh", container="")
