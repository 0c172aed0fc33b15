"""The terminal and the log view in a real browser, on a page of the console."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from fairlead.core.crypto.certificates import Certificates
from tests.console.browser import Browser, Page, role
from tests.console.servers import LOGIN_COOKIE, ConsoleServer, running_console
from tests.live.runner_process import PROCESS_ENGINE, running_runner
from tests.live.test_workspace_exec import start_workspace
from tests.live.workspace_setup import WORKSPACE

OPEN = """(async () => {
  const base = document.querySelector("script[type=module]").src.replace("main.js", "");
  const modules = ["core/dom.js", "widgets/terminal/terminal.js", "widgets/terminal/socket.js", "widgets/log-view.js"];
  const loaded = await Promise.all(modules.map((each) => import(base + each)));
  const [{ Scope }, { Terminal }, { attachSocket }, { LogView }] = loaded;
  const box = document.createElement("div");
  box.style.cssText = "position: fixed; inset: 0; z-index: 99; background: white";
  document.body.append(box);
  const scope = new Scope();
  Object.assign(window, { scope, attachSocket, LogView, box });
  window.show = (widget) => box.replaceChildren(widget.node);
  window.terminal = new Terminal(scope);
  show(terminal);
  await new Promise((resolve) => setTimeout(resolve, 200));
})()"""
COUNT_FRAMES = """(() => { window.frames_shown = 0;
  const count = () => { window.frames_shown += 1; requestAnimationFrame(count); }; count(); })()"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ConsoleServer]:
    """A server with a runner, and a workspace that runs."""
    folder = tmp_path_factory.mktemp("terminal")
    source: Path = folder / "source"
    source.mkdir()
    with running_console(folder / "data", certificates) as console, console.server.client() as admin:
        flags = ("--allow-folder", str(source))
        with running_runner(console.server, admin, folder / "runner", PROCESS_ENGINE, flags=flags):
            start_workspace(admin, f"local:{source}")
            yield console


@pytest.fixture
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    page = browser.new_page(server.url)
    try:
        page.set_cookie(LOGIN_COOKIE, server.log_in("admin"))
        page.goto("about")
        page.wait_idle()
        page.eval(OPEN)
        yield page
        assert page.errors == []
    finally:
        page.close_all()


def shell(command: str) -> str:
    """Connects the terminal of the page with a command in the workspace."""
    url = f"{WORKSPACE}/exec?stdin=true&tty=true" + "".join(f"&command={quote(each)}" for each in ("sh", "-c", command))
    return f"attachSocket(terminal, {json.dumps(url)}); terminal.focus()"


def wait_for_line(page: Page, text: str) -> None:
    page.wait_until(lambda: text in "\n".join(page.texts(".terminal-line")), f"the terminal shows {text!r}")


def is_prompt_last(page: Page) -> bool:
    lines = [line.strip() for line in page.texts(".terminal-line")]
    return [line for line in lines if line][-1] == "ready>"


def test_a_shell_in_a_workspace_gets_keys_and_the_size_and_says_how_it_ended(page: Page) -> None:
    page.eval(shell("PS1='ready> ' exec sh"))
    wait_for_line(page, "ready>")
    page.type("stty size\n")
    size = page.eval("`${terminal.screen.rows} ${terminal.screen.columns}`")
    wait_for_line(page, size)
    page.set_size(600, 500)
    page.wait_until(lambda: page.eval("`${terminal.screen.rows} ${terminal.screen.columns}`") != size, "it has adapted")
    smaller = page.eval("`${terminal.screen.rows} ${terminal.screen.columns}`")
    page.type(f"until stty size | grep '{smaller}'; do sleep 0.1; done; echo and$((1+1))\n")
    wait_for_line(page, "and2")
    page.type("cat\n")
    page.type("abc\n")
    # Echoed by the terminal, and then written by cat: before that, the signal could reach the shell instead.
    page.wait_until(lambda: "\n".join(page.texts(".terminal-line")).count("abc") == 2, "cat runs")
    page.press("Control+c")
    # What is typed before the signal has arrived is discarded.
    page.wait_until(lambda: is_prompt_last(page), "the shell asks again")
    page.type("echo interrupted$((1+1))\n")
    wait_for_line(page, "interrupted2")
    page.type("exit 5\n")
    page.wait_for_text("The session has ended with exit code 5.")
    page.eval("terminal.status.querySelector('button').click()")
    page.wait_for_text("Connected", ".terminal-status")
    wait_for_line(page, "ready>")


