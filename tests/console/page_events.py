"""What happens in a page, collected from the events of the browser: errors, violations, requests, dialogs."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.console.devtools import Params

VIOLATION_BINDING = "reportPolicyViolation"
OBSERVER = f"""document.addEventListener("securitypolicyviolation", (event) => {{
  const place = `${{event.sourceFile}}:${{event.lineNumber}}`;
  globalThis.{VIOLATION_BINDING}?.(`${{event.effectiveDirective}} ${{event.blockedURI}} ${{place}} ${{event.sample}}`);
}});"""
"""Runs in every document before its own scripts."""
UNLOGGED_SOURCES = frozenset({"network"})
"""Sources of log entries that are no errors by themselves: a page may handle a 404. `Request` has the status."""


@dataclass(slots=True)
class Request:
    """One request of a page. `path` has the query. `status` is 0 while there is no response."""

    method: str
    path: str
    resource_type: str
    status: int = 0
    protocol: str = ""
    is_cached: bool = False
    is_finished: bool = False
    error: str = ""
    loader: str = ""
    """The document that has sent it."""

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/kubernetes/")


class PageEvents:
    """Listens to the events of one page. `post` sends a command without waiting."""

    def __init__(self, post: Callable[[str, Params], object], base_url: str) -> None:
        self._post = post
        self._base_url = base_url
        self.loaded: list[str] = []
        """The navigations that are complete."""
        self.console_errors: list[str] = []
        self.console_warnings: list[str] = []
        self.csp_violations: list[str] = []
        self.allowed_errors: list[str] = []
        self.dialogs: list[str] = []
        self.requests: dict[str, Request] = {}
        self.changes = 0
        """Counts starts and ends of requests."""
        self._handlers: dict[str, Callable[[Params], None]] = {
            "Page.lifecycleEvent": self._on_lifecycle,
            "Page.javascriptDialogOpening": self._on_dialog,
            "Runtime.consoleAPICalled": self._on_console,
            "Runtime.exceptionThrown": self._on_exception,
            "Runtime.bindingCalled": self._on_binding,
            "Log.entryAdded": self._on_log,
            "Inspector.targetCrashed": lambda params: self.console_errors.append("the page has crashed"),
            "Network.requestWillBeSent": self._on_request,
            "Network.responseReceived": self._on_response,
            "Network.requestServedFromCache": self._on_cached,
            "Network.loadingFinished": self._on_finished,
            "Network.loadingFailed": self._on_failed,
        }

    def handle(self, method: str, params: Params) -> None:
        handler = self._handlers.get(method)
        if handler is not None:
            handler(params)

    def has_unanswered_request(self) -> bool:
        """Whether the server, or the browser, is still busy with a request. On a busy machine, that takes a while."""
        return any(not (each.status or each.is_finished or each.is_cached) for each in self.requests.values())

    def unexpected_errors(self, errors: Iterable[str]) -> list[str]:
        return [error for error in errors if not any(part in error for part in self.allowed_errors)]

    def _on_lifecycle(self, params: Params) -> None:
        if params["name"] == "load":
            self.loaded.append(params["loaderId"])
            self._end_former_requests(params["loaderId"])

    def _end_former_requests(self, loader: str) -> None:
        """Of some requests of a document that is gone the browser does not tell the end."""
        for each in self.requests.values():
            if not each.status and each.loader not in ("", loader):
                each.is_finished = True

    def _on_dialog(self, params: Params) -> None:
        self.dialogs.append(params["message"])
        self._post("Page.handleJavaScriptDialog", {"accept": True})

    def _on_console(self, params: Params) -> None:
        text = " ".join(_describe(each) for each in params["args"])
        if params["type"] in ("error", "assert"):
            self.console_errors.append(text)
        elif params["type"] == "warning":
            self.console_warnings.append(text)

    def _on_exception(self, params: Params) -> None:
        details = params["exceptionDetails"]
        thrown = details.get("exception", {})
        self.console_errors.append(f"{details['text']} {thrown.get('description') or thrown.get('value', '')}")

    def _on_binding(self, params: Params) -> None:
        if params["name"] == VIOLATION_BINDING:
            self.csp_violations.append(params["payload"])

    def _on_log(self, params: Params) -> None:
        entry = params["entry"]
        text = f"{entry['source']}: {entry['text']} {entry.get('url', '')}"
        if entry["level"] == "warning":
            self.console_warnings.append(text)
        if entry["level"] == "error" and entry["source"] not in UNLOGGED_SOURCES:
            self.console_errors.append(text)

    def _on_request(self, params: Params) -> None:
        request = params["request"]
        parts = urlsplit(request["url"])
        if parts.scheme in ("http", "https"):
            path = request["url"].removeprefix(self._base_url)
            self.requests[params["requestId"]] = Request(
                request["method"], path, params.get("type", ""), loader=params.get("loaderId", "")
            )
            self.changes += 1

    def _on_response(self, params: Params) -> None:
        request = self.requests.get(params["requestId"])
        if request is None:
            return
        response = params["response"]
        request.status, request.protocol = response["status"], response.get("protocol", "")
        request.is_cached = request.is_cached or bool(response.get("fromDiskCache"))
        if request.status >= 400 and request.path.startswith("/console/"):
            self.console_errors.append(f"{request.method} {request.path}: {request.status}")
        self.changes += 1

    def _on_cached(self, params: Params) -> None:
        if (request := self.requests.get(params["requestId"])) is not None:
            request.is_cached = True

    def _on_finished(self, params: Params) -> None:
        if (request := self.requests.get(params["requestId"])) is not None:
            request.is_finished = True
            self.changes += 1

    def _on_failed(self, params: Params) -> None:
        if (request := self.requests.get(params["requestId"])) is not None:
            request.is_finished, request.error = True, params["errorText"]
            self.changes += 1


def load_observer(send: Callable[..., Params]) -> None:
    """Reports violations of the content security policy of all documents that the page loads from now on."""
    send("Runtime.addBinding", name=VIOLATION_BINDING)
    send("Page.addScriptToEvaluateOnNewDocument", source=OBSERVER)


def _describe(argument: dict[str, Any]) -> str:
    if "value" in argument:
        return argument["value"] if isinstance(argument["value"], str) else json.dumps(argument["value"])
    return str(argument.get("description", argument["type"]))
