"""The screen of the console's terminal, without a browser.

`terminal/vttest.json` has what vttest sends for its menus 1, 2, 3 and 8, and what the screen has to show after each
step: what tmux 3.3a shows (`"reference": "tmux"`), and where tmux does otherwise, what vttest itself says should be
there (letters in order at the margins, a line at the bottom, the characters for drawing lines, which tmux captures as
letters).
"""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "terminal"
STATIC = Path(__file__).parents[2] / "fairlead/console/static"
VTTEST: dict[str, list[dict[str, Any]]] = json.loads((FOLDER / "vttest.json").read_text())
BOLD, DIM, ITALIC, UNDERLINE, INVERSE, STRIKE = 1, 2, 4, 8, 16, 32
Step = bytes | str | tuple[int, int]
Feed = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def node(component: Callable[[str], Path]) -> Path:
    return component("node")


@pytest.fixture
def feed(node: Path) -> Feed:
    """Feeds a new screen with bytes or text, and changes of its size. Returns what it shows after the last one."""

    def run(*steps: Step, columns: int = 20, rows: int = 5, clipboard: bool = False) -> dict[str, Any]:
        encoded = [_encode(step) for step in steps]
        given = json.dumps({"columns": columns, "rows": rows, "clipboard": clipboard, "steps": encoded})
        command = [node, FOLDER / "screen_driver.mjs", STATIC]
        output = subprocess.run(command, input=given.encode(), stdout=subprocess.PIPE, check=True, timeout=20).stdout
        found: dict[str, Any] = json.loads(output)
        return {**found["results"][-1], **found["events"], "results": found["results"]}

    return run


def _encode(step: Step) -> dict[str, Any]:
    if isinstance(step, tuple):
        return {"resize": step}
    return {"bytes": base64.b64encode(step.encode() if isinstance(step, str) else step).decode()}


@pytest.mark.parametrize("menu", VTTEST)
def test_the_screens_of_vttest_are_shown_as_by_other_terminals(feed: Feed, menu: str) -> None:
    steps = VTTEST[menu]
    found = feed(*(base64.b64decode(step["bytes"]) for step in steps), columns=80, rows=24)["results"]
    for step, result in zip(steps, found, strict=True):
        lines = step["lines"] + [""] * (24 - len(step["lines"]))
        assert (result["lines"], result["cursor"]) == (lines, step["cursor"])


def test_the_result_does_not_depend_on_how_output_is_split(feed: Feed) -> None:
    output = "é漢字e\u0301\x1b[31;1mx\x1b]0;title\x1b\\\x1b[3;4Hß\x1b[0;4m😀".encode()
    whole = feed(output)
    parts = feed(*(output[index : index + 1] for index in range(len(output))))
    assert {**whole, "results": 0} == {**parts, "results": 0}
    assert whole["lines"][:3] == ["é漢字e\u0301x", "", "   ß😀"]
    assert whole["titles"] == ["title"]


@pytest.mark.parametrize(
    ("output", "fg", "bg", "flags"),
    [
        ("\x1b[1;3;4;7;9mx", None, None, BOLD | ITALIC | UNDERLINE | INVERSE | STRIKE),
        ("\x1b[1;2mA\x1b[22mx", None, None, 0),
        ("\x1b[31;44mx", 1, 4, 0),
        ("\x1b[91;104mx", 9, 12, 0),
        ("\x1b[38;5;208;48;2;1;2;255mx", 208, "#0102ff", 0),
        ("\x1b[38:2::1:2:3;48:5:7mx", "#010203", 7, 0),
        ("\x1b[38;5mx", None, None, 0),
        ("\x1b[38;2;300;0;0;1mx", None, None, BOLD),
        ("\x1b[4:3mA\x1b[4:0mx", None, None, 0),
        ("\x1b[31mA\x1b[mx", None, None, 0),
    ],
)
def test_colours_and_attributes(feed: Feed, output: str, fg: Any, bg: Any, flags: int) -> None:
    run = next(each for each in feed(output)["runs"] if "x" in each[0])
    assert run[1:4] == [fg, bg, flags]


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("漢" * 11, ["漢" * 10, "漢"]),
        ("a" * 19 + "漢", ["a" * 19, "漢"]),
        ("漢字\x1b[1;2Hx", [" x字"]),
        ("漢字\x1b[1;3Hx", ["漢x"]),
        ("漢字\x1b[1;1H\x1b[P", [" 字"]),
        ("abc\x1b[1;2H\x1b[4hX漢\x1b[4l", ["aX漢bc"]),
        ("ab\x1b[3b", ["abbbb"]),
        ("\x1b[2;3r\x1b[?6h\x1b[9;1Hx", ["", "", "x"]),
        ("\x1b[?7l" + "a" * 25 + "b", ["a" * 19 + "b"]),
        ("\x1b(0lqk\x1b(Bl\x0e\x1b)0q\x0fq", ["┌─┐l─q"]),
        ("a\tb\x1b[3g\x1b[1;5H\x1bH\r\tc", ["a   c   b"]),
        ("1\r\n2\r\n3\x1b[1;1H\x1b[2M", ["3"]),
        ("1\r\n2\x1b[1;1H\x1b[L", ["", "1", "2"]),
        ("abc\x1b7\x1b[3;3Hx\x1b8d", ["abcd", "", "  x"]),
        ("abc\x1b[1J", [""]),
        ("main\x1b[?1049h\x1b[Hother\x1b[?1049l!", ["main!"]),
        ("main\x1b[?1049h\x1b[Hother", ["other"]),
        ("abc\x1bcx", ["x"]),
        ("\x1b[?6h\x1b[2;3r\x1b[!p\x1b[Hx", ["x"]),
    ],
)
def test_sequences_change_the_screen(feed: Feed, output: str, lines: list[str]) -> None:
    assert feed(output)["lines"] == lines + [""] * (5 - len(lines))


