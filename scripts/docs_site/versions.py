"""The site has a folder for each version: building a version replaces its folder and leaves the others as they are.

versions.json in the format of mike is the list for the selector in the pages; index.html is the same list for readers,
and leads to the newest version. Both are written from the folders, so the site is complete without a service.
"""

import html
import json
import re
import shutil
from pathlib import Path

MARK = "version.txt"
"""A file in the folder of a version. Folders without it are not versions."""
INDEX = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Fairlead: documentation</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html"></head>
<body><h1>Fairlead: documentation</h1>
<ul>
{items}
</ul></body>
</html>
"""


def publish(built: Path, site: Path, version: str) -> None:
    """Moves a built site into the folder of its version, and writes the list of versions."""
    folder = site / version
    site.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(built, folder)
    (folder / MARK).write_text(f"{version}\n")
    versions = list_versions(site)
    newest = versions[0]
    entries = [{"version": each, "title": each, "aliases": ["latest"] if each == newest else []} for each in versions]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n")
    items = (f'<li><a href="{html.escape(each)}/index.html">{html.escape(each)}</a></li>' for each in versions)
    (site / "index.html").write_text(INDEX.format(newest=html.escape(newest), items="\n".join(items)))


def list_versions(site: Path) -> list[str]:
    """The versions whose folders exist, newest first."""
    return sorted((path.parent.name for path in site.glob(f"*/{MARK}")), key=sort_key, reverse=True)


def sort_key(version: str) -> tuple[tuple[int, ...], bool, str]:
    """Orders versions by their numbers; a version without a suffix is newer than its release candidates."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    release = tuple(int(each) for each in numbers[0].split(".")) if numbers else ()
    suffix = version[numbers.end() :] if numbers else version
    return release, not suffix, suffix
