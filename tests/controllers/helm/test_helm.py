"""Tests of `fairlead.controllers.helm.helm` with a fake helm program that records its calls."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
import yaml

from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.helm import PASSED_VARIABLES, Helm
from fairlead.controllers.helm.limited_process import RESOURCE_LIMITS
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.upstream.access import ClusterEndpoint
from tests.controllers.helm.fake_helm_program import FakeHelmProgram, LocalCharts

ENDPOINT = ClusterEndpoint("192.0.2.1", 6443, "", "kube.example", "-----CA-----", "stored-token")
CHART = Chart("vc", "https://charts.example", "1.2.3")
CHART_WITH_PASSWORD = Chart("vc", "https://charts.example", "", "ada", "repo-password")


@pytest.fixture
def fake_helm(tmp_path: Path) -> FakeHelmProgram:
    return FakeHelmProgram(tmp_path)


def install(fake_helm: FakeHelmProgram, release: Release, seconds: int = 30) -> None:
    """Runs on an event loop in real time, since it starts a process."""
    asyncio.run(Helm(LocalCharts(), str(fake_helm.path)).install(replace(release, timeout=seconds), ENDPOINT))


def build_release(chart: Chart = CHART, impersonate_user: str = "") -> Release:
    return Release("one", "ns", chart, "a: b", impersonate_user)


def test_a_release_is_installed_or_upgraded(fake_helm: FakeHelmProgram) -> None:
    install(fake_helm, build_release())
    (call,) = fake_helm.calls
    arguments = call["arguments"]
    assert arguments[:2] == ["upgrade", "--install"]
    assert arguments[-3:] == ["--", "one", f"{call['cwd']}/chart.tgz"]
    assert arguments[arguments.index("--namespace") + 1] == "ns"
    assert "--kube-as-user" not in arguments
    assert call["files"]["--values"] == "a: b"


def test_the_kubeconfig_leads_to_the_endpoint(fake_helm: FakeHelmProgram) -> None:
    install(fake_helm, build_release())
    config = yaml.safe_load(fake_helm.calls[0]["files"]["--kubeconfig"])
    cluster = config["clusters"][0]["cluster"]
    assert (cluster["server"], cluster["tls-server-name"]) == ("https://192.0.2.1:6443", "kube.example")
    assert config["users"][0]["user"] == {"token": "stored-token"}


def test_credentials_are_in_private_files_that_are_removed(fake_helm: FakeHelmProgram) -> None:
    install(fake_helm, build_release())
    (call,) = fake_helm.calls
    assert (call["folder"], call["modes"]) == (0o700, {"--kubeconfig": 0o600, "--values": 0o600})
    assert "stored-token" not in str(call["arguments"]) + str(call["environment"])
    assert not Path(call["cwd"]).exists()


def test_the_environment_of_the_server_is_not_passed_to_helm(
    fake_helm: FakeHelmProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_SECRET", "x")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    monkeypatch.setenv("HELM_PLUGINS", "/elsewhere")
    monkeypatch.setenv("HELM_REGISTRY_CONFIG", "/elsewhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example")
    for name in PASSED_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    install(fake_helm, build_release())
    (call,) = fake_helm.calls
    homes = {"HOME", "HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"}
    added_by_its_start = {"LC_CTYPE", "PWD"}  # by Python, and by the shell that starts a Python of another Debian
    assert set(call["environment"]) <= {"PATH", *added_by_its_start, *homes}
    assert all(
        value.startswith(call["cwd"])
        for name, value in call["environment"].items()
        if name.startswith(("HELM", "HOME"))
    )


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_helm_has_the_ca_certificates_of_the_server(
    fake_helm: FakeHelmProgram, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "/a/value")
    install(fake_helm, build_release())
    assert fake_helm.calls[0]["environment"][name] == "/a/value"


@pytest.mark.parametrize("repo", ["https://charts.example", "oci://registry.example/charts"])
def test_helm_gets_nothing_of_the_chart_but_the_path_of_its_archive(fake_helm: FakeHelmProgram, repo: str) -> None:
    install(fake_helm, build_release(Chart("--post-renderer", repo, "--set-file", "ada", "repo-password")))
    (call,) = fake_helm.calls
    files = {**call, "files": {"--values": call["files"]["--values"]}}
    for secret in ("repo-password", "ada", "post-renderer", "set-file", "charts.example", "registry.example"):
        assert secret not in str(files)


@pytest.mark.parametrize("name", ["--post-renderer=/bin/sh", "-", "--", "--kube-context", "../../x", "$(id)", "a b"])
def test_no_text_of_a_release_becomes_an_option(fake_helm: FakeHelmProgram, name: str) -> None:
    """Everything after `--` is a name for helm, and the value of an option is never looked at as another one."""
    install(fake_helm, Release(name, name, CHART, name, name))
    arguments = fake_helm.calls[0]["arguments"]
    assert arguments[-3:-1] == ["--", name]
    options = arguments[2:-3]
    values = dict(zip(options[::2], options[1::2], strict=True))
    assert values.keys() == {
        *("--values", "--timeout", "--history-max", "--namespace", "--kubeconfig", "--kube-as-user"),
    }
    assert (values["--namespace"], values["--kube-as-user"]) == (name, name)
    assert fake_helm.calls[0]["files"]["--values"] == name


def test_a_confined_release_is_deployed_with_impersonation(fake_helm: FakeHelmProgram) -> None:
    install(fake_helm, build_release(impersonate_user="service:deployer:ns"))
    arguments = fake_helm.calls[0]["arguments"]
    assert arguments[arguments.index("--kube-as-user") + 1] == "service:deployer:ns"


def test_an_error_contains_the_last_line_of_helm_without_secrets(fake_helm: FakeHelmProgram) -> None:
    fake_helm.set_behaviour(
        "sys.stderr.write('warming up\\nError: UPGRADE FAILED: 192.0.2.1:6443 said stored-token and repo-password "
        "\\x1b[1m see https://inside.example/x no\\n')\n"
        "sys.exit(3)"
    )
    with pytest.raises(InstanceError) as caught:
        install(fake_helm, build_release(CHART_WITH_PASSWORD))
    assert caught.value.reason == "HelmFailed"
    assert "Error: UPGRADE FAILED: [...] said [...] and [...]" in caught.value.message
    assert "inside.example" not in caught.value.message
    assert "template" not in caught.value.message  # the chart may be that of an app
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "line",
    [
        'Error: looks like "https://10.0.0.1/" is not a valid chart repository: secret words of a neighbour',
        "Error: UPGRADE FAILED: failed to fetch https://10.0.0.1/x : secret words",
        "secret words",
        "Error: secret words",
    ],
)
def test_t22_the_response_of_a_repository_is_not_in_the_error(fake_helm: FakeHelmProgram, line: str) -> None:
    fake_helm.set_behaviour(f"sys.stderr.write({line!r}); sys.exit(1)")
    with pytest.raises(InstanceError) as caught:
        install(fake_helm, build_release())
    assert "secret words" not in caught.value.message
    assert "10.0.0.1" not in caught.value.message


def test_a_run_has_limits_for_memory_processor_time_and_file_size(fake_helm: FakeHelmProgram) -> None:
    limits_file = fake_helm.path.parent / "limits"
    fake_helm.set_behaviour(
        "import resource, time; time.sleep(0.2)\n"
        f"open({str(limits_file)!r}, 'w').write(str([resource.getrlimit(each)[1] for each in "
        "(resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)]))"
    )
    install(fake_helm, build_release())
    limits = json.loads(limits_file.read_text())
    assert all(0 < limit <= maximum for limit, maximum in zip(limits, RESOURCE_LIMITS.values(), strict=True))


@pytest.mark.parametrize("name", ["e" * 300_000, "one\0"])
def test_arguments_that_cannot_be_passed_to_a_program_are_an_error_of_the_release(
    fake_helm: FakeHelmProgram, name: str
) -> None:
    with pytest.raises(InstanceError) as caught:
        install(fake_helm, Release(name, "ns", CHART, ""))
    assert caught.value.reason == "HelmFailed"


def test_a_chart_that_cannot_be_stored_is_an_error_of_the_release(fake_helm: FakeHelmProgram) -> None:
    class FullDisk:
        async def fetch(self, chart: Chart, folder: Path) -> Path:
            raise OSError(errno.ENOSPC, "no space left on device")

    with pytest.raises(InstanceError, match="check the server's disk"):
        asyncio.run(Helm(FullDisk(), str(fake_helm.path)).install(build_release(), ENDPOINT))


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_program_that_exits_without_reading_its_input_is_an_error_of_the_release(
    fake_helm: FakeHelmProgram, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    fake_helm.path.write_text("#!/bin/sh\nexit 1\n")

    async def run_many() -> list[object]:
        helm = Helm(LocalCharts(), str(fake_helm.path))
        runs = (helm.install(build_release(CHART_WITH_PASSWORD), ENDPOINT) for _ in range(20))
        return [*await asyncio.gather(*runs, return_exceptions=True)]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert {type(result) for result in runner.run(run_many())} == {InstanceError}


def test_a_program_that_cannot_be_started_is_an_error_of_the_release(fake_helm: FakeHelmProgram) -> None:
    fake_helm.path.write_text("#!/nowhere/at/all\n")
    with pytest.raises(InstanceError, match="could not be run"):
        install(fake_helm, build_release())


def test_a_run_over_the_timeout_is_ended_with_its_child_processes(
    fake_helm: FakeHelmProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.helm.helm.TIMEOUT_MARGIN_SECONDS", 0.5)
    pid_file = tmp_path / "child"
    fake_helm.set_behaviour(
        f"import subprocess, time; process = subprocess.Popen(['sleep', '60']); open({str(pid_file)!r}, 'w').write("
        "str(process.pid)); time.sleep(60)"
    )
    with pytest.raises(InstanceError) as caught:
        install(fake_helm, build_release(), seconds=1)
    assert caught.value.reason == "HelmTimedOut"
    for _ in range(500):
        if _has_exited(int(pid_file.read_text())):
            break
        time.sleep(0.01)  # the process was signalled, and needs a moment to exit
    assert _has_exited(int(pid_file.read_text()))
    assert not Path(fake_helm.calls[0]["cwd"]).exists()


def test_a_run_over_the_timeout_gets_sigterm_before_it_is_killed(
    fake_helm: FakeHelmProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """helm then records that the release has failed. If it is killed, the release stays pending."""
    monkeypatch.setattr("fairlead.controllers.helm.helm.TIMEOUT_MARGIN_SECONDS", 0.5)
    signal_file = tmp_path / "noted"
    fake_helm.set_behaviour(
        "import signal, time\n"
        f"def end(*_):\n    open({str(signal_file)!r}, 'w').close()\n    sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\ntime.sleep(60)"
    )
    with pytest.raises(InstanceError, match="took longer than"):
        install(fake_helm, build_release(), seconds=1)
    assert signal_file.exists()


def test_the_timeout_of_a_release_is_that_of_helm(fake_helm: FakeHelmProgram) -> None:
    install(fake_helm, build_release(), seconds=90)
    arguments = fake_helm.calls[0]["arguments"]
    assert arguments[arguments.index("--timeout") + 1] == "90s"


def test_conflicts_are_forced_if_helm_knows_how(fake_helm: FakeHelmProgram) -> None:
    helm = Helm(LocalCharts(), str(fake_helm.path))
    asyncio.run(helm.install(build_release(), ENDPOINT, forces_conflicts=True))
    assert ["--force-conflicts" in each["arguments"] for each in fake_helm.calls] == [True]
    refusal = "Error: unknown flag: --force-conflicts"
    fake_helm.set_behaviour(f"if '--force-conflicts' in arguments: sys.stderr.write({refusal!r}); sys.exit(1)")
    asyncio.run(helm.install(build_release(), ENDPOINT, forces_conflicts=True))
    assert ["--force-conflicts" in each["arguments"] for each in fake_helm.calls] == [True, True, False]


KILLED_SERVER = """
import asyncio, os, signal
from tests.controllers.helm.test_helm import ENDPOINT, Helm, LocalCharts, build_release
asyncio.run(Helm(LocalCharts(), {program!r}).install(build_release(), ENDPOINT))
"""


def test_helm_ends_with_a_server_that_is_killed(fake_helm: FakeHelmProgram, tmp_path: Path) -> None:
    """It gets SIGTERM, so that it records that the release has failed."""
    started = tmp_path / "started"
    ended = tmp_path / "ended"
    fake_helm.set_behaviour(
        f"import signal, time\ndef end(*_):\n    open({str(ended)!r}, 'w').close()\n    sys.exit(1)\n"
        f"signal.signal(signal.SIGTERM, end)\nopen({str(started)!r}, 'w').close()\ntime.sleep(60)"
    )
    program = KILLED_SERVER.format(program=str(fake_helm.path))
    with subprocess.Popen((sys.executable, "-c", program), stdin=subprocess.DEVNULL) as server:
        _wait_for_file(started)
        server.kill()
    _wait_for_file(ended)
    assert started.exists() and ended.exists()


def test_a_run_that_ignores_sigterm_is_killed(fake_helm: FakeHelmProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.controllers.helm.helm.TIMEOUT_MARGIN_SECONDS", 0.5)
    monkeypatch.setattr("fairlead.controllers.helm.limited_process.TERMINATION_GRACE_SECONDS", 0.2)
    fake_helm.set_behaviour("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)")
    with pytest.raises(InstanceError, match="took longer than"):
        install(fake_helm, build_release(), seconds=1)


def _wait_for_file(path: Path) -> None:
    """Waits until a process has written the file."""
    for _ in range(3_000):
        if path.exists():
            return
        time.sleep(0.01)


def test_a_run_that_is_cancelled_again_after_sigterm_is_killed(
    fake_helm: FakeHelmProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.helm.limited_process.TERMINATION_GRACE_SECONDS", 60)
    pid_file, signal_file = tmp_path / "started", tmp_path / "noted"
    fake_helm.set_behaviour(
        f"import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: open({str(signal_file)!r}, 'w').close())\n"
        f"os.replace(open({str(pid_file)!r} + '.new', 'w').write(str(os.getpid())) and {str(pid_file)!r} + '.new', "
        f"{str(pid_file)!r})\nwhile True: time.sleep(60)"
    )

    async def cancel_twice() -> None:
        run = asyncio.create_task(Helm(LocalCharts(), str(fake_helm.path)).install(build_release(), ENDPOINT))
        for path in (pid_file, signal_file):
            async with asyncio.timeout(30):
                await asyncio.to_thread(_wait_for_file, path)
            run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert _has_exited(int(pid_file.read_text()))

    asyncio.run(cancel_twice())


def test_a_release_with_another_operation_in_progress_is_pending(fake_helm: FakeHelmProgram) -> None:
    stderr_line = "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress"
    fake_helm.set_behaviour(f"sys.stderr.write({stderr_line!r}); sys.exit(1)")
    with pytest.raises(InstanceError, match="was interrupted") as caught:
        install(fake_helm, build_release())
    assert caught.value.reason == "ReleasePending"


def _has_exited(pid: int) -> bool:
    """Whether the process has exited; before its parent has waited for it, it is a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] in "ZX"


