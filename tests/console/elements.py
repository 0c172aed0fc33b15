"""Finds elements of a page by CSS selector, or by role and accessible name, and calls functions on them.

Roles and names come from the accessibility tree of the browser. Elements are remote objects, by their id.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tests.console.devtools import DevToolsError, Params

FIELD_ROLES = frozenset({"textbox", "searchbox", "combobox", "spinbutton", "checkbox", "switch", "radio", "listbox"})
SELECT_OPTION = """function (text) {
  const option = [...this.options].find((each) => each.text.trim() === text || each.value === text);
  if (!option) return false;
  this.value = option.value;
  this.dispatchEvent(new Event("input", { bubbles: true }));
  this.dispatchEvent(new Event("change", { bubbles: true }));
  return true;
}"""
IS_REACHED = """function (x, y) {
  let at = document.elementFromPoint(x, y);
  while (at?.shadowRoot?.elementFromPoint(x, y) && at.shadowRoot.elementFromPoint(x, y) !== at)
    at = at.shadowRoot.elementFromPoint(x, y);
  for (let each = at; each; each = each.parentNode ?? each.host) if (each === this) return "";
  for (const label of this.labels ?? []) if (label.contains(at)) return "";
  return at ? at.outerHTML.slice(0, 200) : "nothing";
}"""

WATCH_CLICK = """function () {
  const ours = (event) => {
    const path = event.composedPath();
    return path.includes(this) || [...(this.labels ?? [])].some((each) => path.includes(each));
  };
  const state = (window.testClick = { missed: "", isDone: false });
  const watch = new AbortController();
  const onPress = (event) => {
    if (ours(event) || !event.isTrusted) return;
    state.missed ||= event.target.outerHTML.slice(0, 200);
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  const onClick = (event) => {
    if (state.missed) onPress(event);
    else state.isDone ||= ours(event);
  };
  const options = { capture: true, signal: watch.signal };
  for (const type of ["pointerdown", "mousedown"]) window.addEventListener(type, onPress, options);
  for (const type of ["pointerup", "mouseup"])
    window.addEventListener(type, (event) => state.missed && onPress(event), options);
  window.addEventListener("click", onClick, options);
  state.stop = () => watch.abort();
}"""
"""Before a click: what it hits instead of the element is not told of it, so that the click can be repeated."""
END_CLICK = """(() => {
  const state = window.testClick;
  if (!state) return "";
  delete window.testClick;
  state.stop();
  return state.missed || (state.isDone ? "" : "nothing");
})()"""


class MissedClickError(AssertionError):
    """A click did not reach its element: another one is in front of it, or the page moved."""


@dataclass(frozen=True, slots=True)
class Role:
    """An element by its ARIA role, and by its accessible name or a part of it."""

    role: str
    name: str = ""
    exact: bool = True

    def matches(self, name: str) -> bool:
        return not self.name or (name == self.name if self.exact else self.name.lower() in name.lower())


Target = str | Role


class JavaScriptError(Exception):
    """A script of a test failed in the page."""


class SendCommand(Protocol):
    def __call__(self, method: str, **params: Any) -> Params: ...


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of one page. `send` sends a command of the DevTools protocol."""

    send: SendCommand

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, or of the promise that it returns."""
        options = {
            "awaitPromise": True,
            "returnByValue": True,
            "userGesture": True,
            "allowUnsafeEvalBlockedByCSP": False,
        }
        return _read_result(self.send("Runtime.evaluate", expression=script, **options))

    def call(self, element: str, function: str, *arguments: Any) -> Any:
        """Calls a JavaScript function with the element as `this`."""
        passed = [{"value": each} for each in arguments]
        options = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        return _read_result(
            self.send(
                "Runtime.callFunctionOn", objectId=element, functionDeclaration=function, arguments=passed, **options
            )
        )

    def find_all(self, target: Target) -> list[str]:
        if isinstance(target, str):
            return list(self._find_by_selector(target))
        found = [node for name, node in self.query(role=target.role) if target.matches(name)]
        return [each for node in found if (each := self._resolve(node))]

    def find_fields(self, label: str) -> list[str]:
        """The form fields with this accessible name."""
        nodes = [node for role_name in sorted(FIELD_ROLES) for name, node in self.query(role=role_name, name=label)]
        return [each for node in nodes if (each := self._resolve(node))]

    def query(self, *, role: str, name: str = "") -> Iterator[tuple[str, int]]:
        """Name and DOM node of each element with a role that a screen reader would find."""
        wanted = {"role": role} | ({"accessibleName": name} if name else {})
        try:
            root = self.send("DOM.getDocument", depth=0)["root"]["backendNodeId"]
            nodes = self.send("Accessibility.queryAXTree", backendNodeId=root, **wanted)["nodes"]
        except (DevToolsError, TimeoutError):  # the document was replaced meanwhile
            return
        for node in nodes:
            if not node.get("ignored") and "backendDOMNodeId" in node:
                yield str(node.get("name", {}).get("value", "")), node["backendDOMNodeId"]

    def describe_focus(self) -> str:
        script = (
            "(() => { let e = document.activeElement; "
            "while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement; return e; })()"
        )
        element = self.send("Runtime.evaluate", expression=script)["result"].get("objectId")
        if element is None:
            return ""
        node = self.send("Accessibility.getPartialAXTree", objectId=element, fetchRelatives=False)["nodes"][0]
        return f"{node.get('role', {}).get('value', '')} {node.get('name', {}).get('value', '')}".strip()

    def centre(self, element: str, description: str) -> tuple[float, float]:
        """The middle of an element, after scrolling to it. Fails if it is not visible or covered by another one."""
        self.send("DOM.scrollIntoViewIfNeeded", objectId=element)
        quads = self.send("DOM.getContentQuads", objectId=element)["quads"]
        assert quads, f"{description} is not visible"
        x, y = sum(quads[0][0::2]) / 4, sum(quads[0][1::2]) / 4
        cover = self.call(element, IS_REACHED, x, y)
        if cover:
            raise MissedClickError(f"{description} is covered by {cover}")
        return x, y

    def _find_by_selector(self, selector: str) -> Iterator[str]:
        script = f"[...document.querySelectorAll({json.dumps(selector)})]"
        found = self.send("Runtime.evaluate", expression=script)
        if "exceptionDetails" in found:
            _read_result(found)
        listed = self.send("Runtime.getProperties", objectId=found["result"]["objectId"], ownProperties=True)["result"]
        for each in listed:
            if each["name"].isdecimal():
                yield each["value"]["objectId"]

    def _resolve(self, node: int) -> str:
        """The element of a DOM node; empty if it was removed in between."""
        try:
            element = self.send("DOM.resolveNode", backendNodeId=node)["object"]
        except DevToolsError:
            return ""
        return str(element["objectId"])


def _read_result(answer: Params) -> Any:
    if "exceptionDetails" in answer:
        details = answer["exceptionDetails"]
        raise JavaScriptError(details.get("exception", {}).get("description") or details["text"])
    return answer["result"].get("value")
