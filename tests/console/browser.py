"""A headless browser for tests: pages are used as users do it, by what they see, and by mouse and keyboard.

    with open_browser(program, folder) as browser:
        page = browser.new_page("https://127.0.0.1:8443")
        page.goto("projects")                           # below /console/; a path with a slash is that of the server
        page.fill("Filter", "demo")
        page.click(role("button", "Delete"))
        page.wait_for_text("deleted")

A target is a CSS selector or a role with an accessible name, which the browser computes itself as for a screen reader.
Methods that use a target wait for it. `Page.errors` must be empty at the end of a test.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin

from tests.console.devtools import DevTools, DevToolsError, Params, running_chromium
from tests.console.elements import (
    END_CLICK,
    SELECT_OPTION,
    WATCH_CLICK,
    Elements,
    JavaScriptError,
    MissedClickError,
    Role,
    Target,
)
from tests.console.keys import describe_key
from tests.console.page_events import PageEvents, Request, load_observer

__all__ = ["Browser", "JavaScriptError", "Page", "Request", "Role", "Target", "open_browser", "role"]

NAVIGATION_ERRORS = ("Cannot find context", "context was destroyed", "Could not find object", "navigated")
"""The document of a request to the browser is not there any more."""
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.03
SETTLING_SECONDS = 20.0
"""How long a page may take until an element that is there can be clicked on."""
DEFAULT_SIZE = (1280, 800)
REPLACE_RICH_TEXT = """function (text) {
  if (!this.isContentEditable) return false;
  this.focus();
  getSelection().selectAllChildren(this);
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  this.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  return true;
}"""
"""Pastes over the content of an editor that is no form field."""
SET_VISIBILITY = """(() => {
  Object.defineProperty(document, "visibilityState", { configurable: true, value: %s });
  Object.defineProperty(document, "hidden", { configurable: true, value: document.visibilityState === "hidden" });
  document.dispatchEvent(new Event("visibilitychange"));
})()"""

Found = TypeVar("Found")


def role(role: str, name: str = "", *, exact: bool = True) -> Role:
    """The target with a role and an accessible name: `role("button", "Delete")`."""
    return Role(role, name, exact)


@contextmanager
def open_browser(program: Path, folder: Path, trusted_keys: Sequence[str] = ()) -> Iterator["Browser"]:
    """A browser that ends with the context. `trusted_keys` are hashes of public keys of servers that it trusts."""
    flags = [f"--ignore-certificate-errors-spki-list={','.join(trusted_keys)}"] if trusted_keys else []
    with running_chromium(program, folder, flags) as devtools:
        yield Browser(devtools)


@dataclass(frozen=True, slots=True)
class Browser:
    """One process, for many tests."""

    devtools: DevTools

    def new_page(self, base_url: str) -> "Page":
        """A page with cookies, storage and a cache of its own."""
        context = self.devtools.send("Target.createBrowserContext", {"disposeOnDetach": True})["browserContextId"]
        return _open_page(self.devtools, context, base_url)


def _open_page(devtools: DevTools, context: str, base_url: str) -> "Page":
    target = devtools.send("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
    session = devtools.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
    events = PageEvents(lambda method, params: devtools.post(method, params, session), base_url)
    devtools.listen(session, events.handle)
    page = Page(devtools, session, TabIds(context, target), base_url, events)
    for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
        page.send(f"{domain}.enable")
    page.send("Page.setLifecycleEventsEnabled", enabled=True)
    load_observer(page.send)
    page.set_size(*DEFAULT_SIZE)
    page.set_theme("light")
    return page


@dataclass(frozen=True, slots=True)
class TabIds:
    """The ids of a tab in the browser. Tabs of one context share cookies, storage and cache."""

    context: str
    target: str


class Page:
    """One tab. Errors, violations and requests are collected from its start."""

    def __init__(self, devtools: DevTools, session: str, ids: TabIds, base_url: str, events: PageEvents) -> None:
        self.devtools = devtools
        self.session = session
        self.ids = ids
        self.base_url = base_url
        self.events = events
        self.elements = Elements(self.send)
        self._media: dict[str, str] = {}

    def send(self, method: str, **params: Any) -> Params:
        """A command of the DevTools protocol, for what has no method here."""
        return self.devtools.send(method, params, self.session)

    def open_tab(self) -> "Page":
        """Another tab of the same user, with the same cookies, storage and cache."""
        return _open_page(self.devtools, self.ids.context, self.base_url)

    def close(self) -> None:
        """Closes this tab."""
        self.devtools.send("Target.closeTarget", {"targetId": self.ids.target})
        self.devtools.forget(self.session)

    def close_all(self) -> None:
        """Closes all tabs of this user, and deletes their cookies and storage."""
        self.devtools.send("Target.disposeBrowserContext", {"browserContextId": self.ids.context})
        self.devtools.forget(self.session)

    # --- where the page is

    def goto(self, path: str) -> None:
        """Loads a page and waits until its `load` event. The path is relative to /console/."""
        answer = self.send("Page.navigate", url=urljoin(f"{self.base_url}/console/", path))
        error, loader = answer.get("errorText"), answer.get("loaderId")
        assert not error, f"could not load {path}: {error}"
        self.wait_until(lambda: loader is None or loader in self.events.loaded, f"{path} is loaded")

    def reload(self) -> None:
        count = len(self.events.loaded)
        self.send("Page.reload")
        self.wait_until(lambda: len(self.events.loaded) > count, "the page is loaded again")

    @property
    def path(self) -> str:
        """Path, query and fragment of the address bar."""
        return str(self.eval("location.pathname + location.search + location.hash"))

    # --- what the page shows

    def eval(self, script: str) -> Any:
        """The value of a JavaScript expression, or of the promise that it returns."""
        return self.elements.evaluate(script)

    def text(self, target: Target = "body") -> str:
        """The visible text of the first element."""
        return str(self.elements.call(self._find(target), "function () { return this.innerText ?? this.textContent; }"))

    def texts(self, selector: str) -> list[str]:
        """The visible texts of all elements, at once."""
        found: list[str] = self.eval(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)")
        return found

    def count(self, target: Target) -> int:
        """How many elements there are now."""
        return len(self.elements.find_all(target))

    def attribute(self, target: Target, name: str) -> str | None:
        value = self.elements.call(self._find(target), "function (name) { return this.getAttribute(name); }", name)
        return None if value is None else str(value)

    def value(self, label: str) -> str:
        """The value of the form field with that label."""
        return str(self.elements.call(self._find_field(label), "function () { return this.value; }"))

    def names(self, role_name: str) -> list[str]:
        """The accessible names of all elements with a role."""
        return [name for name, _ in self.elements.query(role=role_name)]

    def focused(self) -> str:
        """Role and name of the element with the keyboard focus: `button Delete`."""
        return self.elements.describe_focus()

    # --- waiting

    def wait_until(self, check: Callable[[], Found], what: str, timeout: float = WAIT_SECONDS) -> Found:
        """Returns the first true result of `check`. A page that navigates meanwhile is asked again."""
        deadline = time.monotonic() + timeout

        def check_page() -> Found | None:
            try:
                return check()
            except DevToolsError as error:
                if not any(part in str(error) for part in NAVIGATION_ERRORS):
                    raise
                return None

        while not (found := check_page()):
            assert time.monotonic() < deadline, f"not within {timeout} s: {what}{self._describe()}"
            self.devtools.read_events(POLL_SECONDS)
        return found

    def wait_for(self, target: Target, timeout: float = WAIT_SECONDS) -> None:
        self._find(target, timeout)

    def wait_gone(self, target: Target, timeout: float = WAIT_SECONDS) -> None:
        self.wait_until(lambda: not self.elements.find_all(target), f"{target} is gone", timeout)

    def wait_for_text(self, text: str, within: str = "body", timeout: float = WAIT_SECONDS) -> None:
        self.wait_until(lambda: text in "\n".join(self.texts(within)), f"{text!r} in {within}", timeout)

    def wait_idle(self, quiet: float = 0.3, timeout: float = WAIT_SECONDS) -> None:
        """Waits until all requests have a response, and none has started or finished for some time. Open watches do not
        count: they have a response."""
        last = (-1, time.monotonic())

        def is_idle() -> bool:
            nonlocal last
            if (changes := self.events.changes) != last[0]:
                last = changes, time.monotonic()
            return time.monotonic() - last[1] >= quiet and not self.events.has_unanswered_request()

        self.wait_until(is_idle, "the page sends no more requests", timeout)

    def _find(self, target: Target, timeout: float = WAIT_SECONDS) -> str:
        return self.wait_until(lambda: self.elements.find_all(target), f"there is {target}", timeout)[0]

    def _find_field(self, label: str) -> str:
        return self.wait_until(lambda: self.elements.find_fields(label), f"there is a field {label}")[0]

    def _describe(self) -> str:
        """What the page shows, for the messages of failed tests."""
        shown = self.eval("location.href + '\\n' + (document.body?.innerText ?? '')")[:1500]
        return f"\nerrors: {self.errors}\npage: {shown}"

    # --- mouse and keyboard

    def click(self, target: Target) -> None:
        """Scrolls to the element and clicks on its centre, until the element got the click. A page may replace or move
        it in between, or enable it later. Fails if that lasts, or if something else covers the element."""
        self._click(lambda: self._find(target), str(target))

    def _click(self, find: Callable[[], str], description: str) -> None:
        deadline = time.monotonic() + SETTLING_SECONDS
        while True:
            try:
                return self._click_once(find(), description)
            except MissedClickError:
                if time.monotonic() > deadline:
                    raise
            except DevToolsError as error:
                if "detached" not in str(error) or time.monotonic() > deadline:
                    raise
            self.devtools.read_events(POLL_SECONDS)

    def _click_once(self, element: str, description: str) -> None:
        x, y = self.elements.centre(element, description)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.elements.call(element, WATCH_CLICK)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        try:
            missed = self.eval(END_CLICK)
        except DevToolsError as error:
            if not any(part in str(error) for part in NAVIGATION_ERRORS):
                raise
            return  # the click led to another document
        if missed:
            raise MissedClickError(f"the click on {description} reached {missed}")

    def hover(self, target: Target) -> None:
        x, y = self.elements.centre(self._find(target), str(target))
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def fill(self, label: str, value: str) -> None:
        """Replaces the content of a text field, or chooses an option of a select by its text, once it is there."""
        deadline = time.monotonic() + SETTLING_SECONDS
        while True:
            element = self._find_field(label)
            if self.elements.call(element, "function () { return this.localName === 'select'; }"):
                self.wait_until(lambda: self._select(label, value), f"{label} has the option {value!r}")
                return
            if self.elements.call(element, REPLACE_RICH_TEXT, value):
                return
            self.elements.call(element, "function () { this.focus(); this.select?.(); }")
            if value:
                self.send("Input.insertText", text=value)
            else:
                self.press("Delete")
            is_there = self.elements.call(element, "function () { return this.isConnected; }")
            if is_there or time.monotonic() > deadline or self.value(label) == value:
                return  # else the page has replaced the field meanwhile

    def _select(self, label: str, value: str) -> bool:
        return bool(self.elements.call(self._find_field(label), SELECT_OPTION, value))

    def check(self, label: str, checked: bool = True) -> None:
        """Sets a checkbox or switch."""
        is_checked = "function () { return this.checked ?? this.getAttribute('aria-checked') === 'true'; }"
        if self.elements.call(self._find_field(label), is_checked) != checked:
            self._click(lambda: self._find_field(label), label)

    def press(self, *keys: str) -> None:
        """Presses keys one after the other: `press("Control+k", "Escape")`."""
        for key in keys:
            described = describe_key(key)
            self.send("Input.dispatchKeyEvent", type="keyDown" if "text" in described else "rawKeyDown", **described)
            self.send("Input.dispatchKeyEvent", type="keyUp", **described)

    def type(self, text: str) -> None:
        """Types a text into the element with the focus, key by key."""
        for character in text:
            self.press({" ": "Space", "\n": "Enter"}.get(character, character))

    # --- the surroundings

    def set_size(self, width: int, height: int, *, scale: float = 1, mobile: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def set_theme(self, theme: str) -> None:
        """`dark` or `light`, as the system prefers it."""
        self.set_media(prefers_color_scheme=theme)

    def set_media(self, **features: str) -> None:
        """Media features: `set_media(prefers_reduced_motion="reduce", forced_colors="active")`."""
        self._media |= {name.replace("_", "-"): value for name, value in features.items()}
        listed = [{"name": name, "value": value} for name, value in self._media.items()]
        self.send("Emulation.setEmulatedMedia", features=listed)

    def offline(self, is_offline: bool = True) -> None:
        rates = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.send("Network.emulateNetworkConditions", offline=is_offline, **rates)

    def set_hidden(self, is_hidden: bool = True) -> None:
        """Whether the tab is in the background: `document.visibilityState`, and its event."""
        self.send("Emulation.setFocusEmulationEnabled", enabled=not is_hidden)
        self.eval(SET_VISIBILITY % json.dumps("hidden" if is_hidden else "visible"))

    def set_cookie(self, name: str, value: str) -> None:
        """A cookie as the server sets it for logins."""
        attributes = {"path": "/", "secure": True, "httpOnly": True, "sameSite": "Strict"}
        self.send("Network.setCookie", name=name, value=value, url=self.base_url, **attributes)

    def clear_cookies(self) -> None:
        self.send("Network.clearBrowserCookies")

    def heap_bytes(self) -> int:
        """Bytes of JavaScript objects that are in use."""
        self.send("HeapProfiler.collectGarbage")
        return int(self.send("Runtime.getHeapUsage")["usedSize"])

    def screenshot(self, file: Path | str, full: bool = False) -> None:
        """Saves a PNG or WebP, as the file ends, of what is visible, or of the whole page."""
        kind = {"format": "webp", "quality": 70} if Path(file).suffix == ".webp" else {"format": "png"}
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=full, **kind)["data"]
        Path(file).write_bytes(base64.b64decode(picture))

    # --- what happened

    @property
    def console_errors(self) -> list[str]:
        """Errors in the console, uncaught exceptions, and files of the console that could not be loaded."""
        self.devtools.read_events(0)
        return self.events.console_errors

    @property
    def csp_violations(self) -> list[str]:
        self.devtools.read_events(0)
        return self.events.csp_violations

    @property
    def errors(self) -> list[str]:
        """Everything that fails a test, unless `allow_errors` has named a part of it."""
        return self.events.unexpected_errors([*self.console_errors, *self.csp_violations])

    def allow_errors(self, *parts: str) -> None:
        self.events.allowed_errors.extend(parts)

    @property
    def requests(self) -> list[Request]:
        """All requests since the start or since `clear_requests`, in order."""
        self.devtools.read_events(0)
        return list(self.events.requests.values())

    def clear_requests(self) -> None:
        self.devtools.read_events(0)
        self.events.requests.clear()

    @property
    def dialogs(self) -> list[str]:
        """Messages of JavaScript dialogs. They are all accepted."""
        self.devtools.read_events(0)
        return self.events.dialogs
