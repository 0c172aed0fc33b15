"""The locks of dependencies: they match what is wanted, name no server, and have a digest for every file."""

import json
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
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?>=(?P<minimum>[0-9.]+)(,<[0-9.]+)?")


def read_pins(lock: str) -> dict[str, str]:
    lines = (LOCKS / f"{lock}.lock").read_text().splitlines()
    return {match["name"]: match["version"] for line in lines if (match := PIN.fullmatch(line))}


def normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def read_requirements() -> dict[str, list[str]]:
    """The requirements of pyproject.toml, by lock."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras, build = project["project"]["optional-dependencies"], project["build-system"]["requires"]
    runtime = [*project["project"]["dependencies"], *extras["postgres"], *extras["etcd"]]
    return {"runtime": runtime, "build": build, "test": [*runtime, *build, *extras["test"]]}


@pytest.mark.parametrize("lock", ["runtime", "build", "test"])
def test_a_lock_has_every_requirement_of_the_project(lock: str) -> None:
    locked = read_pins(lock)
    for requirement in read_requirements()[lock]:
        match = REQUIREMENT.fullmatch(requirement)
        assert match is not None, f"{requirement}: the test understands only name>=version and name>=version,<version"
        name = normalize_name(match["name"])
        assert name in locked, f"{name} is not in {lock}.lock; run: make lock"
        assert parse_version(locked[name]) >= parse_version(match["minimum"]), (
            f"{lock}.lock has an old {name}; run: make lock"
        )


@pytest.mark.parametrize("lock", ["runtime", "build"])
def test_the_test_lock_contains_the_other_locks_of_an_installation(lock: str) -> None:
    assert read_pins(lock).items() <= read_pins("test").items()


def test_the_runtime_lock_has_nothing_that_only_builds_the_package() -> None:
    assert "hatchling" in read_pins("build") and "hatchling" not in read_pins("runtime")


@pytest.mark.parametrize("lock", ["runtime", "build", "test", "audit", "sbom"])
def test_every_line_of_a_lock_is_a_version_or_a_digest(lock: str) -> None:
    header, *lines = (LOCKS / f"{lock}.lock").read_text().splitlines()
    assert header.startswith("# Written by scripts/lock.sh")
    for line in lines:
        assert PIN.fullmatch(line) or DIGEST.fullmatch(line), f"{lock}.lock: {line}"
    starts = [number for number, line in enumerate(lines) if PIN.fullmatch(line)]
    assert starts and all(DIGEST.fullmatch(lines[number + 1]) for number in starts)


def test_this_environment_has_the_locked_versions() -> None:
    if f"{sys.version_info.major}.{sys.version_info.minor}" not in read_locked_python_versions():
        return  # another version of Python gets the newest of everything, as setup-venv.sh says
    result = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    installed = {
        normalize_name(name): version for name, _, version in (line.partition("==") for line in result.stdout.split())
    }
    different = {name for name, version in read_pins("test").items() if installed.get(name, version) != version}
    assert different == set(), "run: make check, which installs the locked versions"


def read_locked_python_versions() -> list[str]:
    script = (ROOT / "scripts" / "setup-venv.sh").read_text()
    match = re.search(r'^LOCKED="([0-9. ]+)"$', script, re.MULTILINE)
    assert match is not None
    return match[1].split()


def test_the_locks_cover_every_python_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [
        classifier.rpartition(" ")[2] for classifier in project["classifiers"] if re.search(r":: 3\.\d+$", classifier)
    ]
    assert read_locked_python_versions() == versions


@pytest.mark.parametrize("folder", ["scripts/console", "tests/sso/providers/npm"])
def test_locks_of_npm_match_their_packages_and_name_no_server(folder: str) -> None:
    wanted = json.loads((ROOT / folder / "package.json").read_text())
    lock = json.loads((ROOT / folder / "package-lock.json").read_text())
    root, *installed = lock["packages"].values()
    for kind in ("dependencies", "devDependencies"):
        assert root.get(kind) == wanted.get(kind)
        assert all(re.fullmatch(r"[0-9.]+", version) for version in wanted.get(kind, {}).values())
    assert installed
    for package in installed:
        assert "resolved" not in package
        assert package["integrity"].startswith("sha512-")
        for name in package.get("optionalDependencies", {}):
            assert f"node_modules/{name}" in lock["packages"], "the lock lacks a package for another platform"
