"""scripts/prepare_release.py: what keeps a commit from being released, and the files of a release."""

import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from fairlead import __version__
from scripts.prepare_release import find_problems, read_notes, read_version, write_digests
from tests.scripts.test_dist import ROOT

TODAY = date(2026, 3, 1)
CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-03-01

### Added

- Something.

## [1.1.0] - 2026-01-01

- The first one.
"""
CHART = "apiVersion: v2\nname: fairlead\nversion: 1.2.0\nappVersion: 1.2.0\n"


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a commit", "--allow-empty")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A commit that can be released."""
    files = {
        "fairlead/__init__.py": '__version__ = "1.2.0"\n',
        "CHANGELOG.md": CHANGELOG,
        "deploy/chart/Chart.yaml": CHART,
        "deploy/agent-chart/Chart.yaml": CHART,
        "tests/upgrade/fixtures/1.2.0.tar.gz": "data",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def replace_in(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return change


def remove_fixture(root: Path) -> None:
    (root / "tests/upgrade/fixtures/1.2.0.tar.gz").unlink()


def test_a_commit_with_everything_can_be_released(tree: Path) -> None:
    assert find_problems(tree, read_version(tree), TODAY) == []
    git(tree, "tag", "v1.2.0")
    assert find_problems(tree, "1.2.0", TODAY) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (replace_in("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n- New.\n"), 'entries under "Unreleased"'),
        (replace_in("CHANGELOG.md", "[1.2.0] - 2026-03-01", "[1.2.0]"), "has no date"),
        (replace_in("CHANGELOG.md", "[1.2.0] - 2026-03-01", "[1.2.0] - soon"), "has no date"),
        (replace_in("CHANGELOG.md", "[1.2.0] - 2026-03-01", "[1.2.0] - 2026-03-02"), "in the future"),
        (replace_in("CHANGELOG.md", "[1.2.0]", "[1.3.0]"), 'does not begin with the sections "Unreleased" and "1.2.0"'),
        (replace_in("deploy/chart/Chart.yaml", "\nversion: 1.2.0", "\nversion: 1.2.1"), "version of deploy/chart"),
        (replace_in("deploy/chart/Chart.yaml", "appVersion: 1.2.0", "appVersion: 1.1.0"), "appVersion of deploy/chart"),
        (replace_in("deploy/agent-chart/Chart.yaml", "\nversion: 1.2.0", "\nversion: 1.1.0"), "of deploy/agent-chart"),
        (remove_fixture, "python -m tests.upgrade.make_fixture 1.2.0"),
    ],
)
def test_what_is_missing_is_named(tree: Path, change: Callable[[Path], None], expected: str) -> None:
    change(tree)
    commit(tree)
    (problem,) = find_problems(tree, "1.2.0", TODAY)
    assert expected in problem


def test_changes_that_are_not_committed_are_not_released(tree: Path) -> None:
    (tree / "new").write_text("")
    (problem,) = find_problems(tree, "1.2.0", TODAY)
    assert "git status" in problem


def test_a_version_is_released_once(tree: Path) -> None:
    git(tree, "tag", "v1.2.0")
    commit(tree)
    (problem,) = find_problems(tree, "1.2.0", TODAY)
    assert "the tag v1.2.0 is that of another commit" in problem


def test_the_notes_are_the_section_of_the_changelog() -> None:
    assert read_notes(CHANGELOG, "1.2.0") == "### Added\n\n- Something.\n"
    assert read_notes(CHANGELOG, "1.1.0") == "- The first one.\n"
    assert len(read_notes((ROOT / "CHANGELOG.md").read_text(), __version__)) > 1000


def test_the_digests_are_those_of_the_files(tmp_path: Path) -> None:
    for name in ("fairlead-1.2.0.tar.gz", "fairlead-1.2.0-py3-none-any.whl", "RELEASE.md", "other"):
        (tmp_path / name).write_text(name)
    write_digests(tmp_path, "1.2.0")
    assert len((tmp_path / "SHA256SUMS").read_text().splitlines()) == 3
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
