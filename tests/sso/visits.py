"""A browser without pages: cookies, redirects step by step, and the forms of the real providers."""

import html
import itertools
import re
from types import TracebackType
from urllib.parse import urljoin

import httpx

from tests.harness.server_process import TIMEOUT_SECONDS, build_tls_context

MAX_STEPS = 12
ACTION = re.compile(r'<form[^>]*action="([^"]+)"')
PROMPT = re.compile(r'name="prompt" value="([^"]+)"')


_NUMBERS = itertools.count()
"""Of visitors. Tests make them in several threads."""


def choose_address(number: int) -> str:
    return f"127.{1 + number // 250 % 249}.{number % 250}.1"


class Visitor:
    """One user with cookies and an address of their own, as delays count failures by address."""

    def __init__(self, ca_file: str) -> None:
        transport = httpx.HTTPTransport(verify=build_tls_context(ca_file), local_address=choose_address(next(_NUMBERS)))
        self.client = httpx.Client(transport=transport, timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def get(self, url: str, **headers: str) -> httpx.Response:
        return self.client.get(url, headers=headers)

    def post(self, url: str, form: dict[str, str], **headers: str) -> httpx.Response:
        return self.client.post(url, data=form, headers=headers)

    def sign_in(self, authorization: str, name: str, callback: str) -> str:
        """Fills in the pages of a real provider, and returns the address that it sends the browser back to."""
        response = self.get(authorization)
        for _ in range(MAX_STEPS):
            if response.is_redirect:
                location = urljoin(str(response.url), response.headers["location"])
                if location.startswith(callback):
                    return location
                response = self.get(location)
            else:
                assert response.status_code == 200, response.text
                response = self._fill_in(response, name)
        raise AssertionError(f"not back at {callback} after {MAX_STEPS} steps, but at {response.url}")

    def _fill_in(self, page: httpx.Response, name: str) -> httpx.Response:
        prompt = PROMPT.search(page.text)
        if prompt is None:  # oidc-provider-mock has one form, which posts to its own address
            return self.post(str(page.url), {"sub": name})
        action = ACTION.search(page.text)
        assert action is not None, page.text
        form = {"prompt": prompt[1], "login": name, "password": "any"}
        return self.post(urljoin(str(page.url), html.unescape(action[1])), form)
