"""Every page of the console, in both themes, has no serious problem that axe-core finds."""

from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import Page
from tests.console.conftest import SignIn
from tests.console.servers import ADMIN, PROJECT

PATHS = (
    *(
        "",
        "account",
        "about",
        "kinds",
        "settings",
        "audit",
        "access",
        "clusters",
        "clusters/~connect",
        "clusters/frankfurt",
    ),
    *("projects", "projects/~new", f"projects/{PROJECT}", f"projects/{PROJECT}?view=members"),
    *(
        f"projects/{PROJECT}?view=yaml",
        f"projects/{PROJECT}?view=events",
        "spaceinstances/~new",
        "apps",
        "apps/ingress",
    ),
    *(
        "devpodworkspaceinstances",
        f"devpodworkspaceinstances/service-p-{PROJECT}/cart",
        "users",
        "ownedaccesskeys/~new",
    ),
    *("ownedaccesskeys/storefront-ci", "events", "no/such/page"),
)
AXE = Path(__file__).parents[2] / ".tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")
RUN = """axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21aa"]}).then((result) =>
  result.violations.map(({id, impact, nodes}) => ({id, impact, nodes: nodes.slice(0, 4).map((each) => each.html)})))"""


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; `make test-tools` installs it")
    return AXE.read_text(encoding="utf-8")


def find_problems(page: Page, axe: str) -> list[Any]:
    page.send("Runtime.evaluate", expression=axe)
    return [each for each in page.eval(RUN) if each["impact"] in SERIOUS]


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_serious_problem(page: Page, sign_in: SignIn, axe: str, theme: str) -> None:
    page.set_theme(theme)
    page.goto("")
    page.wait_for("dialog input")
    problems = {"sign-in": find_problems(page, axe)}
    sign_in(page, ADMIN)
    for path in PATHS:
        page.goto(path)
        page.wait_for("main .content")
        page.wait_idle(0.5)
        problems[path] = find_problems(page, axe)
    assert {path: found for path, found in problems.items() if found} == {}


@pytest.mark.long
def test_no_page_scrolls_sideways_on_a_phone(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.set_size(360, 740)
    wide = "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"
    for path in PATHS:
        page.goto(path)
        page.wait_for("main .content")
        page.wait_idle(0.3)
        assert page.eval(wide) <= 0, path
