"""What the result of a build depends on, and what it does not."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.build_key import compute_key, used_files
from fairlead.runner.engines.devcontainer.command_lines import Build
from fairlead.runner.engines.devcontainer.dockerfile import check_dockerfile
from tests.runner.harness.grants import UID

DOCKERFILE = "FROM debian\nCOPY app/*.txt tools /opt/\n"


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name in ("app/a.txt", "app/b.bin", "tools/deep/er", "src/main.py", ".dockerignore"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def make_build(context: Path) -> Build:
    return Build(str(context / "Dockerfile"), str(context), ("localhost/x",), {"WORD": "a"}, (), False)


def key(context: Path, text: str = DOCKERFILE, images: tuple[str, ...] = ("sha256:1",), **changes: object) -> str:
    build = replace(make_build(context), **changes)  # type: ignore[arg-type]
    return compute_key(build, text, check_dockerfile(text, {}, UID, ()).sources, images)


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("FROM debian\nRUN make\n", []),
        (DOCKERFILE, [".dockerignore", "app/a.txt", "tools/deep/er"]),
        ('FROM debian\nADD ["./src", "/x"]\n', [".dockerignore", "src/main.py"]),
        ("FROM debian AS b\nFROM debian\nCOPY --from=b /x /y\n", []),
        ("FROM debian\nCOPY . /x\n", [".dockerignore", "app/a.txt", "app/b.bin", "src/main.py", "tools/deep/er"]),
        ("FROM debian\nCOPY $D /x\n", [".dockerignore", "app/a.txt", "app/b.bin", "src/main.py", "tools/deep/er"]),
        (
            "FROM debian\nCOPY a/../src /x\n",
            [".dockerignore", "app/a.txt", "app/b.bin", "src/main.py", "tools/deep/er"],
        ),
    ],
)
def test_only_the_files_count_that_the_dockerfile_copies(context: Path, text: str, used: list[str]) -> None:
    assert sorted(used_files(make_build(context), check_dockerfile(text, {}, UID, ()).sources)) == used


def test_unrelated_files_and_times_do_not_change_the_key(context: Path) -> None:
    before = key(context)
    (context / "src/main.py").write_text("other")
    (context / "README").write_text("new")
    (context / "app/a.txt").touch()
    assert key(context) == before
    assert key(context, tags=("localhost/other",)) == before


def test_everything_that_is_used_changes_the_key(context: Path) -> None:
    keys = [
        key(context),
        key(context, text=DOCKERFILE + "RUN make\n"),
        key(context, images=("sha256:2",)),
        key(context, arguments={"WORD": "b"}),
        key(context, options=("--target=x",)),
        key(context, options=("--platform=linux/arm64",)),
    ]
    (context / "tools/deep/er").chmod(0o755)
    keys.append(key(context))
    (context / "tools/deep/er").write_text("other")
    keys.append(key(context))
    (context / "tools/new").touch()
    keys.append(key(context))
    assert len(set(keys)) == len(keys)


def test_the_machine_is_part_of_the_key(context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Uname:
        machine = "another"

    before = key(context)
    monkeypatch.setattr("os.uname", Uname)
    assert key(context) != before


def test_a_link_is_not_followed_and_makes_all_files_count(context: Path) -> None:
    (context / "tools/link").symlink_to("/etc/shadow")
    before = key(context)
    (context / "tools/link").unlink()
    (context / "tools/link").symlink_to("/etc/passwd")
    linked = key(context)
    (context / "src/main.py").write_text("other")
    assert len({before, linked, key(context)}) == 3


@pytest.mark.parametrize("source", ["lib/x", "lib"])
def test_a_link_above_a_file_that_is_copied_makes_all_files_count(context: Path, source: str) -> None:
    (context / "lib").symlink_to("src")
    before = key(context, text=f"FROM debian\nCOPY {source} /y\n")
    (context / "src/main.py").write_text("other")
    assert key(context, text=f"FROM debian\nCOPY {source} /y\n") != before


def test_a_pipe_does_not_block(context: Path) -> None:
    before = key(context)
    os.mkfifo(context / "tools/pipe")
    assert key(context) != before
