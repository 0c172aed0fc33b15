"""Clones with `gitCloneStrategy`: the scripts of the engines, run with a real git."""

import subprocess
from pathlib import Path

import pytest

from fairlead.runner.engines.contract import EngineError, GitSource, Reason
from fairlead.runner.engines.devcontainer.settings import Settings
from fairlead.runner.engines.devcontainer.sources import SCRIPT, plan_fetch
from fairlead.runner.engines.kubernetes.scripts import CLONE
from fairlead.runner.engines.specification import CLONE_STRATEGIES, clone_options

each_strategy = pytest.mark.parametrize("strategy", CLONE_STRATEGIES)
each_engine = pytest.mark.parametrize("engine", ["devcontainer", "kubernetes"])


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits, each with another content of a file in a folder, on a server that allows partial clones."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowFilter", "true")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for number in (1, 2, 3):
        (folder / "src" / "file").write_text(f"content {number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", f"commit {number}")
    return folder


def clone(engine: str, repository: Path, strategy: str, commit: str = "") -> Path:
    """Runs the script of an engine, with its folders below that of the test. Returns the clone."""
    base = repository.parent
    settings = Settings(state_folder=base / "state", runner="r", allowed_folders=(base,))
    source = GitSource(f"file://{repository}", commit=commit)
    variables = {**plan_fetch(source, settings, {}, strategy).variables, "URL": f"file://{repository}"}
    if engine == "kubernetes":
        places = {"VOLUME": str(base), "PROJECT": "project", "TASK": "t", "HOME": str(base)}
        subprocess.run(["/bin/sh", "-c", CLONE], env={"PATH": "/usr/bin:/bin", **variables, **places}, check=True)
        return base / "work" / "project"
    work = base / "work"
    work.mkdir()
    script = SCRIPT.replace("/work", str(work)).replace('eval "$(cat)"', "")
    assert f"find {work} " in script
    subprocess.run(["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin", **variables, "HOME": str(base)}, check=True)
    return work


def count_present(folder: Path, kind: str) -> int:
    """The objects of a kind that the clone contains, without those that it would fetch."""
    listed = git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").splitlines()
    return listed.count(kind)


@each_engine
@each_strategy
def test_a_clone_has_the_newest_files_and_the_origin_of_the_source(
    repository: Path, engine: str, strategy: str
) -> None:
    folder = clone(engine, repository, strategy)
    assert (folder / "src" / "file").read_text() == "content 3\n"
    assert git(folder, "remote", "get-url", "origin") == f"file://{repository}"
    assert git(folder, "status", "--porcelain") == ""


@each_engine
@pytest.mark.parametrize(
    ("strategy", "commits", "blobs"), [("", 3, 3), ("blobless", 3, 1), ("treeless", 3, 1), ("shallow", 1, 1)]
)
def test_a_strategy_leaves_out_a_part_of_the_history(
    repository: Path, engine: str, strategy: str, commits: int, blobs: int
) -> None:
    folder = clone(engine, repository, strategy)
    assert (count_present(folder, "commit"), count_present(folder, "blob")) == (commits, blobs)


def test_a_treeless_clone_has_only_the_folders_of_the_newest_commit(repository: Path) -> None:
    assert count_present(clone("kubernetes", repository, "treeless"), "tree") == 2


@each_engine
@each_strategy
def test_an_older_commit_can_be_chosen(repository: Path, engine: str, strategy: str) -> None:
    older = git(repository, "rev-parse", "HEAD~1")
    folder = clone(engine, repository, strategy, older)
    assert git(folder, "rev-parse", "HEAD") == older
    assert (folder / "src" / "file").read_text() == "content 2\n"


@each_engine
def test_a_shallow_clone_with_a_shortened_commit_is_a_full_one(repository: Path, engine: str) -> None:
    folder = clone(engine, repository, "shallow", git(repository, "rev-parse", "--short=10", "HEAD~2"))
    assert (folder / "src" / "file").read_text() == "content 1\n"
    assert count_present(folder, "commit") == 3


@pytest.mark.parametrize("strategy", ["deep", "--upload-pack=id", "shallow --upload-pack=id"])
def test_an_unknown_strategy_is_refused(strategy: str) -> None:
    with pytest.raises(EngineError) as raised:
        clone_options(GitSource("https://example.com/x"), strategy)
    assert raised.value.reason == Reason.SOURCE_REFUSED
    assert "blobless, treeless, shallow" in raised.value.message
