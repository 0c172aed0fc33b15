"""Helpers for tests of forms."""

import json
from typing import Any

from tests.console.browser import Page, role

MODULES = """performance.getEntriesByType('resource').map((each) => each.name)
  .find((name) => name.endsWith('/main.js')).replace(/main\\.js$/, '')"""
"""The address in the document is relative, and a page changes its own."""
EDITOR = ".yaml .cm-content"


def open_form(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for(role("button", "Create"))


def run_module(page: Page, script: str, **values: Any) -> Any:
    """The result of a script that uses the modules of the console. `load("core/kinds.js")` imports one."""
    names = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    head = f"const load = (path) => import({MODULES} + path);\n{names}"
    setup = """
      const { management } = await load("core/kinds.js");
      const { loadSchema } = await load("widgets/form/openapi.js");
      const { schemaForm } = await load("widgets/form/form.js");
    """
    return page.eval(f"(async () => {{ {head}{setup}{script} }})()")


READ_EDITOR = f"""(async () => {{
  const plain = document.querySelector(".yaml textarea");
  const content = document.querySelector(".yaml .cm-content");
  if (!content) return plain?.value ?? "";
  const {{ EditorView }} = await import({MODULES} + "vendor/codemirror.js");
  return EditorView.findFromDOM(content).state.doc.toString();
}})()"""


def read_editor(page: Page) -> str:
    """The text of the editor for YAML, once it is loaded."""
    page.wait_for(".yaml .cm-content, .yaml textarea")
    return str(page.eval(READ_EDITOR))


def replace_in_editor(page: Page, before: str, after: str) -> None:
    """Selects a text in the editor and pastes another one over it."""
    text = read_editor(page)
    assert before in text
    page.fill(page.attribute(EDITOR, "aria-label") or "", text.replace(before, after, 1))
