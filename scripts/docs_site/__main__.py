"""Builds the site: prepares the pages, checks the navigation, runs an engine without warnings, checks all links.

python -m scripts.docs_site [--engine zensical|mkdocs] [--site build/docs/site] [--version VERSION]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.docs_site.links import find_link_problems
from scripts.docs_site.navigation import find_navigation_problems
from scripts.docs_site.pages import Pages
from scripts.docs_site.versions import list_versions, publish

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "docs"
ENGINES = {
    "zensical": ["-m", "zensical", "build", "--clean", "--strict"],
    "mkdocs": ["-m", "mkdocs", "build", "--clean", "--strict", "--quiet"],
}
WARNING = re.compile(r"warning|error", re.IGNORECASE)
QUIET = {"NO_COLOR": "1", "NO_MKDOCS_2_WARNING": "1"}
"""Variables of the engines: plain output, and no announcement of Material that is not about these pages."""


def read_version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"', (ROOT / "fairlead" / "__init__.py").read_text(), re.MULTILINE)
    if not found:
        raise SystemExit("error: fairlead/__init__.py has no __version__")
    return found[1]


def run_engine(engine: str) -> list[str]:
    """Builds the prepared pages. What the engine reports as warnings."""
    command = [sys.executable, *ENGINES[engine], "--config-file", str(ROOT / "mkdocs.yml")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **QUIET})
    output = result.stdout + result.stderr
    if result.returncode:
        return [output.strip()]
    return [line for line in output.splitlines() if WARNING.search(line)]


def fail(problems: list[str]) -> None:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.docs_site", description="Builds the documentation site.")
    parser.add_argument("--engine", choices=ENGINES, default="zensical")
    parser.add_argument("--site", type=Path, default=BUILD / "site", help="folder with a folder for each version")
    parser.add_argument("--version", default=read_version())
    options = parser.parse_args()
    fail(find_navigation_problems(ROOT))
    Pages(ROOT, BUILD / "pages").write()
    shutil.rmtree(BUILD / "new", ignore_errors=True)
    fail(run_engine(options.engine))
    fail(find_link_problems(BUILD / "new"))
    count = len([*(BUILD / "new").rglob("*.html")]) - 1  # without 404.html
    publish(BUILD / "new", options.site, options.version)
    versions = ", ".join(list_versions(options.site))
    print(f"{count} pages of version {options.version}, built with {options.engine}: {options.site}/index.html")
    print(f"no warnings, no dead links, no external assets; versions: {versions}")


if __name__ == "__main__":
    main()
