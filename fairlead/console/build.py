"""Loads the files of the console into memory, and renders the page that loads them.

Every file is served below a folder with the hash of the whole build: `/console/assets/HASH/main.js`. So browsers can
keep a file forever, and a page never mixes the files of two builds.

All other paths below `/console/` are pages, and get index.html. It is a template. `{{assets}}` is replaced by the
address of the folder of the build, without a slash at the end. `{{preload}}` is replaced by a `modulepreload` link for
each module that main.js imports statically, directly or indirectly, and `{{styles}}` by links to all stylesheets.

A browser paints nothing until it has the stylesheets in the head, which takes seconds on a slow network. So these links
are at the end of the body, behind a skeleton of the page. What that needs is in the page itself: `{{first.css}}` and
`{{first.js}}` are replaced by these files. The content security policy allows both by their digests.

Addresses in the page are relative, because a proxy may serve it below any path. They depend on the depth of the page's
own path. `<base>` would do the same, but the content security policy forbids it.
"""

import base64
import gzip
import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

CONSOLE_PATH = "/console"
PAGES_PATH = f"{CONSOLE_PATH}/"
ASSETS_PATH = f"{CONSOLE_PATH}/assets/"

STATIC_FOLDER = Path(__file__).parent / "static"
VENDORED = "vendor/"
"""What others wrote, as small as it gets, with its licences."""
INDEX, ENTRY_MODULE, BASE_STYLES = "index.html", "main.js", "styles/base.css"
FIRST_STYLES, FIRST_SCRIPT = "first.css", "first.js"
REPLACED = ("assets", "preload", "styles", FIRST_STYLES, FIRST_SCRIPT)
MAX_FILES, MAX_TOTAL_BYTES = 500, 8 * 1024 * 1024
MAX_PAGE_DEPTH = 16
"""Slashes in the path of a page, below `/console/`."""
GZIP_LEVEL = 9
HASH_LENGTH = 16

CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".webmanifest": "application/manifest+json; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent. `compressed` is None if gzip does not make it smaller. `digest` identifies the content."""

    content_type: str
    body: bytes
    compressed: bytes | None
    digest: str


@dataclass(frozen=True, slots=True)
class ConsoleBuild:
    """All files of the console. `pages` has index.html by the depth of the page's path. The sources are those of a
    content security policy, for what is inline in the pages."""

    hash: str
    assets: Mapping[str, StaticFile]
    pages: tuple[StaticFile, ...]
    style_source: str
    script_source: str


def load_build(folder: Path = STATIC_FOLDER) -> ConsoleBuild:
    """Reads the files of a folder. Raises ValueError if they do not fit together."""
    contents = _read_files(folder)
    for needed in (INDEX, ENTRY_MODULE, FIRST_STYLES, FIRST_SCRIPT):
        if needed not in contents:
            raise ValueError(f"{folder}: the console has no {needed}")
    build_hash = _hash_files(contents)
    template = contents.pop(INDEX).decode()
    first = {path: contents.pop(path) for path in (FIRST_STYLES, FIRST_SCRIPT)}
    modules = [path for path in find_static_graph(ENTRY_MODULE, contents) if path.endswith(".js")]
    preload = "\n".join(f'<link rel="modulepreload" href="{{{{assets}}}}/{path}">' for path in modules)
    styles = "\n".join(f'<link rel="stylesheet" href="{{{{assets}}}}/{path}">' for path in _list_styles(contents))
    template = template.replace("{{preload}}", preload).replace("{{styles}}", styles)
    for path, content in first.items():
        template = template.replace(f"{{{{{path}}}}}", content.decode())
    return ConsoleBuild(
        hash=build_hash,
        assets={path: _encode_file(path, content) for path, content in contents.items()},
        pages=tuple(_render_page(template, build_hash, depth) for depth in range(MAX_PAGE_DEPTH + 1)),
        style_source=_describe_source(first[FIRST_STYLES]),
        script_source=_describe_source(first[FIRST_SCRIPT]),
    )


