"""The editor for YAML: what it knows of a text and a schema, in Node.js, and CodeMirror in a real browser."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from fairlead.console.build import STATIC_FOLDER
from tests.console.browser import Page, role
from tests.console.conftest import SignIn
from tests.console.forms import read_editor
from tests.console.servers import ADMIN, PROJECT

SCRIPT = Path(__file__).parent / "editor.mjs"
EDITOR = ".cm-content"
PASS_DELAY = "new Promise((resolve) => setTimeout(resolve, 200))"
"""Keys in the first 75 ms of a list of completions are typed: nobody can have read it."""


def open_yaml(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"projects/{PROJECT}?view=yaml")
    page.wait_until(lambda: "displayName" in read_editor(page), "the editor has the text")


def test_fields_and_values_are_found_in_unfinished_texts(component: Callable[[str], Path]) -> None:
    command = [str(component("node")), str(SCRIPT), str(STATIC_FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "ok", done.stderr


def test_fields_are_completed_described_and_checked_by_the_schema(page: Page, sign_in: SignIn) -> None:
    open_yaml(page, sign_in)
    page.click(EDITOR)
    page.press("Control+End", "Enter")
    page.send("Input.insertText", text="sp")
    page.press("Control+Space")
    page.send("Input.insertText", text="x: 1")
    page.wait_for(".cm-lintRange-warning, .cm-lint-marker-warning")
    page.hover(".cm-lint-marker-warning")
    page.wait_for_text("There is no field spx here.", ".cm-tooltip")
    page.press("Control+f")
    page.wait_for(".cm-search input")
    page.press("Escape")
    page.fill(f"YAML of {PROJECT}", "apiVersion: management.service.sh/v1\nkind: Project\nspec:\n")
    page.press("Control+End")
    page.send("Input.insertText", text="  displayN")
    page.press("Control+Space")
    page.wait_for_text("displayName", ".cm-tooltip-autocomplete")
    page.eval(PASS_DELAY)
    page.press("Enter")
    page.wait_until(lambda: "  displayName: " in read_editor(page), "the field is completed")
    page.hover(".cm-line:nth-child(3) span")
    page.wait_for_text("an object with fields", ".field-about")


def test_blocks_are_folded(page: Page, sign_in: SignIn) -> None:
    open_yaml(page, sign_in)
    lines = page.count(".cm-line")
    page.click(".cm-foldGutter span[title='Fold line']")
    page.wait_until(lambda: page.count(".cm-line") < lines, "a block is folded")


def test_where_codemirror_is_missing_the_text_is_edited_plainly(page: Page, sign_in: SignIn) -> None:
    page.send("Network.setBlockedURLs", urls=["*vendor/codemirror.js"])
    page.allow_errors("ERR_BLOCKED_BY_CLIENT", "vendor/codemirror.js", "dynamically imported module")
    open_yaml(page, sign_in)
    assert page.count(".yaml textarea") == 1
    page.click(role("tab", "Overview"))
    page.click(role("tab", "YAML"))
    assert "displayName" in read_editor(page)


def test_the_editor_is_loaded_only_where_it_is_needed(page: Page, sign_in: SignIn) -> None:
    sign_in(page, ADMIN)
    page.goto(f"projects/{PROJECT}")
    page.wait_idle()
    assert not [each for each in page.requests if "codemirror" in each.path]
    page.click(role("tab", "YAML"))
    page.wait_for(EDITOR)
    assert [each for each in page.requests if "codemirror" in each.path]
