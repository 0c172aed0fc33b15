"""Fixtures for tests of the console in a real browser: one browser per process, one server per file.

`page` fails its test if there was an error in the console of the browser, or a violation of the content security
policy. `server` has the demo fleet and the users of `servers.py`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.core.crypto.certificates import Certificates, ensure_certificates
from tests.console.browser import Browser, Page, open_browser
from tests.console.servers import LOGIN_COOKIE, ConsoleServer, fill_with_demo, hash_public_key, running_console

SignIn = Callable[[Page, str], None]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificate of all servers that the browser visits."""
    return ensure_certificates(
        tmp_path_factory.mktemp("certificates"), ("localhost", "127.0.0.1", "*.workspaces.localhost")
    )


@pytest.fixture(scope="session")
def browser(
    tmp_path_factory: pytest.TempPathFactory, component: Callable[[str], Path], certificates: Certificates
) -> Iterator[Browser]:
    program, folder = component("chromium-headless-shell"), tmp_path_factory.mktemp("chromium")
    with open_browser(program, folder, [hash_public_key(certificates.cert_file)]) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ConsoleServer]:
    """A server with the demo fleet. Tests of one file share it."""
    folder = tmp_path_factory.mktemp("console")
    with running_console(folder / "data", certificates) as console:
        fill_with_demo(console, folder)
        yield console


@pytest.fixture
def page(browser: Browser, server: ConsoleServer) -> Iterator[Page]:
    """A page that is not signed in, with cookies, storage and cache of its own."""
    page = browser.new_page(server.url)
    try:
        yield page
        assert page.errors == []
    finally:
        page.close_all()


@pytest.fixture
def sign_in(server: ConsoleServer) -> SignIn:
    """`sign_in(page, "viewer")`: gives the page the cookie of a new login, without the form."""

    def give_cookie(page: Page, user: str) -> None:
        page.set_cookie(LOGIN_COOKIE, server.log_in(user))

    return give_cookie
