"""Every page of the console, in both themes, has no problem that axe-core finds."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.page_paths import PATHS
from tests.console.servers import ADMIN, PROJECT

OVERLAYS = {"the palette": ("Control+k",), "the shortcuts": ("?",)}
AXE = Path(__file__).parents[2] / ".tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
TAGS = ("wcag2a", "wcag2aa", "wcag21aa", "best-practice")
"""The rules of WCAG, and others such as those about the order of headings, landmarks and headers of tables."""
RUN = """axe.run(document, {resultTypes: ["violations"], runOnly: TAGS}).then((result) =>
  result.violations.map(({id, impact, nodes}) => ({id, impact, nodes: nodes.slice(0, 4).map((each) => each.html)})))"""


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; `make test-tools` installs it")
    return AXE.read_text(encoding="utf-8")


def find_problems(page: Page, axe: str) -> list[Any]:
    page.send("Runtime.evaluate", expression=axe)
    return list(page.eval(RUN.replace("TAGS", json.dumps(TAGS))))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_problem(page: Page, sign_in: SignIn, axe: str, theme: str) -> None:
    page.set_theme(theme)
    page.goto("")
    page.wait_for("dialog input")
    problems = {"sign-in": find_problems(page, axe)}
    sign_in(page, ADMIN)
    for path in PATHS:
        page.goto(path)
        page.wait_for("main .content", timeout=30)
        page.wait_idle(0.5, timeout=30)
        problems[path] = find_problems(page, axe)
        assert len(page.texts("main h1")) == 1, path
    assert {path: found for path, found in problems.items() if found} == {}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_above_a_page_has_a_problem(page: Page, sign_in: SignIn, axe: str, theme: str) -> None:
    page.set_theme(theme)
    sign_in(page, ADMIN)
    page.goto(f"projects/{PROJECT}")
    page.wait_for(role("button", "Delete…"))
    problems = {}
    for what, keys in OVERLAYS.items():
        page.press(*keys)
        page.wait_for("dialog[open]")
        page.wait_idle(0.5)
        problems[what] = find_problems(page, axe)
        page.press("Escape")
        page.wait_gone("dialog[open]")
    page.click(role("button", "Delete…"))
    page.wait_for("dialog[open]")
    page.wait_idle(0.5)
    problems["the question before a deletion"] = find_problems(page, axe)
    assert {what: found for what, found in problems.items() if found} == {}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_page_scrolls_sideways_on_a_phone(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.set_size(360, 740)
    wide = "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"
    for path in PATHS:
        page.goto(path)
        page.wait_for("main .content", timeout=30)
        page.wait_idle(0.3, timeout=30)
        assert page.eval(wide) <= 0, path
