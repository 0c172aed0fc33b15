"""fairlead.cli.workspaces.running: one line for each step, live on a terminal."""

import re

import pytest

from fairlead.cli.workspaces.running import StepDisplay, format_seconds
from tests.cli.test_first_hour import run_on_terminal
from tests.cli.workspaces.log_responses import DEV, FLAGS, build_log
from tests.harness.cli import CliFixture


def test_steps_are_printed_when_they_end() -> None:
    lines: list[str] = []
    display = StepDisplay(lines.append)
    display.begin("Clone")
    display.begin("Clone")
    assert lines == []
    display.end("Clone", 1.25)
    display.fail()
    display.begin("Build")
    display.begin("Start")
    display.fail()
    assert lines[0] == "  Clone              1.2s"
    assert [re.sub(r"\d", "0", line) for line in lines[1:]] == [
        "  Build              0.0s",
        "  Start              failed after 0.0s",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0s"), (59.9, "59.9s"), (61.0, "1m01s"), (3600.0, "60m00s")])
def test_long_times_have_minutes(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_terminal_shows_finished_steps_above_the_current_one(ada: CliFixture) -> None:
    lines = ("step Clone", "step Clone took 0.5 s", "step Build", "compiling \x1b[31mred", "step Build took 2.0 s")
    ada.fake.on("GET", f"{DEV}/log", build_log(*lines))
    shown = run_on_terminal(ada, "workspace", "up", *FLAGS)
    assert shown.startswith("\x1b[?25l")  # no cursor beside the spinner
    plain = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", shown)
    places = [plain.index(each) for each in ("  Clone              0.5s", "  Build              2.0s", "is running")]
    assert places == sorted(places)
    assert "\x1b[31m" not in shown
