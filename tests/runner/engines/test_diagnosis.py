"""What a machine lacks to run dev containers."""

import os
import shutil
from pathlib import Path

import pytest

from fairlead.core.machine.findings import Finding
from fairlead.runner.engines.contract import Limits
from fairlead.runner.engines.devcontainer import diagnosis
from fairlead.runner.engines.devcontainer.isolation import disk
from fairlead.runner.engines.devcontainer.settings import DiskLimits, Settings

PROGRAMS = ("podman", "git", "iptables", "ip", "nsenter", "setpriv", "runc", "devcontainer")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all programs that are needed, on a machine without faults."""
    for name in PROGRAMS:
        write(tmp_path / name, "exit 0")
    which = shutil.which
    monkeypatch.setattr(diagnosis, "PATH", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name, path: which(os.path.basename(name), path=path))
    write(tmp_path / "catatonit", "exit 0")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(diagnosis, "OLDEST_KERNEL", (1, 0))
    monkeypatch.setattr(diagnosis, "list_missing_controllers", lambda: [])
    monkeypatch.setattr(diagnosis, "find_loop_problem", lambda: "")
    monkeypatch.setattr(diagnosis, "find_limit_problem", lambda: "")
    monkeypatch.setattr(diagnosis, "CORE_PATTERN", tmp_path / "core_pattern")
    monkeypatch.setattr(diagnosis, "SUBORDINATE_IDS", (tmp_path / "subuid",))
    (tmp_path / "core_pattern").write_text("core\n")
    return tmp_path


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def find_problems(machine: Path, **changes: object) -> dict[str, Finding]:
    values = {"cli": (str(machine / "devcontainer"),), "min_free_bytes": 1, "name_servers": ("10.0.0.1",), **changes}
    settings = Settings(state_folder=machine / "state", runner="r", **values)  # type: ignore[arg-type]
    return {finding.subject: finding for finding in await diagnosis.diagnose(settings) if finding.problem}


async def test_a_machine_with_everything_has_no_problem(machine: Path) -> None:
    assert await find_problems(machine) == {}


async def test_a_machine_that_cannot_limit_disks_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "find_limit_problem", lambda: "there is no blkio")
    problems = await find_problems(machine)
    assert list(problems) == ["disk limits"]
    assert not problems["disk limits"].is_fatal and "disk_limits" in problems["disk limits"].remedy
    assert (
        problems["disk limits"].detail == "each workspace reads and writes at most 256Mi and 10000 operations a second"
    )
    assert await find_problems(machine, disk_limits=DiskLimits(0, 0)) == {}
    assert await find_problems(machine, workspace_disk_bytes=0) == {}


@pytest.mark.parametrize(
    ("program", "package"),
    [("podman", "podman"), ("git", "git"), ("iptables", "iptables"), ("ip", "iproute2"), ("catatonit", "catatonit")],
)
async def test_a_program_that_is_missing_is_named_with_its_package(machine: Path, program: str, package: str) -> None:
    (machine / program).unlink()
    problems = await find_problems(machine)
    assert list(problems) == [package]
    assert program in problems[package].problem and problems[package].remedy == f"apt-get install {package}"


async def test_a_package_with_two_programs_is_one_finding(machine: Path) -> None:
    settings = Settings(state_folder=machine / "state", runner="r", cli=(str(machine / "devcontainer"),))
    subjects = [finding.subject for finding in await diagnosis.diagnose(settings)]
    assert subjects.count("util-linux") == 1
    (machine / "nsenter").unlink()
    (machine / "setpriv").unlink()
    assert (await find_problems(machine))["util-linux"].problem == "there is no nsenter and no setpriv"


async def test_a_machine_without_a_runtime_of_containers_cannot_run_them(machine: Path) -> None:
    (machine / "runc").unlink()
    assert "there is neither crun nor runc" in [each.problem for each in (await find_problems(machine)).values()]
    write(machine / "crun", "exit 0")
    assert await find_problems(machine) == {}


async def test_a_user_without_rights_reads_what_to_do(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert list(await find_problems(machine)) == ["permissions"]


async def test_an_old_kernel_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "OLDEST_KERNEL", (99, 1))
    problems = await find_problems(machine)
    assert f"the kernel {os.uname().release} is older than 99.1" in problems["kernel"].problem


async def test_limits_that_the_kernel_cannot_set_are_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "list_missing_controllers", lambda: ["memory", "pids"])
    problems = await find_problems(machine)
    assert problems["control groups"].problem == "the machine has no control groups for memory, pids"
    assert problems["control groups"].is_fatal


async def test_a_full_disk_and_missing_name_servers_do_not_keep_a_runner_from_starting(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "find_name_servers", lambda settings: [])
    problems = await find_problems(machine, min_free_bytes=1 << 62)
    assert {name: finding.is_fatal for name, finding in problems.items()} == {"disk": False, "name servers": False}


async def test_a_machine_without_loop_devices_says_what_to_do(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "LOOP_CONTROL", str(machine / "missing"))
    monkeypatch.setattr(diagnosis, "find_loop_problem", disk.find_loop_problem)
    finding = (await find_problems(machine))["disks of workspaces"]
    assert "No such file or directory" in finding.problem and "missing" in finding.problem
    assert "--workspace-disk 0" in finding.remedy and not finding.is_fatal
    assert await find_problems(machine, workspace_disk_bytes=0) == {}


async def test_a_machine_without_mkfs_says_what_to_install(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "PATH", str(machine))
    monkeypatch.setattr(diagnosis, "find_loop_problem", disk.find_loop_problem)
    finding = (await find_problems(machine))["disks of workspaces"]
    assert (finding.problem, "e2fsprogs" in finding.remedy) == ("there is no mkfs.ext4", True)


async def test_an_old_node_is_named(machine: Path) -> None:
    write(machine / "node", "echo v18.20.1")
    cli = (str(machine / "node"), str(machine / "devcontainer"))
    problems = await find_problems(machine, cli=cli)
    assert problems["devcontainer"].problem == "Node.js 18 is too old"
    write(machine / "node", "echo v22.1.0")
    assert await find_problems(machine, cli=cli) == {}


async def test_a_cli_that_does_not_run_says_why(machine: Path) -> None:
    write(machine / "devcontainer", "echo something is broken >&2; exit 1")
    assert (await find_problems(machine))["devcontainer"].problem == "something is broken"


async def test_a_handler_of_crashes_that_root_would_run_is_a_problem(machine: Path) -> None:
    (machine / "core_pattern").write_text("|/usr/share/apport/apport -p%p -s%s\n")
    found = (await find_problems(machine))["crash handler"]
    assert not found.is_fatal and "has root run /usr/share/apport/apport," in found.problem
    assert "kernel.core_pattern=core" in found.remedy


@pytest.mark.parametrize(
    ("line", "is_problem"),
    [
        ("ada:1000000000:65536", True),
        ("ada:1268435455:1", True),
        ("ada:1268435456:65536", False),
        ("ada:100000:65536", False),
    ],
)
async def test_ids_that_users_of_the_machine_have_are_named(machine: Path, line: str, is_problem: bool) -> None:
    (machine / "subuid").write_text(f"# comment\n{line}\nbroken:x:y\n")
    found = (await find_problems(machine)).get("user ids and networks")
    assert (found is not None) == is_problem
    if found is not None:
        assert f"ada in {machine / 'subuid'}" in found.problem and not found.is_fatal and "--config" in found.remedy


async def test_a_network_of_the_machine_that_workspaces_would_have_is_named(machine: Path) -> None:
    routes = (
        "default via 192.0.2.1 dev eth0",
        "10.213.16.0/20 dev tun0 scope link",
        "10.213.0.0/28 dev flwv3b9a proto kernel",
        "broadcast 10.213.0.15 dev flwv3b9a",
    )
    write(machine / "ip", "\n".join(f"echo '{each}'" for each in routes))
    problems = await find_problems(machine)
    assert "the route 10.213.16.0/20 dev tun0 scope link" in problems["user ids and networks"].problem
    assert "flwv" not in problems["user ids and networks"].problem


async def test_what_the_operator_chose_is_shown(machine: Path) -> None:
    settings = Settings(
        state_folder=machine / "state",
        runner="r",
        cli=(str(machine / "devcontainer"),),
        name_servers=("10.0.0.1",),
        feature_sources=("registry.example.com/features",),
        refused_networks=("10.0.0.0/8",),
        max_limits=Limits(memory_bytes=8 << 30, cpus=1.5),
    )
    shown = {finding.subject: finding.detail for finding in await diagnosis.diagnose(settings)}
    assert shown["user ids and networks"] == "1000000000 to 1268435455, and 10.213.0.0/16, for 4096 workspaces"
    assert shown["limits of templates"] == "at most memory 8Gi, cpus 1.5"
    assert shown["features"] == "from registry.example.com/features"
    assert shown["refused networks"] == "10.0.0.0/8"
