"""The helm program, with a stand-in that writes down how it was called."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
import yaml

from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.helm import RESOURCE_LIMITS, Helm
from fairlead.controllers.instances.remote_errors import InstanceError
from fairlead.upstream.access import ClusterEndpoint

ACCESS = ClusterEndpoint("192.0.2.1", 6443, "/k8s", "kube.example", "-----CA-----", "stored-token")
PLAIN = Chart("vc", "https://charts.example", "1.2.3")
LOCKED = Chart("vc", "https://charts.example", "", "ada", "repo-password")

STAND_IN = """#!{python}
import json, os, stat, sys
from pathlib import Path
arguments = sys.argv[1:]
given = {{flag: arguments[arguments.index(flag) + 1] for flag in ("--kubeconfig", "--values") if flag in arguments}}
told = {{"arguments": arguments, "environment": dict(os.environ), "cwd": os.getcwd(), "stdin": sys.stdin.read()}}
told["files"] = {{flag: Path(path).read_text() for flag, path in given.items()}}
told["modes"] = {{flag: stat.S_IMODE(os.stat(path).st_mode) for flag, path in given.items()}}
told["folder"] = stat.S_IMODE(os.stat(os.getcwd()).st_mode)
with open({log!r}, "a") as log:
    log.write(json.dumps(told) + "\\n")
{then}
"""


class StandIn:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "helm"
        self.log = folder / "log"
        self.does("")

    def does(self, then: str) -> None:
        self.path.write_text(STAND_IN.format(python=sys.executable, log=str(self.log), then=then))
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


def install(stand_in: StandIn, release: Release, seconds: float = 30) -> None:
    """On a loop with a real clock: a process takes the time that it takes."""
    asyncio.run(Helm(str(stand_in.path), seconds).install(release, ACCESS))


def release(chart: Chart = PLAIN, confined_to: str = "") -> Release:
    return Release("one", "ns", chart, "a: b", confined_to)


def test_a_release_is_installed_or_upgraded(stand_in: StandIn) -> None:
    install(stand_in, release())
    (call,) = stand_in.calls
    arguments = call["arguments"]
    assert arguments[:4] == ["upgrade", "--install", "--repo", "https://charts.example"]
    assert arguments[-3:] == ["--", "one", "vc"]
    assert arguments[arguments.index("--version") + 1] == "1.2.3"
    assert arguments[arguments.index("--namespace") + 1] == "ns"
    assert "--kube-as-user" not in arguments
    assert call["files"]["--values"] == "a: b"


def test_the_cluster_is_named_by_the_address_that_was_judged(stand_in: StandIn) -> None:
    install(stand_in, release())
    config = yaml.safe_load(stand_in.calls[0]["files"]["--kubeconfig"])
    cluster = config["clusters"][0]["cluster"]
    assert (cluster["server"], cluster["tls-server-name"]) == ("https://192.0.2.1:6443/k8s", "kube.example")
    assert config["users"][0]["user"] == {"token": "stored-token"}


def test_credentials_are_in_private_files_that_go_away(stand_in: StandIn) -> None:
    install(stand_in, release())
    (call,) = stand_in.calls
    assert (call["folder"], call["modes"]) == (0o700, {"--kubeconfig": 0o600, "--values": 0o600})
    assert "stored-token" not in str(call["arguments"]) + str(call["environment"])
    assert not Path(call["cwd"]).exists()


def test_the_environment_of_the_server_is_not_handed_on(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SECRET", "x")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    monkeypatch.setenv("HELM_PLUGINS", "/elsewhere")
    install(stand_in, release())
    (call,) = stand_in.calls
    allowed = {"PATH", "HOME", "HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME", "LC_CTYPE"}
    assert set(call["environment"]) <= allowed
    assert all(
        value.startswith(call["cwd"])
        for name, value in call["environment"].items()
        if name.startswith(("HELM", "HOME"))
    )


@pytest.mark.parametrize(
    ("repo", "command", "positionals", "chart"),
    [
        ("https://charts.example", ["repo", "add"], ["repository", "https://charts.example"], "repository/vc"),
        (
            "oci://registry.example/charts",
            ["registry", "login"],
            ["registry.example"],
            "oci://registry.example/charts/vc",
        ),
    ],
)
def test_a_repositorys_password_goes_through_standard_input(
    stand_in: StandIn, repo: str, command: list[str], positionals: list[str], chart: str
) -> None:
    install(stand_in, release(Chart("vc", repo, "", "ada", "repo-password")))
    login, upgrade = stand_in.calls
    assert login["arguments"] == [*command, "--username", "ada", "--password-stdin", "--", *positionals]
    assert login["stdin"] == "repo-password"
    assert upgrade["arguments"][-1] == chart
    assert "repo-password" not in str(upgrade)


def test_a_confined_release_is_deployed_as_its_own_identity(stand_in: StandIn) -> None:
    install(stand_in, release(confined_to="service:deployer:ns"))
    arguments = stand_in.calls[0]["arguments"]
    assert arguments[arguments.index("--kube-as-user") + 1] == "service:deployer:ns"


def test_a_failure_tells_its_last_line_without_secrets(stand_in: StandIn) -> None:
    stand_in.does(
        "sys.stderr.write('warming up\\nError: UPGRADE FAILED: 192.0.2.1:6443 said stored-token and repo-password "
        "\\x1b[1m see https://inside.example/x no\\n')\n"
        "sys.exit(3)"
    )
    with pytest.raises(InstanceError) as caught:
        install(stand_in, release(Chart("vc", "oci://r.example/c", "", "", "repo-password")))
    assert caught.value.reason == "HelmFailed"
    assert "Error: UPGRADE FAILED: [...] said [...] and [...]" in caught.value.message
    assert "inside.example" not in caught.value.message
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
def test_t22_what_a_repository_answers_is_not_told(stand_in: StandIn, line: str) -> None:
    stand_in.does(f"sys.stderr.write({line!r}); sys.exit(1)")
    with pytest.raises(InstanceError) as caught:
        install(stand_in, release())
    assert "secret words" not in caught.value.message
    assert "10.0.0.1" not in caught.value.message


def test_a_run_is_bounded_in_memory_processor_time_and_files(stand_in: StandIn) -> None:
    limits = stand_in.path.parent / "limits"
    stand_in.does(
        "import resource, time; time.sleep(0.2)\n"
        f"open({str(limits)!r}, 'w').write(str([resource.getrlimit(each)[1] for each in "
        "(resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)]))"
    )
    install(stand_in, release())
    found = json.loads(limits.read_text())
    assert all(0 < each <= most for each, most in zip(found, RESOURCE_LIMITS.values(), strict=True))


@pytest.mark.parametrize(
    "chart",
    [
        Chart("vc", f"https://charts.example/{'e' * 300_000}"),
        Chart("vc", "https://charts.example/\0"),
    ],
)
def test_what_cannot_be_run_is_a_trouble_of_the_release(stand_in: StandIn, chart: Chart) -> None:
    with pytest.raises(InstanceError) as caught:
        install(stand_in, release(chart))
    assert caught.value.reason == "HelmFailed"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_program_that_ends_without_reading_is_a_trouble_of_the_release(
    stand_in: StandIn, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    stand_in.path.write_text("#!/bin/sh\nexit 1\n")

    async def many() -> list[object]:
        helm = Helm(str(stand_in.path))
        runs = (helm.install(release(LOCKED), ACCESS) for _ in range(20))
        return [*await asyncio.gather(*runs, return_exceptions=True)]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert {type(each) for each in runner.run(many())} == {InstanceError}


def test_a_program_that_cannot_be_started_is_a_trouble_of_the_release(stand_in: StandIn) -> None:
    stand_in.path.write_text("#!/nowhere/at/all\n")
    with pytest.raises(InstanceError, match="could not be run"):
        install(stand_in, release())


def test_a_run_that_takes_too_long_is_ended_with_all_that_it_started(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.helm.helm.TIMEOUT_MARGIN_SECONDS", 0.5)
    child = tmp_path / "child"
    stand_in.does(
        f"import subprocess, time; process = subprocess.Popen(['sleep', '60']); open({str(child)!r}, 'w').write("
        "str(process.pid)); time.sleep(60)"
    )
    with pytest.raises(InstanceError) as caught:
        install(stand_in, release(), seconds=1)
    assert caught.value.reason == "HelmTimedOut"
    for _ in range(500):
        if _is_gone(int(child.read_text())):
            break
        time.sleep(0.01)  # it has been told; a process needs a moment to go
    assert _is_gone(int(child.read_text()))
    assert not Path(stand_in.calls[0]["cwd"]).exists()


def test_a_run_that_takes_too_long_is_asked_to_end_before_it_is_killed(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """helm then notes that the release has failed. A killed one leaves it pending."""
    monkeypatch.setattr("fairlead.controllers.helm.helm.TIMEOUT_MARGIN_SECONDS", 0.5)
    noted = tmp_path / "noted"
    stand_in.does(
        "import signal, time\n"
        f"def end(*_):\n    open({str(noted)!r}, 'w').close()\n    sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\ntime.sleep(60)"
    )
    with pytest.raises(InstanceError, match="took longer than"):
        install(stand_in, release(), seconds=1)
    assert noted.exists()


def test_a_run_that_does_not_end_when_it_is_asked_is_killed(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.controllers.helm.helm.TIMEOUT_MARGIN_SECONDS", 0.5)
    monkeypatch.setattr("fairlead.controllers.helm.helm.TERMINATION_GRACE_SECONDS", 0.2)
    stand_in.does("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)")
    with pytest.raises(InstanceError, match="took longer than"):
        install(stand_in, release(), seconds=1)


def _await_file(path: Path) -> None:
    """As long as a process needs to write it."""
    for _ in range(3_000):
        if path.exists():
            return
        time.sleep(0.01)


def test_a_run_that_is_cancelled_again_while_it_is_asked_to_end_is_killed(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.controllers.helm.helm.TERMINATION_GRACE_SECONDS", 60)
    started, noted = tmp_path / "started", tmp_path / "noted"
    stand_in.does(
        f"import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: open({str(noted)!r}, 'w').close())\n"
        f"os.replace(open({str(started)!r} + '.new', 'w').write(str(os.getpid())) and {str(started)!r} + '.new', "
        f"{str(started)!r})\nwhile True: time.sleep(60)"
    )

    async def cancel_twice() -> None:
        run = asyncio.create_task(Helm(str(stand_in.path), 60).install(release(), ACCESS))
        for sign in (started, noted):
            async with asyncio.timeout(30):
                await asyncio.to_thread(_await_file, sign)
            run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert _is_gone(int(started.read_text()))

    asyncio.run(cancel_twice())


def test_a_release_that_another_run_is_at_is_told_as_such(stand_in: StandIn) -> None:
    said = "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress"
    stand_in.does(f"sys.stderr.write({said!r}); sys.exit(1)")
    with pytest.raises(InstanceError, match="was interrupted") as caught:
        install(stand_in, release())
    assert caught.value.reason == "ReleasePending"


def _is_gone(pid: int) -> bool:
    """Whether nothing of that process runs any more; one that nobody has waited for is a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] in "ZX"


