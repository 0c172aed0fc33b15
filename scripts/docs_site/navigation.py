"""`nav` in mkdocs.yml lists every page once, and nothing else."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from scripts.docs_site.pages import ROOT_DOCUMENTS


def find_navigation_problems(root: Path) -> list[str]:
    """What differs between `nav` and the pages in docs/, as messages that say what to do."""
    nav = yaml.safe_load((root / "mkdocs.yml").read_text())["nav"]
    listed = Counter(iterate_pages(nav))
    docs = root / "docs"
    existing = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} | {*ROOT_DOCUMENTS.values()}
    return [
        *(f"docs/{name} is not in nav of mkdocs.yml; add it to a section" for name in sorted(existing - {*listed})),
        *(f"nav of mkdocs.yml lists {name}, which does not exist; remove it" for name in sorted({*listed} - existing)),
        *(f"nav of mkdocs.yml lists {name} {n} times; keep one of them" for name, n in sorted(listed.items()) if n > 1),
    ]


def iterate_pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from iterate_pages(each)
