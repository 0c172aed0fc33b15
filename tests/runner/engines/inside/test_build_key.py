"""What the result of a build depends on, and what it does not."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.runner.engines.devcontainer.inside.build_key import (
    KEY_LENGTH,
    Build,
    compute_key,
    explain_difference,
    used_files,
)

SOURCES = ("app/*.txt", "tools")
ALL = ["app", "app/a.txt", "app/b.bin", "src", "src/main.py", "tools", "tools/deep", "tools/deep/er"]


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name in ("app/a.txt", "app/b.bin", "tools/deep/er", "src/main.py"):
        (tmp_path / "context" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "context" / name).write_text(name)
    return tmp_path / "context"


def make_build(context: Path) -> Build:
    return Build(str(context.parent / "Dockerfile"), str(context), ["localhost/x"], {"WORD": "a"})


def key(
    context: Path,
    sources: Sequence[str] | None = SOURCES,
    text: str = "FROM debian\n",
    images: Sequence[str] = ("sha256:1",),
    **changes: object,
) -> str:
    build = replace(make_build(context), **changes)  # type: ignore[arg-type]
    return compute_key(build, text, sources, images)


@pytest.mark.parametrize(
    ("sources", "used"),
    [
        ([], []),
        (SOURCES, ["app/a.txt", "tools", "tools/deep", "tools/deep/er"]),
        (["./src"], ["src", "src/main.py"]),
        (["/src/"], ["src", "src/main.py"]),
        (["a*"], ["app", "app/a.txt", "app/b.bin"]),
        (["*/*.??n"], ["app/b.bin"]),
        (["app/a.txt", "missing"], ["app/a.txt"]),
        *((each, ALL) for each in ([], ["."], ["/"], ["src", "."]) if each),
        (["a/../src"], ALL),
        (None, ALL),
    ],
)
def test_only_the_files_count_that_the_dockerfile_copies(
    context: Path, sources: list[str] | None, used: list[str]
) -> None:
    assert sorted(used_files(make_build(context), sources)) == used


def test_unrelated_files_and_times_do_not_change_the_key(context: Path) -> None:
    before = key(context)
    (context / "src/main.py").write_text("other")
    (context / "README").write_text("new")
    os.utime(context / "app/a.txt", (0, 0))
    assert key(context) == before
    assert key(context, tags=["localhost/other"]) == before


def test_everything_that_is_used_changes_the_key(context: Path) -> None:
    keys = [
        key(context),
        key(context, text="FROM debian\nRUN make\n"),
        key(context, images=("sha256:2",)),
        key(context, images=("sha256:1", "sha256:2")),
        key(context, images=("sha256:2", "sha256:1")),
        key(context, arguments={"WORD": "b"}),
        key(context, arguments={"WORD": "a", "OTHER": ""}),
        key(context, arguments={}),
        key(context, options=["--target=x"]),
        key(context, options=["--label=x"]),
    ]
    (context / "tools/deep/er").chmod(0o755)
    keys.append(key(context))
    (context / "tools/deep/er").write_text("other")
    keys.append(key(context))
    (context / "tools/new").touch()
    keys.append(key(context))
    (context / "tools/new").rename(context / "tools/renamed")
    keys.append(key(context))
    assert len(set(keys)) == len(keys)


def test_an_empty_folder_and_its_permissions_change_the_key(context: Path) -> None:
    keys = [key(context)]
    (context / "tools/empty").mkdir()
    keys.append(key(context))
    (context / "tools/empty").chmod(0o700)
    keys.append(key(context))
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    "name",
    ["context/.dockerignore", "context/.containerignore", "Dockerfile.dockerignore", "Dockerfile.containerignore"],
)
def test_the_list_of_files_that_are_left_out_changes_the_key(context: Path, name: str) -> None:
    before = key(context)
    (context.parent / name).write_text("app\n")
    first = key(context)
    (context.parent / name).write_text("tools\n")
    assert len({before, first, key(context)}) == 3


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


@pytest.mark.parametrize("source", ["lib/x", "lib", "l*/x"])
def test_a_link_above_a_file_that_is_copied_makes_all_files_count(context: Path, source: str) -> None:
    (context / "lib").symlink_to("src")
    before = key(context, [source])
    (context / "src/main.py").write_text("other")
    assert key(context, [source]) != before


def test_a_link_elsewhere_does_not_count(context: Path) -> None:
    (context / "lib").symlink_to("src")
    before = key(context)
    (context / "src/main.py").write_text("other")
    assert key(context) == before


def test_a_pipe_does_not_block(context: Path) -> None:
    before = key(context)
    os.mkfifo(context / "tools/pipe")
    assert key(context) != before


def test_the_difference_to_the_most_similar_key_is_said(context: Path) -> None:
    same = key(context)
    text = key(context, text="FROM debian\nRUN make\n")
    both = key(context, text="FROM debian\nRUN make\n", images=("sha256:2",))
    assert len({len(each) for each in (same, text, both)} | {KEY_LENGTH}) == 1
    assert explain_difference(same, []) == "none was kept before, for a workspace of this repository"
    assert explain_difference(same, [both, text]).endswith("differs in the Dockerfile")
    assert explain_difference(same, [both]).endswith("the Dockerfile, the images that it begins with")
    assert explain_difference(key(context, arguments={"WORD": "b"}), [same]).endswith("differs in build arguments")
    (context / "app/a.txt").write_text("changed")
    assert explain_difference(key(context), [same]).endswith("differs in files that it copies")