@pytest.mark.parametrize(
    ("output", "reply"),
    [
        ("\x1b[c", "\x1b[?62;22c"),
        ("\x1b[>c", "\x1b[>1;10;0c"),
        ("\x1b[5n", "\x1b[0n"),
        ("\x1b[3;4H\x1b[6n", "\x1b[3;4R"),
        ("\x1b[2;4r\x1b[?6h\x1b[2;1H\x1b[6n", "\x1b[2;1R"),
        ("\x1b[18t", "\x1b[8;5;20t"),
    ],
)
def test_questions_are_answered(feed: Feed, output: str, reply: str) -> None:
    assert feed(output)["replies"] == [reply]


@pytest.mark.parametrize(
    "output",
    [
        "\x1b[21t",  # the title as if it were typed
        "\x1b]2;evil\x07\x1b[21t",
        "\x1b]52;c;?\x07",
        "\x1b]4;1;?\x07",
        "\x1bP$q m\x1b\\",
        "\x1bP1;1|17/abc\x1b\\",
        "\x1b_G\x1b\\",
        "\x1b^private\x1b\\",
        "\x1b[" + "1;" * 5000 + "m",
        "\x1b[" + "9" * 5000 + "C",
        "\x1b]0;" + "t" * 300_000 + "\x07",
        "\x1b[99999999b",
        "\x1b[6\x18",
    ],
)
def test_hostile_and_unknown_sequences_do_nothing(feed: Feed, output: str) -> None:
    found = feed(output)
    assert (found["replies"], found["lines"], found["copied"]) == ([], [""] * 5, [])
    assert all(len(title) <= 256 for title in found["titles"])


def test_controls_of_eight_bits_start_no_sequence(feed: Feed) -> None:
    found = feed("\x9b6n\x90q\x9c")
    assert (found["replies"], found["lines"][0]) == ([], "6nq")


def test_a_title_is_text_and_bounded(feed: Feed) -> None:
    assert feed("\x1b]2;" + "<b>\u202e" + "t" * 500 + "\x07")["titles"] == ["<b>" + "t" * 253]


def test_the_clipboard_is_written_only_if_the_user_allows_it(feed: Feed) -> None:
    output = "\x1b]52;c;aMOkbGxv\x07\x1b]52;c;?\x07\x1b]52;c;%%\x07"
    assert feed(output)["copied"] == []
    assert feed(output, clipboard=True)["copied"] == ["hällo"]


def test_only_https_links_are_kept(feed: Feed) -> None:
    links = "".join(f"\x1b]8;;{url}\x07x" for url in ("javascript:alert(1)", "http://a", "https://a/b"))
    assert [(run[0].strip(), run[4]) for run in feed(links)["runs"]][:2] == [("xx", ""), ("x", "https://a/b")]


def test_the_history_is_bounded(feed: Feed) -> None:
    found = feed("".join(f"{number}\r\n" for number in range(12_000)))
    assert 5000 <= len(found["history"]) <= 5500
    assert found["dropped"] + len(found["history"]) == 12_000 - 4
    assert found["history"][-1] == "11995"


def test_a_smaller_window_keeps_the_lines_at_the_cursor_and_a_larger_one_brings_the_others_back(feed: Feed) -> None:
    first, second = feed("1\r\n2\r\n3\r\n4\r\n5", (10, 2), (30, 5))["results"][1:]
    assert (first["lines"], first["history"], first["cursor"]) == (["4", "5"], ["1", "2", "3"], [1, 1])
    assert (second["lines"], second["history"], second["cursor"]) == (["1", "2", "3", "4", "5"], [], [1, 4])


def test_the_modes_of_keyboard_mouse_and_cursor_are_kept(feed: Feed) -> None:
    modes = feed("\x1b[?1;25;1002;1006;2004h\x1b=\x1b[?25l\x1b[5 q")
    assert modes["shape"] == 5
    names = ("applicationCursor", "applicationKeypad", "mouseDrags", "mouseSgr", "bracketedPaste", "showCursor")
    assert [modes["modes"][name] for name in names] == [True, True, True, True, True, False]
