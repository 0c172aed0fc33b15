"""Finds dead links and external assets in a built site."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ASSET_ATTRIBUTES = {"src", "srcset", "data", "poster", "action"}
ASSET_RELATIONS = {"stylesheet", "preload", "preconnect", "dns-prefetch", "icon", "manifest", "modulepreload"}


@dataclass(slots=True)
class Page:
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    assets: list[str] = field(default_factory=list)
    text: str = ""
    """The text outside of code."""


class PageParser(HTMLParser):
    """Collects the anchors, links, assets and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._code_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.page.anchors.update(values[name] for name in ("id", "name") if values.get(name) and tag != "meta")
        self.page.assets += [values[name] for name in sorted(ASSET_ATTRIBUTES & values.keys())]
        if "href" in values:
            is_asset = tag == "link" and not ASSET_RELATIONS.isdisjoint(values.get("rel", "").split())
            (self.page.assets if is_asset else self.page.links).append(values["href"])
        if tag in ("pre", "code", "script", "style"):
            self._code_depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("pre", "code", "script", "style"):
            self._code_depth -= 1

    def handle_data(self, data: str) -> None:
        if not self._code_depth:
            self.page.text += data


def read_pages(folder: Path) -> dict[Path, Page]:
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        parser = PageParser()
        parser.feed(path.read_text())
        pages[path.resolve()] = parser.page
    return pages


def find_link_problems(folder: Path) -> list[str]:
    """Links to pages and anchors that do not exist, assets of other hosts, and Markdown that was not rendered."""
    pages = read_pages(folder)
    return [
        f"{path.relative_to(folder.resolve())}: {problem}"
        for path, page in pages.items()
        for problem in find_page_problems(path, page, pages)
    ]


def find_page_problems(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    if "```" in page.text or "](" in page.text:
        yield "contains Markdown that was not rendered"
    for asset in page.assets:
        if urlsplit(asset).netloc:
            yield f"{asset}: an external asset"
    for link in (*page.links, *page.assets):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target = target / "index.html"
        # The error page is served at every address, so its links are absolute.
        if path.name == "404.html" and parts.path.startswith("/"):
            continue
        if not target.exists():
            yield f"{link}: no such file"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            yield f"{link}: no such anchor"
