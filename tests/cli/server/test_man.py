"""`fairlead man`: a page for each command, which groff formats without a warning."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.cli import COMMANDS
from fairlead.cli.server.man import build_pages, escape
from tests.cli.test_docs import ALL, get_long_flags
from tests.harness.cli import CliFixture


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("man1")
    for name, text in build_pages():
        (folder / name).write_text(text, encoding="utf-8")
    return {path.name: path for path in folder.iterdir()}


def format_pages(groff: Path, *pages: Path) -> str:
    """The pages as plain text, as `man` shows them."""
    command = [str(groff), "-man", "-ww", "-Kutf8", "-Tutf8", "-rLL=100n", "-P-cbou", *map(str, pages)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_there_is_a_page_for_each_command_and_an_overview(pages: dict[str, Path]) -> None:
    assert set(pages) == {"fairlead.1", *(f"fairlead-{entry.name}.1" for entry in COMMANDS)}
    for entry in COMMANDS:
        assert rf".BR fairlead\-{entry.name.replace('-', chr(92) + '-')} (1)" in pages["fairlead.1"].read_text()


def test_groff_formats_every_page_without_a_warning(pages: dict[str, Path], component: Callable[[str], Path]) -> None:
    text = format_pages(component("groff"), *sorted(pages.values()))
    assert "FAIRLEAD-CLUSTER(1)" in text
    for name in ("NAME", "SYNOPSIS", "DESCRIPTION"):
        assert text.count(f"\n{name}\n") == len(pages)


def test_a_page_has_all_flags_and_the_examples_of_its_commands(
    pages: dict[str, Path], component: Callable[[str], Path]
) -> None:
    for name in ("cluster", "key", "login"):
        text = format_pages(component("groff"), pages[f"fairlead-{name}.1"])
        for path, command in ALL.items():
            if path[0] == name and not command.hidden:
                assert f"fairlead {' '.join(path)}" in text
                assert [flag for flag in get_long_flags(command) if flag not in text] == []
    assert "fairlead cluster add berlin --kube-context berlin-admin" in format_pages(
        component("groff"), pages["fairlead-cluster.1"]
    )


def test_a_wrong_page_is_noticed(tmp_path: Path, component: Callable[[str], Path]) -> None:
    page = tmp_path / "wrong.1"
    page.write_text(".TH X 1\n.SH NAME\nx \\- y\n.UNKNOWN macro\n")
    with pytest.raises(AssertionError):
        format_pages(component("groff"), page)


@pytest.mark.parametrize(
    ("text", "is_literal", "expected"),
    [
        (".profile", False, r"\&.profile"),
        ("it's", False, r"it\(aqs"),
        (r"a\n", True, r"a\(rsn"),
        ("--flag", True, r"\-\-flag"),
        ("run `a --b`", False, r"run \fBa \-\-b\fR"),
    ],
)
def test_text_is_escaped_for_roff(text: str, is_literal: bool, expected: str) -> None:
    assert escape(text, is_literal=is_literal) == expected


def test_the_command_writes_into_a_folder_that_need_not_exist(user: CliFixture) -> None:
    folder = user.home / "share" / "man1"
    assert user.run("man", str(folder)).code == 0
    assert (folder / "fairlead-cluster.1").read_text().startswith(".TH FAIRLEAD")
    assert user.run("man").code == 2
