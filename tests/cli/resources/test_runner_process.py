"""fairlead.cli.resources.runner_process: a runner that is started with the login of the command line."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.resources import runner_process
from fairlead.client.contexts import Login, save_contexts
from fairlead.core.machine.findings import Finding
from fairlead.runner import process
from fairlead.runner.settings import ClusterAccess, DiskSettings, RunnerSettings
from tests.harness.cli import CliFixture
from tests.harness.fake_server import KEY, M, build_object, failure_status

RUNNER = f"{M}/runners/local"
START = ("runner", "start", "local", "--engine", "kubernetes")
RUNNER_KEY = "fairlead_runner-key"
FINE = Finding("engine")


@pytest.fixture
def admin(user: CliFixture) -> CliFixture:
    user.fake.on("GET", f"{RUNNER}/accesskey", (200, {"accessKey": RUNNER_KEY}))
    user.fake.on("GET", RUNNER, (200, build_object("local")))
    return user


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunnerSettings]:
    """The settings of runners that would have been started."""
    settings: list[RunnerSettings] = []

    def run_until_signal(run: object, chosen: RunnerSettings, ready: Callable[[Any], None]) -> None:
        settings.append(chosen)
        ready(process.StartedRunner(chosen.name, chosen.server, "boot-1"))

    monkeypatch.setattr(runner_process, "run_until_signal", run_until_signal)
    return settings


def find_on_this_machine(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    async def check_engines(engines: object) -> dict[str, Sequence[Finding]]:
        return {"kubernetes": findings}

    monkeypatch.setattr("fairlead.runner.doctor.check_engines", check_engines)
    # A runner of this machine may use the ranges that are the default.
    monkeypatch.setattr("fairlead.runner.doctor.load_engines", lambda settings, names: {})


def test_server_ca_and_key_come_from_the_login(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_on_this_machine(monkeypatch, FINE)
    state = tmp_path / "state"
    result = admin.run(*START, "--state", str(state), "--allow-folder", str(tmp_path))
    assert result.code == 0, result.err
    assert started == [
        RunnerSettings(
            name="local",
            server=admin.fake.url,
            state_folder=state,
            key_file=state / "key",
            ca_file=state / "ca.crt",
            engines=("kubernetes",),
            allowed_folders=(tmp_path.resolve(),),
        )
    ]
    assert (state / "key").read_text().strip() == RUNNER_KEY
    assert (state / "key").stat().st_mode & 0o777 == 0o600
    assert (state / "ca.crt").read_text() == Path(admin.fake.ca_file).read_text()
    assert RUNNER_KEY not in result.out + result.err and KEY not in result.out + result.err


def test_a_key_of_ones_own_is_not_replaced(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_on_this_machine(monkeypatch, FINE)
    (tmp_path / "own").write_text("fairlead_own")
    (tmp_path / "own").chmod(0o600)
    assert admin.run(*START, "--state", str(tmp_path / "a"), "--key-file", str(tmp_path / "own")).code == 0
    assert admin.run(*START, "--state", str(tmp_path / "b"), FAIRLEAD_RUNNER_KEY="fairlead_own").code == 0
    assert [each.key_file for each in started] == [tmp_path / "own", None]
    assert admin.fake.requests_to("GET", f"{RUNNER}/accesskey") == []


def test_what_the_machine_lacks_is_printed_with_the_command_that_solves_it(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_on_this_machine(
        monkeypatch, FINE, Finding("disk", "little", "tidy", False), Finding("podman", "none", "apt-get install podman")
    )
    flags = ("--state", str(tmp_path / "state"))
    result = admin.run(*START, *flags)
    assert (result.code, started) == (1, [])
    lines = result.err.splitlines()
    assert "warning  disk: little" in lines and "PROBLEM  podman: none" in lines
    assert "         fix: apt-get install podman" in lines
    assert "`fairlead runner doctor local` checks it again" in lines[-1]
    doctor = admin.run("runner", "doctor", "local", "--engine", "kubernetes", *flags)
    assert (doctor.code, "ok       server" in doctor.out, "PROBLEM  podman: none" in doctor.out) == (1, True, True)


def test_a_user_who_is_not_root_gets_the_command_to_type(
    admin: CliFixture, started: list[RunnerSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("sys.argv", ["fairlead", "runner", "start", "local", "--allow-folder", "/a b"])
    result = admin.run("runner", "start", "local", "--allow-folder", "/a b")
    assert (result.code, started) == (1, [])
    assert "containers of workspaces need root, and you are " in result.err
    command = next(line for line in result.err.splitlines() if "sudo" in line)
    words = shlex.split(command)
    assert words[:3] == ["sudo", "env", f"HOME={admin.home}"]
    assert words[4:] == ["runner", "start", "local", "--allow-folder", "/a b"]


def test_the_state_of_a_user_is_below_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairlead.cli.resources.runner_options import default_state_folder

    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_state_folder() == Path("/var/lib/fairlead-runner")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_state_folder() == Path("/home/ada/.local/state/fairlead-runner")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_state_folder() == Path("/state/fairlead-runner")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (404, "there is no runner 'local'; create it with `fairlead runner create local`"),
        (403, "you may not read the key of the runner local (no); only its owner and administrators may"),
        (500, "no"),
    ],
)
def test_a_key_that_cannot_be_read_is_explained(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, code: int, message: str
) -> None:
    admin.fake.on("GET", f"{RUNNER}/accesskey", (code, failure_status(code, "Refused", "no")))
    result = admin.run(*START, "--state", str(tmp_path / "state"))
    assert (result.code, started, (tmp_path / "state" / "key").exists()) == (1, [], False)
    assert message in result.err


def test_a_response_without_a_key_is_an_error(admin: CliFixture, tmp_path: Path) -> None:
    admin.fake.on("GET", f"{RUNNER}/accesskey", (200, {}))
    assert "did not return a key" in admin.run(*START, "--state", str(tmp_path / "state")).err


def test_without_a_login_the_command_says_how_to_log_in(cli: CliFixture, tmp_path: Path) -> None:
    result = cli.run(*START, "--state", str(tmp_path / "state"))
    assert (result.code, "log in with `fairlead login URL`" in result.err) == (1, True)


def test_a_login_that_does_not_verify_certificates_is_not_used(admin: CliFixture, tmp_path: Path) -> None:
    contexts = admin.load_contexts()
    login = Login(admin.fake.url, KEY, insecure=True)
    save_contexts(admin.contexts_file, contexts.with_login("test", login))
    result = admin.run(*START, "--state", str(tmp_path / "state"))
    assert (result.code, "does not verify the server's certificate" in result.err) == (1, True)


def test_flags_that_belong_to_another_server_need_one(admin: CliFixture) -> None:
    for flags in (("--ca-file", "ca.crt"), ("--api-group", "example.com")):
        result = admin.run(*START, *flags)
        assert (result.code, "belong to --server" in result.err) == (2, True)


def test_install_uses_the_login_and_keeps_the_key_out_of_the_unit(admin: CliFixture, tmp_path: Path) -> None:
    state = tmp_path / "state"
    result = admin.run("runner", "install", "local", "--state", str(state))
    assert result.code == 0, result.err
    assert f"--server {admin.fake.url} --key-file {state}/key --ca-file {state}/ca.crt --state {state}" in result.out
    assert RUNNER_KEY not in result.out
    result = admin.run("runner", "install", "local", "--server", "https://example.com")
    assert (result.code, "name a file with the key with --key-file" in result.err) == (2, True)


def test_what_the_operator_allows_comes_from_flags_or_variables(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_on_this_machine(monkeypatch, FINE)
    start = (*START, "--state", str(tmp_path / "state"))
    assert admin.run(*start).code == 0
    assert (started[-1].allowed_permissions, started[-1].clusters) == ((), ClusterAccess())
    flags = ("--allow", "mounts", "--allow", "gpu", "--kube-context", "a", "--kube-namespace", "team")
    assert admin.run(*start, *flags, "--clone-image", "git:1").code == 0
    assert started[-1].allowed_permissions == ("mounts", "gpu")
    assert started[-1].clusters == ClusterAccess(None, ("a",), ("team",), "git:1")
    variables = {"ALLOW": "mounts gpu", "KUBE_CONTEXT": "a b", "KUBE_NAMESPACE": "team", "CLONE_IMAGE": "git:1"}
    result = admin.run(*start, **{f"FAIRLEAD_RUNNER_{name}": value for name, value in variables.items()})
    assert result.code == 0, result.err
    assert started[-1].allowed_permissions == ("mounts", "gpu")
    assert started[-1].clusters == ClusterAccess(None, ("a", "b"), ("team",), "git:1")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--allow", "everything"), "--allow everything: there is no such permission; use "),
        (("--kube-namespace", "kube-system"), "namespaces of Kubernetes itself are never for workspaces"),
    ],
)
def test_what_an_operator_cannot_allow_is_refused_at_once(
    admin: CliFixture, started: list[RunnerSettings], flags: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = admin.run(*START, "--state", str(tmp_path / "state"), *flags)
    assert (result.code, started) == (2, [])
    assert message in " ".join(result.err.split())


def test_an_engine_of_another_package_may_have_permissions_of_its_own(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_on_this_machine(monkeypatch, FINE)
    flags = ("--engine", "tests.runner.fake_engine:create_engine", "--allow", "everything")
    assert admin.run(*START[:3], "--state", str(tmp_path / "state"), *flags).code == 0
    assert started[-1].allowed_permissions == ("everything",)


def test_the_sizes_of_disks_come_from_flags(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_on_this_machine(monkeypatch, FINE)
    flags = ("--workspace-disk", "10Gi", "--image-disk", "20Gi", "--min-free-disk", "100")
    for chosen in (flags, ("--workspace-disk", "0")):
        assert admin.run(*START, "--state", str(tmp_path / "state"), *chosen).code == 0
    assert [each.disk for each in started] == [
        DiskSettings(min_free_bytes=100 << 20, workspace_bytes=10 << 30, image_bytes=20 << 30),
        DiskSettings(workspace_bytes=0),
    ]
    unit = admin.run("runner", "install", "local", "--state", str(tmp_path / "state"), *flags).out
    assert "--min-free-disk 100 --workspace-disk 10Gi --image-disk 20Gi" in unit


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--workspace-disk", "x", "is not the size of a disk"),
        ("--workspace-disk", "1Mi", "is not the size of a disk"),
        ("--workspace-disk", "16Ti", "is not the size of a disk"),
        ("--image-disk", "0", "--workspace-disk 0 turns off both"),
    ],
)
def test_a_disk_that_cannot_be_is_refused_at_once(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, flag: str, value: str, message: str
) -> None:
    result = admin.run(*START, "--state", str(tmp_path / "state"), flag, value)
    assert (result.code, started) == (2, [])
    assert message in " ".join(result.err.replace("│", " ").split())


def test_the_configuration_of_the_machine_comes_from_a_file(
    admin: CliFixture, started: list[RunnerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_on_this_machine(monkeypatch, Finding("features", detail="from registry.example.com"))
    config = tmp_path / "runner.yaml"
    config.write_text("network_pool: 10.99.0.0/16\n")
    flags = ("--state", str(tmp_path / "state"), "--config", str(config))
    result = admin.run(*START, *flags)
    assert result.code == 0, result.err
    assert started[0].machine.network_pool == "10.99.0.0/16"
    unit = admin.run("runner", "install", "local", *flags).out
    assert shlex.split(unit.partition("ExecStart=")[2].splitlines()[0]).count(str(config)) == 1
    assert "ok       features: from registry.example.com" in admin.run("runner", "doctor", "local", *flags).out
    config.write_text("network_pools: 10.99.0.0/16\n")
    for command in (START, ("runner", "doctor", "local")):
        result = admin.run(*command, *flags)
        assert result.code == 1 and f"{config}: unknown setting network_pools; did you mean" in result.err