def _describe_source(content: bytes) -> str:
    """What a content security policy allows, by its digest."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


def _read_files(folder: Path) -> dict[str, bytes]:
    """The content of all files by path, in order of their paths."""
    found: dict[str, bytes] = {}
    total = 0
    for file in sorted(folder.rglob("*")):
        if not file.is_file():
            continue
        path = file.relative_to(folder).as_posix()
        if file.suffix not in CONTENT_TYPES:
            raise ValueError(f"{path}: files of the console end in one of {', '.join(CONTENT_TYPES)}")
        content = file.read_bytes()
        found[path] = content if path.startswith(VENDORED) else _strip_lines(file.suffix, content)
        total += len(found[path])
        if len(found) > MAX_FILES or total > MAX_TOTAL_BYTES:
            raise ValueError(f"{folder}: more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes")
    return found


def _strip_lines(suffix: str, content: bytes) -> bytes:
    """Modules and stylesheets without indentation and lines of comments: a seventh of their size.

    The lines keep their numbers, so that an error in the browser leads to the right line of the source. No text of a
    module spans lines, which a test checks.
    """
    if suffix not in {".js", ".css"}:
        return content
    return b"\n".join(_strip_comments(content.split(b"\n"), has_line_comments=suffix == ".js"))


def _strip_comments(lines: Iterable[bytes], has_line_comments: bool) -> Iterator[bytes]:
    """Comments that begin a line. What follows a comment in its last line stays, such as `/** @type {X} */ (y).z`."""
    is_inside = False
    for raw in lines:
        line = raw.strip()
        if is_inside or line.startswith(b"/*"):
            _, end, rest = line.partition(b"*/")
            is_inside = not end
            yield rest.strip()
        elif has_line_comments and line.startswith(b"//"):
            yield b""
        else:
            yield line


def _list_styles(paths: Iterable[str]) -> list[str]:
    """The stylesheets; those of areas may override the base."""
    return sorted((path for path in paths if path.endswith(".css")), key=lambda path: (path != BASE_STYLES, path))


def _hash_files(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in contents.items():
        digest.update(f"{path}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:HASH_LENGTH]


def _render_page(template: str, build_hash: str, depth: int) -> StaticFile:
    prefix = "../" * depth
    page = template.replace("{{assets}}", f"{prefix}assets/{build_hash}")
    if "{{" in page:
        raise ValueError(f"{INDEX}: only {', '.join(f'{{{{{name}}}}}' for name in REPLACED)} can be replaced")
    return _encode_file(INDEX, page.encode())


def _encode_file(path: str, content: bytes) -> StaticFile:
    compressed = gzip.compress(content, GZIP_LEVEL, mtime=0)
    return StaticFile(
        CONTENT_TYPES[PurePosixPath(path).suffix],
        content,
        compressed if len(compressed) < len(content) else None,
        hashlib.sha256(content).hexdigest()[:HASH_LENGTH],
    )


_NAMES = r"[\w$\s{},*]+?\s*from\s*"
_find_imports = re.compile(
    rf"""^[ \t]*(?:import\s*(?:{_NAMES})?|export\s*{_NAMES})["'](\.{{1,2}}/[^"'\n]+)["']""", re.MULTILINE | re.ASCII
).findall


def list_imports(path: str, source: str) -> Iterator[str]:
    """The paths of the files that a module imports statically, relative to the same folder as `path`."""
    for address in _find_imports(source):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(path), address))


def find_static_graph(entry: str, sources: Mapping[str, bytes]) -> tuple[str, ...]:
    """The module `entry` and all files that it imports directly or indirectly, in the order in which they are found.

    Raises ValueError if a module imports a file that is not in `sources`.
    """
    found = [entry]
    for path in found:
        if not path.endswith(".js"):
            continue
        for imported in list_imports(path, sources[path].decode()):
            if imported not in sources:
                raise ValueError(f"{path} imports {imported}, which does not exist")
            if imported not in found:
                found.append(imported)
    return tuple(found)
