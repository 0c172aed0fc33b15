"""A log of 20,000 lines in the pages of pods and workspaces: what it must look like, and how fast it scrolls."""

from tests.console.browser import Page

LINES = 20_000
FRAMES = 100
MAX_FRAME_SECONDS = 1 / 50
"""Of the processor, for each frame: so 50 frames a second are shown wherever a browser has a processor for itself. The
time on the clock depends on the other tests."""
SCROLL = """(async () => {
  const view = document.querySelector(".log-view");
  const frame = () => new Promise(requestAnimationFrame);
  for (let each = 0; each < %d; each++) {
    view.scrollTop = (each * 7919) %% view.scrollHeight;
    await frame();
  }
})()"""


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
    assert measure_scrolling(page) <= MAX_FRAME_SECONDS
    page.eval("document.querySelector('.log-view').scrollTop = 18 * 10000")
    page.wait_for_text("line 10001", ".log-view")
    assert page.eval("document.querySelector('.log-bar input[type=checkbox]').checked") is False
    page.fill("Filter lines", "line 1999")
    page.wait_for_text("11 of 20,000", ".log-bar")
    page.fill("Filter lines", "")
    page.check("Follow")
    page.wait_until(lambda: f"line {LINES - 1}" in page.texts(".log-line"), "it follows again")


def measure_scrolling(page: Page) -> float:
    """The seconds of processor time that the page needs for one frame while it is scrolled by pages."""
    page.send("Performance.enable", timeDomain="threadTicks")

    def read_seconds() -> float:
        metrics = page.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    start = read_seconds()
    page.eval(SCROLL % FRAMES)
    return (read_seconds() - start) / FRAMES
