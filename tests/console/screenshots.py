"""Draws the pictures of docs/console.md: `python -m tests.console.screenshots docs/console`. By chromium and cwebp."""

import subprocess
import sys
import tempfile
from pathlib import Path

from fairlead.core.crypto.certificates import ensure_certificates
from tests.console.browser import Page, open_browser
from tests.console.servers import ADMIN, LOGIN_COOKIE, PROJECT, ConsoleServer, fill_with_demo, hash_public_key
from tests.console.servers import running_console as run_console

PAGES = {
    "overview": "",
    "clusters": "clusters",
    "project": f"projects/{PROJECT}",
    "create": f"spaceinstances/~new?project={PROJECT}",
    "workspace": f"devpodworkspaceinstances/service-p-{PROJECT}/cart",
    "yaml": f"projects/{PROJECT}?view=yaml",
    "access": "access?verb=delete&resource=projects&group=management.service.sh&name=storefront",
    "audit": "audit",
}
THEMES = ("light", "dark")
WIDTH, HEIGHT = 1280, 800


def draw(page: Page, name: str, path: str, folder: Path) -> None:
    for theme in THEMES:
        page.set_theme(theme)
        page.goto(path)
        page.wait_idle(1.0)
        picture = folder / f"{name}-{theme}.png"
        page.screenshot(picture)
        subprocess.run(
            ["cwebp", "-quiet", "-q", "70", str(picture), "-o", str(picture.with_suffix(".webp"))], check=True
        )
        picture.unlink()


def draw_all(console: ConsoleServer, page: Page, folder: Path) -> None:
    page.set_cookie(LOGIN_COOKIE, console.log_in(ADMIN))
    page.set_size(WIDTH, HEIGHT)
    for name, path in PAGES.items():
        draw(page, name, path, folder)
    page.set_size(360, 740)
    draw(page, "phone", "", folder)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    program = Path("/usr/bin/chromium-headless-shell")
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        certificates = ensure_certificates(base / "tls", ("localhost", "127.0.0.1"))
        key = hash_public_key(certificates.cert_file)
        with run_console(base / "data", certificates) as console, open_browser(program, base, [key]) as browser:
            fill_with_demo(console, base)
            page = browser.new_page(console.url)
            draw_all(console, page, folder)
            page.close_all()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
