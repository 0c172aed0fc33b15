"""A log of 20,000 lines in the pages of pods and workspaces: what it must look like, and how fast it scrolls."""

from tests.console.browser import Page
from tests.console.scrolling import MAX_FRAME_SECONDS, measure_scrolling

LINES = 20_000


def line_of(number: int) -> str:
    return f"\x1b[32mline\x1b[0m {number}"


def check_long_log(page: Page) -> None:
    """The page shows a log of `LINES` lines, and follows it."""
    page.wait_for_text("20,000 lines", ".log-bar")
    page.wait_until(lambda: f"line {LINES - 1}" in page.texts(".log-line"), "it follows to the last line")
    height = page.eval("document.querySelector('.log-view').clientHeight")
    assert 240 <= height <= page.eval("innerHeight")
    assert page.eval("document.querySelector('main').scrollHeight") <= 2 * page.eval("innerHeight")
    assert page.count(".log-line") <= height / 18 + 12
    assert measure_scrolling(page, ".log-view", 7919) <= MAX_FRAME_SECONDS
    page.eval("document.querySelector('.log-view').scrollTop = 18 * 10000")
    page.wait_for_text("line 10001", ".log-view")
    assert page.eval("document.querySelector('.log-bar input[type=checkbox]').checked") is False
    page.fill("Filter lines", "line 1999")
    page.wait_for_text("11 of 20,000", ".log-bar")
    page.fill("Filter lines", "")
    page.check("Follow")
    page.wait_until(lambda: f"line {LINES - 1}" in page.texts(".log-line"), "it follows again")
