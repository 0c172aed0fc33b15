"""The steps of a task while it runs, on stderr: one line for each, with its time.

A line is printed when its step has ended. On a terminal, the current step is below them, with a spinner and the last
line of the log.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.cli.ui.output import escape_control, print_note

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NAME_WIDTH = 18


@dataclass(slots=True)
class StepDisplay:
    """The current step, if there is one, with the time when it began."""

    print_line: Callable[[str], None]
    step: str = ""
    began: float = 0.0
    message: str = ""

    def begin(self, step: str) -> None:
        """A step begins. One that has not ended is over: the runner was restarted in it."""
        if step == self.step:
            return
        if self.step:
            self.end(self.step, time.monotonic() - self.began)
        self.step, self.began, self.message = step, time.monotonic(), ""

    def end(self, step: str, seconds: float) -> None:
        self.step = ""
        self.print_line(format_step(step, format_seconds(seconds)))

    def fail(self) -> None:
        """The current step has failed."""
        step, self.step = self.step, ""
        if step:
            self.print_line(format_step(step, f"failed after {format_seconds(time.monotonic() - self.began)}"))


@contextmanager
def show_steps() -> Iterator[StepDisplay]:
    if not sys.stderr.isatty():
        yield StepDisplay(print_note)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    display = StepDisplay(lambda line: console.print(Text(escape_control(line)), soft_wrap=True))
    spinner = Spinner("dots")

    def render() -> Spinner | str:
        """Called by a thread of rich, several times a second."""
        spinner.update(text=_describe_current(display, console))
        return spinner if display.step else ""

    with Live(console=console, transient=True, refresh_per_second=8, get_renderable=render):
        yield display


def format_step(step: str, state: str) -> str:
    return f"  {step:{NAME_WIDTH}} {state}"


def format_seconds(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:02.0f}s" if minutes else f"{rest:.1f}s"


def _describe_current(display: StepDisplay, console: "Console") -> "Text":
    from rich.text import Text

    line = Text(format_step(display.step, format_seconds(time.monotonic() - display.began)).strip())
    line.append(f"  {escape_control(display.message)}", "dim")
    line.truncate(max(20, console.width - 3), overflow="ellipsis")
    return line