RELEASE_NOT_LOADED = "Error: uninstall: Release not loaded: one: "
RELEASE_NOT_FOUND = f"{RELEASE_NOT_LOADED}release: not found"
FORBIDDEN = (
    f'{RELEASE_NOT_LOADED}query: failed to query with labels: secrets is forbidden: User "x" cannot list resource'
)


def uninstall(fake_helm: FakeHelmProgram, stderr_line: str = "", impersonate_user: str = "") -> None:
    if stderr_line:
        fake_helm.set_behaviour(f"sys.stderr.write({stderr_line!r}); sys.exit(1)")
    release = build_release(impersonate_user=impersonate_user)
    asyncio.run(Helm(LocalCharts(), str(fake_helm.path)).uninstall(release, ENDPOINT))


def test_a_release_is_uninstalled(fake_helm: FakeHelmProgram) -> None:
    uninstall(fake_helm)
    arguments = fake_helm.calls[0]["arguments"]
    assert (arguments[0], arguments[-2:]) == ("uninstall", ["--", "one"])
    assert arguments[arguments.index("--namespace") + 1] == "ns"


def test_uninstalling_a_missing_release_is_no_error(fake_helm: FakeHelmProgram) -> None:
    uninstall(fake_helm, RELEASE_NOT_FOUND)


def test_a_forbidden_release_is_not_mistaken_for_a_missing_one(fake_helm: FakeHelmProgram) -> None:
    with pytest.raises(InstanceError, match=r"helm uninstall failed: .*secrets is forbidden"):
        uninstall(fake_helm, FORBIDDEN)


def test_a_confined_release_without_permissions_is_left_to_the_deletion_of_its_namespace(
    fake_helm: FakeHelmProgram,
) -> None:
    uninstall(fake_helm, FORBIDDEN, "service:deployer:ns")
    with pytest.raises(InstanceError, match="could not reach the cluster"):
        uninstall(fake_helm, "Error: kubernetes cluster unreachable: x", "service:deployer:ns")


def test_a_missing_program_is_an_error_with_an_instruction(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="make helm-tools") as caught:
        Helm(LocalCharts(), str(tmp_path / "nothing")).find_program()
    assert caught.value.reason == "HelmNotFound"
    assert "virtual cluster" not in caught.value.message