NOT_LOADED = "Error: uninstall: Release not loaded: one: "
NOT_FOUND = f"{NOT_LOADED}release: not found"
FORBIDDEN = f'{NOT_LOADED}query: failed to query with labels: secrets is forbidden: User "x" cannot list resource'


def uninstall(stand_in: StandIn, complaint: str = "", confined_to: str = "") -> None:
    if complaint:
        stand_in.does(f"sys.stderr.write({complaint!r}); sys.exit(1)")
    asyncio.run(Helm(str(stand_in.path)).uninstall(release(confined_to=confined_to), ACCESS))


def test_a_release_is_uninstalled(stand_in: StandIn) -> None:
    uninstall(stand_in)
    arguments = stand_in.calls[0]["arguments"]
    assert (arguments[0], arguments[-2:]) == ("uninstall", ["--", "one"])
    assert arguments[arguments.index("--namespace") + 1] == "ns"


def test_uninstalling_what_is_not_there_is_no_matter(stand_in: StandIn) -> None:
    uninstall(stand_in, NOT_FOUND)


def test_a_release_that_must_not_be_looked_for_is_not_taken_for_one_that_is_not_there(stand_in: StandIn) -> None:
    with pytest.raises(InstanceError, match=r"helm uninstall failed: .*secrets is forbidden"):
        uninstall(stand_in, FORBIDDEN)


def test_a_confined_release_whose_rights_are_gone_goes_with_its_namespace(stand_in: StandIn) -> None:
    uninstall(stand_in, FORBIDDEN, "service:deployer:ns")
    with pytest.raises(InstanceError, match="could not reach the cluster"):
        uninstall(stand_in, "Error: kubernetes cluster unreachable: x", "service:deployer:ns")


def test_without_the_program_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="install Helm") as caught:
        Helm(str(tmp_path / "nothing")).find_program()
    assert caught.value.reason == "HelmNotFound"
