"""What is installed is what was locked: the locks fit pyproject.toml, name no server, and have all digests."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"
PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ;]+)(?P<marker> ;[^\\]*)? \\")
DIGEST = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?>=(?P<least>[0-9.]+)")


def pins(lock: str) -> dict[str, str]:
    lines = (LOCKS / f"{lock}.lock").read_text().splitlines()
    return {found["name"]: found["version"] for line in lines if (found := PIN.fullmatch(line))}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def wanted() -> dict[str, list[str]]:
    """By lock: what pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    return {"runtime": runtime, "test": [*runtime, *project["project"]["optional-dependencies"]["test"]]}


@pytest.mark.parametrize("lock", ["runtime", "test"])
def test_a_lock_has_everything_that_the_project_asks_for(lock: str) -> None:
    locked = pins(lock)
    for requirement in wanted()[lock]:
        found = REQUIREMENT.fullmatch(requirement)
        assert found is not None, f"{requirement}: the test understands only name>=version"
        name = normalized(found["name"])
        assert name in locked, f"{name} is not in {lock}.lock; run: make lock"
        assert numbers(locked[name]) >= numbers(found["least"]), f"{lock}.lock has an old {name}; run: make lock"


def test_tests_run_with_what_the_server_runs_with() -> None:
    runtime, test = pins("runtime"), pins("test")
    assert runtime.items() <= test.items()


@pytest.mark.parametrize("lock", ["runtime", "test", "audit"])
def test_every_line_of_a_lock_is_a_version_or_a_digest(lock: str) -> None:
    header, *lines = (LOCKS / f"{lock}.lock").read_text().splitlines()
    assert header.startswith("# Written by scripts/lock.sh")
    for line in lines:
        assert PIN.fullmatch(line) or DIGEST.fullmatch(line), f"{lock}.lock: {line}"
    starts = [number for number, line in enumerate(lines) if PIN.fullmatch(line)]
    assert starts and all(DIGEST.fullmatch(lines[number + 1]) for number in starts)


def test_this_environment_has_the_locked_versions() -> None:
    if f"{sys.version_info.major}.{sys.version_info.minor}" not in locked_for():
        return  # another version of Python gets the newest of everything, as setup-venv.sh says
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    have = {normalized(name): version for name, _, version in (line.partition("==") for line in shown.stdout.split())}
    differs = {name for name, version in pins("test").items() if have.get(name, version) != version}
    assert differs == set(), "run: make check, which installs what is locked"


def locked_for() -> list[str]:
    script = (ROOT / "scripts" / "setup-venv.sh").read_text()
    found = re.search(r'^LOCKED="([0-9. ]+)"$', script, re.MULTILINE)
    assert found is not None
    return found[1].split()


def test_the_locks_are_for_every_version_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert locked_for() == named
