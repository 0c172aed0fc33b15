"""Measures the web console in a headless Chromium: `make bench-console`; ARGS="--write docs/console.md" keeps it.

The list of 10,000 rows is served inside the page, so that the browser is measured and not the server. Everything else
is requested from a real server with the demo fleet, on the same machine.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from bench.figures import percentile
from fairlead.console.build import STATIC_FOLDER, load_build
from fairlead.core.crypto.certificates import ensure_certificates
from tests.console.browser import Browser, Page, open_browser
from tests.console.servers import (
    ADMIN,
    LOGIN_COOKIE,
    PROJECT,
    ConsoleServer,
    fill_with_demo,
    hash_public_key,
    running_console,
)

BEGIN, END = "<!-- figures of the console -->", "<!-- end of the figures -->"
PAGE_SCRIPT = Path(__file__).with_name("console_page.js").read_text()
LONG_LIST = Path(__file__).parents[1].joinpath("tests", "console", "long_list.js").read_text()
CHROMIUM = Path("/usr/bin/chromium-headless-shell")
FRAME_MS = 1000 / 60
FIRST_VISIT = """performance.getEntriesByType("resource").filter((each) => each.name.includes("/console/assets/"))
  .map((each) => [each.decodedBodySize, each.encodedBodySize])"""
PROJECT_PAGE = f"projects/{PROJECT}"
VISITED = ("clusters", "projects", PROJECT_PAGE, "audit", "", "access", f"{PROJECT_PAGE}?view=yaml", "users")
GO = "(path) => { history.pushState(null, '', `/console/${path}`); dispatchEvent(new PopStateEvent('popstate')); }"
Row = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Effort:
    """How often and how long is measured."""

    visits: int = 9
    scroll_seconds: float = 10
    flood_seconds: int = 30
    changes: int = 36_000
    page_changes: int = 200


QUICK = Effort(visits=2, scroll_seconds=2, flood_seconds=3, changes=2_000, page_changes=20)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a tab holds after a garbage collection."""

    heap: int
    nodes: int
    listeners: int

    def __str__(self) -> str:
        return f"{self.heap / 1e6:.1f} MB, {self.nodes:,} nodes, {self.listeners:,} listeners"


def measure_bytes() -> Iterator[Row]:
    build = load_build()
    source = sum(each.stat().st_size for each in STATIC_FOLDER.rglob("*") if each.is_file())
    sent = sum(len(each.body) for each in build.assets.values())
    compressed = sum(len(each.compressed or each.body) for each in build.assets.values())
    yield "all files, source", f"{source / 1000:.0f} KB in {len(build.assets)} files"
    yield "all files, as sent", f"{sent / 1000:.0f} KB, with gzip {compressed / 1000:.0f} KB"


def measure_visits(browser: Browser, console: ConsoleServer, count: int) -> Iterator[Row]:
    cold, warm = [], []
    for _ in range(count):
        page = open_page(browser, console)
        cold.append(visit_list(page))
        sizes: list[list[int]] = page.eval(FIRST_VISIT)
        page.wait_idle(1.0)
        warm.append(visit_list(page))
        page.close_all()
    decoded, encoded = (sum(each) for each in zip(*sizes, strict=True))
    yield "first visit of a list", f"{decoded / 1000:.0f} KB in {len(sizes)} files, with gzip {encoded / 1000:.0f} KB"
    for title, times in (("empty cache", cold), ("files in the cache", warm)):
        yield f"first list on the screen, {title}", f"{median(times):.0f} ms, slowest of {count}: {max(times):.0f} ms"


def open_page(browser: Browser, console: ConsoleServer, *scripts: str) -> Page:
    page = browser.new_page(console.url)
    page.set_cookie(LOGIN_COOKIE, console.log_in(ADMIN))
    page.send("Performance.enable", timeDomain="threadTicks")
    for script in (*scripts, PAGE_SCRIPT):
        page.send("Page.addScriptToEvaluateOnNewDocument", source=script)
    return page


def visit_list(page: Page) -> float:
    page.goto("users")
    return float(page.wait_until(lambda: page.eval("window.firstRow"), "there is a row", timeout=60))


