"""Draws the console with the demo: `make screenshots`.

python -m tests.console.screenshots docs FOLDER     the pictures of docs/console.md
python -m tests.console.screenshots all FOLDER      every page at four widths in both themes, to be looked at
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.core.crypto.certificates import ensure_certificates
from tests.console.browser import Page, open_browser
from tests.console.page_paths import PATHS
from tests.console.servers import ADMIN, LOGIN_COOKIE, PROJECT, fill_with_demo, hash_public_key
from tests.console.servers import running_console as run_console
from tests.console.space_cluster import POD, SPACE_PAGE, running_space_cluster

DOCS = {
    "overview": "",
    "clusters": "clusters",
    "map": "map",
    "project": f"projects/{PROJECT}",
    "create": f"spaceinstances/~new?project={PROJECT}",
    "workspace": f"devpodworkspaceinstances/service-p-{PROJECT}/cart",
    "yaml": f"projects/{PROJECT}?view=yaml",
    "access": "access?verb=delete&resource=projects&group=management.service.sh&name=storefront",
    "audit": "audit",
}
THEMES = ("light", "dark")
DOCS_SIZE, PHONE_SIZE = (1280, 800), (360, 740)
SIZES = ((390, 844), (1024, 768), (1440, 900), (3840, 2160))
POD_PAGE = f"{SPACE_PAGE}/~browse/pods/corner/{POD}"
QUIET_SECONDS = 1.0


def draw(page: Page, path: str, file: Path) -> None:
    page.goto(path)
    page.wait_idle(QUIET_SECONDS)
    page.screenshot(file)


def draw_docs(page: Page, folder: Path) -> None:
    page.set_size(*DOCS_SIZE)
    for name, path in DOCS.items():
        draw_themes(page, path, folder / name)
    page.set_size(*PHONE_SIZE)
    draw_themes(page, "", folder / "phone")


def draw_themes(page: Page, path: str, stem: Path) -> None:
    for theme in THEMES:
        page.set_theme(theme)
        draw(page, path, stem.with_name(f"{stem.name}-{theme}.webp"))


def draw_everything(page: Page, folder: Path) -> None:
    """The window, as a user sees it first, not the whole length of the page."""
    for width, height in SIZES:
        page.set_size(width, height)
        for theme in THEMES:
            page.set_theme(theme)
            for path in (*PATHS, SPACE_PAGE, POD_PAGE):
                name = re.sub(r"\W+", "-", path).strip("-") or "overview"
                draw(page, path, folder / f"{name}-{width}-{theme}.png")


@contextmanager
def open_demo() -> Iterator[Page]:
    """A page of an administrator, on a server with the demo and a space with pods."""
    program = Path("/usr/bin/chromium-headless-shell")
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        certificates = ensure_certificates(base / "tls", ("localhost", "127.0.0.1"))
        key = hash_public_key(certificates.cert_file)
        with run_console(base / "data", certificates) as console, open_browser(program, base, [key]) as browser:
            fill_with_demo(console, base)
            with running_space_cluster(console):
                page = browser.new_page(console.url)
                page.set_cookie(LOGIN_COOKIE, console.log_in(ADMIN))
                yield page
                page.close_all()


def main(what: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open_demo() as page:
        if what == "docs":
            draw_docs(page, folder)
        else:
            draw_everything(page, folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
