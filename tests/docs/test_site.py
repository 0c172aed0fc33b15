"""The documentation site: its pages, navigation, versions and links; two engines build it without a network."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.docs_site.links import find_link_problems
from scripts.docs_site.navigation import find_navigation_problems
from scripts.docs_site.pages import Pages, add_anchors, convert_lists, remove_comments
from scripts.docs_site.versions import list_versions, publish

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_is_in_the_navigation() -> None:
    assert find_navigation_problems(ROOT) == []


def test_what_is_wrong_in_the_navigation_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("listed", "missing"):
        (tmp_path / "docs" / f"{name}.md").write_text("# Page\n")
    roots = ["overview.md", "changelog.md", "contributing.md", "security.md"]
    nav = [*roots, {"A": [{"B": "listed.md"}, {"C": "listed.md"}, "gone.md"]}]
    (tmp_path / "mkdocs.yml").write_text(json.dumps({"nav": nav}))
    assert find_navigation_problems(tmp_path) == [
        "docs/missing.md is not in nav of mkdocs.yml; add it to a section",
        "nav of mkdocs.yml lists gone.md, which does not exist; remove it",
        "nav of mkdocs.yml lists listed.md 2 times; keep one of them",
    ]


def test_lists_are_indented_as_the_engines_need_it() -> None:
    page = [
        "text",
        "- one",
        "  more",
        "  - two",
        "",
        "  ```sh",
        "  ls",
        "    x",
        "  ```",
        "",
        "1. three",
        "   four",
        "end",
    ]
    assert convert_lists(page) == [
        *("text", "", "- one", "    more", "    - two", "", "    ```sh", "    ls", "      x", "    ```", ""),
        *("1. three", "    four", "end"),
    ]


def test_the_text_of_an_item_may_be_indented_further() -> None:
    page = ["1. one", "", "    ```yaml", "    a:", "      b", "    ```", "2. two"]
    assert convert_lists(page) == page


def test_comments_are_not_on_the_site() -> None:
    page = ["a", "<!-- x -->", "b", "  <!-- run first:", "# y", "-->", "c", "```", "<!-- z -->", "```"]
    assert remove_comments(page) == ["a", "b", "c", "```", "<!-- z -->", "```"]


def test_headings_have_the_anchors_of_github() -> None:
    page = ["## `Ready`, a / b", "## Same", "```", "# not a heading", "```", "## Same"]
    assert add_anchors(page) == [
        "## `Ready`, a / b {#ready-a--b}",
        *("## Same {#same}", "```", "# not a heading", "```", "## Same {#same-1}"),
    ]


def test_links_out_of_the_docs_lead_to_pages(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "docs" / "sub").mkdir(parents=True)
    (root / "examples").mkdir()
    (root / "examples" / "app.yaml").write_text("kind: App\n")
    (root / "LICENSE").write_text("Terms\n")
    for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY"):
        (root / f"{name}.md").write_text(
            f"# {name}\n[![a\nb](docs/x.svg)](docs/page.md#top) [l](LICENSE) `[no](link)`\n"
        )
    (root / "docs" / "page.md").write_text(
        "[e](../examples/app.yaml) [r](../README.md#x) [s](sub/p.md) [h](https://x/y)\n"
    )
    (root / "docs" / "sub" / "p.md").write_text("[e](../../examples) [up](../page.md)\n")
    pages = tmp_path / "pages"
    Pages(root, pages).write()
    assert (pages / "page.md").read_text() == (
        "[e](files/examples.md#appyaml) [r](overview.md#x) [s](sub/p.md) [h](https://x/y)\n"
    )
    assert (pages / "sub" / "p.md").read_text() == "[e](../files/examples.md) [up](../page.md)\n"
    assert (pages / "overview.md").read_text().splitlines()[1:] == [
        "[![a",
        "b](x.svg)](page.md#top) [l](files/license.md#license) `[no](link)`",
    ]
    assert "## `app.yaml` {#appyaml}\n\n```yaml\nkind: App\n```" in (pages / "files" / "examples.md").read_text()


def test_problems_of_a_built_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="x">A</h1><a href="b.html#y">1</a><a href="b.html#n">2</a><a href="#x">3</a><a href="c.html">4</a>'
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="//fonts.example/f.css">'
        '<a href="https://elsewhere.example/">5</a>'
    )
    (tmp_path / "b.html").write_text('<p id="y">[text](link)</p><code>[text](link)</code>')
    assert find_link_problems(tmp_path) == [
        "a.html: https://cdn.example/x.js: an external asset",
        "a.html: //fonts.example/f.css: an external asset",
        "a.html: b.html#n: no such anchor",
        "a.html: c.html: no such file",
        "b.html: contains Markdown that was not rendered",
    ]


def test_each_version_has_a_folder_and_the_newest_is_first(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for version in ("0.2.0", "0.10.0", "0.10.0rc1", "0.2.0"):
        built = tmp_path / "new"
        built.mkdir()
        (built / "index.html").write_text(f"<p>{version}</p>")
        publish(built, site, version)
    assert list_versions(site) == ["0.10.0", "0.10.0rc1", "0.2.0"]
    entries = json.loads((site / "versions.json").read_text())
    assert [(each["version"], each["aliases"]) for each in entries] == [
        ("0.10.0", ["latest"]),
        ("0.10.0rc1", []),
        ("0.2.0", []),
    ]
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()
    assert find_link_problems(site) == []


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["zensical", "mkdocs"])
def test_an_engine_builds_the_site_without_a_network(engine: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".git", ".venv*", ".tools", "build", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    python = ROOT / ".venv-docs" / "bin" / "python"
    assert python.exists(), "run: make docs"
    command = ["unshare", "--net", str(python), "-m", "scripts.docs_site", "--engine", engine]
    result = subprocess.run(
        command, cwd=checkout, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no warnings, no dead links, no external assets" in result.stdout
    (folder,) = (checkout / "build" / "docs" / "site").glob("*/")
    pages = len([*folder.rglob("*.html")])
    assert pages > len([*(ROOT / "docs").rglob("*.md")])
    index = next(path for path in (folder / "search.json", folder / "search" / "search_index.json") if path.exists())
    assert "Password login" in index.read_text()