def test_a_refused_session_says_why(page: Page) -> None:
    page.allow_errors("WebSocket", "404")
    missing = WORKSPACE.removesuffix("/dev") + "/missing/exec"
    page.eval(f"attachSocket(terminal, {json.dumps(missing)})")
    page.wait_for_text("not found", ".terminal-status")


@pytest.mark.long
def test_ten_megabytes_do_not_freeze_the_page(page: Page) -> None:
    page.eval(COUNT_FRAMES)
    program = "[print('The quick brown fox jumps over the lazy dog', n) for n in range(200000)]; print('END')"
    page.eval(shell(f'{sys.executable} -c "{program}"; sleep 100'))
    page.wait_until(lambda: "END" in [line.rstrip() for line in page.texts(".terminal-line")], "all is shown", 30)
    assert page.eval("terminal.screen.history.length") <= 5500
    assert page.count(".terminal-line") <= page.eval("terminal.screen.rows") + 1
    assert page.eval("frames_shown") > 10  # the page was drawn meanwhile, so it can be used


def test_a_selection_survives_output_and_is_copied_without_blanks(page: Page) -> None:
    page.eval(
        "terminal.write('first\\r\\nsecond \\x1b[1;31mred\\x1b[0m\\r\\n' + 'x'.repeat(terminal.screen.columns) + 'y')"
    )
    wait_for_line(page, "second red")
    page.eval("getSelection().selectAllChildren(terminal.lines)")
    page.eval("terminal.write('\\x1b[5;1Hmore')")
    wait_for_line(page, "more")
    copied = page.eval("terminal.selectedText().trimEnd().split('\\n')")
    assert copied[:2] == ["first", "second red"]
    assert copied[2] == "x" * page.eval("terminal.screen.columns") + "y"
    assert page.eval("getComputedStyle(document.querySelector('.terminal-line .bold')).color") != page.eval(
        "getComputedStyle(terminal.view).color"
    )


def test_a_search_finds_what_has_scrolled_away_and_marks_it(page: Page) -> None:
    page.eval("terminal.write('Needle one\\r\\n' + 'hay\\r\\n'.repeat(500) + 'a needle more'); terminal.focus()")
    wait_for_line(page, "a needle more")
    page.press("Control+Shift+F")
    page.type("needle")
    page.wait_for_text("2 of 2", ".terminal-search")
    page.press("Enter")
    page.wait_for_text("1 of 2", ".terminal-search")
    wait_for_line(page, "Needle one")
    mark = "(({ left, top }) => [left, top])(terminal.found.getBoundingClientRect()).map(Math.round).join()"
    line = "(({ left, top }) => [left, top])(terminal.lines.firstChild.getBoundingClientRect()).map(Math.round).join()"
    page.wait_until(lambda: page.eval(mark) == page.eval(line), "the mark is at the match")
    page.press("Escape")
    assert page.eval("document.activeElement === terminal.input && terminal.search.node.hidden")


def test_full_screen_fills_the_window_and_the_program_keeps_its_keys(page: Page) -> None:
    page.eval("window.sent = []; terminal.onInput = (text) => sent.push(text)")
    rows = page.eval("terminal.screen.rows")
    page.click(role("button", "Full screen"))
    page.wait_until(lambda: page.eval("terminal.node.getBoundingClientRect().height === innerHeight"), "it is full")
    page.press("Escape")
    assert page.eval("sent") == ["\x1b"]
    page.click(role("button", "Full screen"))
    page.wait_until(lambda: page.eval("terminal.screen.rows") == rows, "it is as before")


