"""How much processor time a page needs for a frame while a part of it is scrolled.

The time on the clock, and so the frames a second, depend on what else the machine does. That of the page's thread does
not: a page that needs less than a fiftieth of a second for each frame shows 50 a second wherever it has a processor for
itself.
"""

from tests.console.browser import Page

FRAMES = 100
MAX_FRAME_SECONDS = 1 / 50
SCROLL = """(async () => {
  const view = document.querySelector("%s");
  const frame = () => new Promise(requestAnimationFrame);
  for (let each = 0; each < %d; each++) {
    view.scrollTop = (each * %d) %% view.scrollHeight;
    await frame();
  }
})()"""


def measure_scrolling(page: Page, selector: str, pixels: int) -> float:
    """The seconds of processor time that the page needs for one frame while it is scrolled so far with each."""
    page.send("Performance.enable", timeDomain="threadTicks")

    def read_seconds() -> float:
        metrics = page.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    start = read_seconds()
    page.eval(SCROLL % (selector, FRAMES, pixels))
    return (read_seconds() - start) / FRAMES