def measure_frames(page: Page, effort: Effort) -> Iterator[Row]:
    before = read_processor_ms(page)
    scrolled = page.eval(f"scrollFrames({effort.scroll_seconds}, 97)")
    used = read_processor_ms(page) - before
    yield "scrolling 10,000 rows, 97 pixels a frame", describe_frames(scrolled)
    per_frame = used / len(scrolled["intervals"])
    yield "processor time of the page's thread for such a frame", f"{per_frame:.1f} ms of {FRAME_MS:.1f} ms"
    page.eval("sendEvents(100)")
    # In parts: a command of the browser must end within its time limit.
    parts = [page.eval("measureFrames(3)") for _ in range(effort.flood_seconds // 3)]
    page.eval("sendEvents(0)")
    flooded = {name: [each for part in parts for each in part[name]] for name in ("intervals", "longTasks")}
    yield f"100 changes a second in 10,000 rows, for {effort.flood_seconds} s", describe_frames(flooded)


def read_processor_ms(page: Page) -> float:
    """Time that the thread of the page has computed, whatever else ran on the machine."""
    found = {each["name"]: each["value"] for each in page.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(found["TaskDuration"])


def describe_frames(found: dict[str, Any]) -> str:
    intervals, tasks = found["intervals"], found["longTasks"]
    dropped = sum(round(each / FRAME_MS) - 1 for each in intervals if each > 1.5 * FRAME_MS)
    total = len(intervals) + dropped
    frames = f"{dropped} of {total} frames dropped ({100 * dropped / total:.1f} %)"
    tasks_text = f"{len(tasks)} tasks over 50 ms" + (f", longest {max(tasks):.0f} ms" if tasks else "")
    return f"{frames}; p99 between frames {percentile(intervals, 99):.0f} ms; {tasks_text}"


def measure_changes(page: Page, effort: Effort) -> Iterator[Row]:
    send_changes(page, 2_000)  # caches fill up
    before = read_memory(page)
    send_changes(page, effort.changes)
    after = read_memory(page)
    yield "tab with 10,000 rows, before", str(before)
    yield f"after {effort.changes:,} changes, an hour of 10 a second", f"{after} ({describe_growth(before, after)})"


def send_changes(page: Page, count: int) -> None:
    for start in range(0, count, 2_000):
        page.eval(f"sendChanges({min(2_000, count - start)}, 24)")


def measure_page_changes(page: Page, effort: Effort) -> Iterator[Row]:
    visit_pages(page, len(VISITED) * 2)
    before = read_memory(page)
    visit_pages(page, effort.page_changes)
    after = read_memory(page)
    yield "tab after the first pages, without a list", str(before)
    yield f"after {effort.page_changes} more pages were shown in it", f"{after} ({describe_growth(before, after)})"


def visit_pages(page: Page, count: int) -> None:
    for number in range(count):
        page.eval(f'({GO})("{VISITED[number % len(VISITED)]}")')
        page.wait_idle(0.2, timeout=60)
    page.eval(f'({GO})("about")')
    page.devtools.read_events(12)  # lists outlive their pages by ten seconds


def read_memory(page: Page) -> Memory:
    heap = page.heap_bytes()
    found = {each["name"]: each["value"] for each in page.send("Performance.getMetrics")["metrics"]}
    return Memory(heap, int(found["Nodes"]), int(found["JSEventListeners"]))


def describe_growth(before: Memory, after: Memory) -> str:
    return f"heap {100 * (after.heap - before.heap) / before.heap:+.1f} %"


@contextmanager
def running_demo() -> Iterator[tuple[Browser, ConsoleServer]]:
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        certificates = ensure_certificates(base / "tls", ("localhost", "127.0.0.1"))
        key = hash_public_key(certificates.cert_file)
        with running_console(base / "data", certificates) as console, open_browser(CHROMIUM, base, [key]) as browser:
            fill_with_demo(console, base)
            yield browser, console


def measure(effort: Effort) -> Iterator[Row]:
    yield from measure_bytes()
    with running_demo() as (browser, console):
        yield from measure_visits(browser, console, effort.visits)
        page = open_page(browser, console, LONG_LIST)
        page.goto("configmaps")
        page.wait_for_text("10,000 config maps", ".list-count", timeout=60)
        yield from measure_frames(page, effort)
        yield from measure_changes(page, effort)
        page.close_all()
        page = open_page(browser, console)
        page.goto("about")
        page.wait_for("main .content")
        yield from measure_page_changes(page, effort)
        page.close_all()


def replace_table(document: str, rows: list[Row]) -> str:
    """Replaces what is between the marks. Raises ValueError for a document without them."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the document has no lines {BEGIN} and {END}")
    table = "\n".join(["| what | measured |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def command(
    quick: Annotated[bool, typer.Option("--quick", help="Only show that it works.")] = False,
    write: Annotated[Path | None, typer.Option("--write", help="Put the table into this document.")] = None,
) -> None:
    """Measure the web console."""
    rows = []
    for name, value in measure(QUICK if quick else Effort()):
        print(f"{name:66} {value}", flush=True)
        rows.append((name, value))
    load = f"{os.getloadavg()[2]:.1f} on {os.cpu_count()} cores"
    rows.append(("load of the machine, mean of 15 minutes", load))
    print(f"{rows[-1][0]:66} {load}")
    if write is not None:
        write.write_text(replace_table(write.read_text(), rows))


if __name__ == "__main__":
    typer.run(command)