def test_typing_after_a_selection_reaches_the_program(page: Page) -> None:
    page.eval("window.typed = ''; terminal.onInput = (text) => { window.typed += text; }; terminal.write('word')")
    wait_for_line(page, "word")
    x, y = page.eval("(({ x, y }) => [x + 10, y + 8])(terminal.view.getBoundingClientRect())")
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)
    assert page.eval("getSelection().toString().trim()") == "word"
    page.type("ls")
    assert page.eval("window.typed") == "ls"


def test_keys_reach_the_program_as_a_terminal_sends_them_and_the_keyboard_gets_out(page: Page) -> None:
    page.eval("window.sent = []; terminal.onInput = (text) => sent.push(text); terminal.focus()")
    page.press("a", "Enter", "ArrowUp", "Control+c", "Tab", "Escape", "Backspace", "Shift+Tab", "F5")
    assert page.eval("sent") == ["a", "\r", "\x1b[A", "\x03", "\t", "\x1b", "\x7f", "\x1b[Z", "\x1b[15~"]
    page.eval("sent.length = 0; terminal.write('\\x1b[?1h\\x1b[?2004h')")
    page.wait_until(lambda: page.eval("terminal.screen.modes.bracketedPaste"), "the mode is set")
    page.press("ArrowUp")
    page.eval(
        """(() => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", "a\\n\\x1b[201~b");
          terminal.input.dispatchEvent(new ClipboardEvent("paste", { clipboardData, cancelable: true }));
        })()"""
    )
    assert page.eval("sent") == ["\x1bOA", "\x1b[200~a\r[201~b\x1b[201~"]
    page.press("Control+Shift+F6")
    assert page.eval("document.activeElement === terminal.input") is False


@pytest.mark.long
def test_a_log_of_a_million_lines_stays_bounded_and_is_filtered(page: Page) -> None:
    page.eval("window.log = new LogView(scope); show(log)")
    page.eval(
        """(async () => {
          for (let part = 0; part < 1000; part++) {
            const numbers = Array.from({ length: 1000 }, (_, index) => part * 1000 + index);
            log.append(numbers.map((each) => `line \\x1b[32m${each}\\x1b[0m\\x1b]0;x\\x07\\n`).join(""));
            if (part % 20 === 0) await new Promise(requestAnimationFrame);
          }
        })()"""
    )
    page.wait_until(lambda: "line 999999" in page.texts(".log-line"), "the last line is shown")
    assert page.count(".log-line") < 120
    assert page.eval("log.lines.length") <= 51_000
    assert page.eval("log.dropped + log.lines.length") == 1_000_000
    page.fill("Filter lines", "LINE 99999")
    page.wait_for_text(" of ", ".log-bar")
    page.wait_until(lambda: len(page.texts(".log-line")) == 10, "the lines that match are shown")


def test_scrolling_up_pauses_a_log(page: Page) -> None:
    page.eval("window.log = new LogView(scope); show(log)")
    page.eval("log.append(Array.from({ length: 500 }, (_, n) => `${n}\\n`).join(''))")
    page.wait_until(lambda: "499" in page.texts(".log-line"), "the end is shown")
    page.eval("log.view.scrollTop = 0")
    page.wait_until(lambda: page.eval("log.follow.firstChild.checked") is False, "it is paused")
    page.eval("log.append('new\\n')")
    page.wait_for_text("501 lines", ".log-bar")
    assert page.texts(".log-line")[0] == "0"


def test_the_log_of_a_task_is_read_to_its_end(page: Page) -> None:
    page.eval(
        f"window.log = new LogView(scope); show(log); log.attachStream('{WORKSPACE}/log', scope, {{format: 'task'}})"
    )
    page.wait_for_text("End of the log")
    assert page.eval("log.lines.length") > 0
    assert not any("{" in line for line in page.texts(".log-line"))
