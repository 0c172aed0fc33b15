"""console.build: the files of the console, their addresses, and the page that loads them."""

import base64
import gzip
import hashlib
from pathlib import Path

import pytest

from fairlead.console import build as console_build
from fairlead.console.build import CONTENT_TYPES, MAX_PAGE_DEPTH, load_build

PAGE = '<title>x</title>\n{{preload}}\n<script type="module" src="{{assets}}/main.js"></script>\n'
FILES = {
    "index.html": PAGE,
    "main.js": 'import "./core/a.js";\nimport sheet from "./styles/a.css" with { type: "css" };\n'
    + 'import("./later.js");\n'
    + "later();\n" * 50,
    "core/a.js": "export {};\n",
    "later.js": "",
    "styles/a.css": "",
    "first.css": "",
    "first.js": "",
}


def write_files(folder: Path, **changes: str) -> Path:
    for path, text in (FILES | changes).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def test_the_page_preloads_modules_that_are_imported_statically(tmp_path: Path) -> None:
    build = load_build(write_files(tmp_path))
    assets = f"assets/{build.hash}"
    assert build.pages[0].body.decode().splitlines() == [
        "<title>x</title>",
        f'<link rel="modulepreload" href="{assets}/main.js">',
        f'<link rel="modulepreload" href="{assets}/core/a.js">',
        f'<script type="module" src="{assets}/main.js"></script>',
    ]


def test_addresses_in_the_page_climb_to_the_console_from_any_depth(tmp_path: Path) -> None:
    build = load_build(write_files(tmp_path))
    assert len(build.pages) == MAX_PAGE_DEPTH + 1
    assert f'src="../../assets/{build.hash}/main.js"'.encode() in build.pages[2].body
    assert len({page.digest for page in build.pages}) == len(build.pages)


def test_the_page_links_all_stylesheets_with_the_base_first(tmp_path: Path) -> None:
    files = {"index.html": "{{styles}}", "styles/base.css": "b {}", "styles/0.css": "i {}"}
    build = load_build(write_files(tmp_path, **files))
    names = [line.split("/styles/")[1] for line in build.pages[0].body.decode().splitlines()]
    assert names == ['base.css">', '0.css">', 'a.css">']


def test_modules_are_sent_without_indentation_and_comments_but_with_the_same_line_numbers(tmp_path: Path) -> None:
    files = {"core/a.js": "// why\nif (x) {\n  y(); // z\n}\n", "styles/a.css": "/* all */\nb {\n  top: 0;\n}\n"}
    build = load_build(write_files(tmp_path, **files))
    assert build.assets["core/a.js"].body == b"\nif (x) {\ny(); // z\n}\n"
    assert build.assets["styles/a.css"].body == b"\nb {\ntop: 0;\n}\n"


def test_vendored_files_are_sent_as_they_are(tmp_path: Path) -> None:
    source = "a = `\n  b`;\n"
    assert load_build(write_files(tmp_path, **{"vendor/a.js": source})).assets["vendor/a.js"].body == source.encode()


def test_comments_with_types_are_not_sent(tmp_path: Path) -> None:
    method = "  *c() {\n    /** @type {D} */ (d).e();\n  }\n"
    source = "/**\n * @param {any} a\n */\nclass A {\n  /** @type {B} */\n  b = 1;\n" + method + "}\n"
    styles = "/* two\n  lines */ b {\n}\n"
    build = load_build(write_files(tmp_path, **{"core/a.js": source, "styles/a.css": styles}))
    assert build.assets["core/a.js"].body == b"\n\n\nclass A {\n\nb = 1;\n*c() {\n(d).e();\n}\n}\n"
    assert build.assets["styles/a.css"].body == b"\nb {\n}\n"


def test_no_text_of_a_module_spans_lines() -> None:
    """Indentation is removed from all lines, so it must not be part of a text."""
    lines = [
        f"{file.name}:{number}: {line}"
        for file in console_build.STATIC_FOLDER.rglob("*.js")
        if file.parent.name != "vendor"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if not line.strip().startswith("//") and line.replace("\\`", "").count("`") % 2
    ]
    assert lines == []


def test_the_hash_changes_with_every_name_and_content(tmp_path: Path) -> None:
    hashes = {
        load_build(write_files(tmp_path / str(number), **change)).hash
        for number, change in enumerate(
            [{}, {"core/a.js": "export { };\n"}, {"index.html": PAGE + " "}, {"empty.js": ""}, {"vacant.js": ""}]
        )
    }
    assert len(hashes) == 5
    assert load_build(write_files(tmp_path / "again")).hash in hashes


def test_files_are_compressed_once_if_that_makes_them_smaller(tmp_path: Path) -> None:
    build = load_build(write_files(tmp_path))
    main = build.assets["main.js"]
    assert main.compressed is not None and gzip.decompress(main.compressed) == main.body
    assert build.assets["later.js"].compressed is None


def test_the_template_and_what_is_in_it_are_no_assets(tmp_path: Path) -> None:
    assert load_build(write_files(tmp_path)).assets.keys() == FILES.keys() - {"index.html", "first.css", "first.js"}


def test_what_the_page_needs_first_is_in_it_and_allowed_by_its_digest(tmp_path: Path) -> None:
    page = "<style>{{first.css}}</style><script>{{first.js}}</script>"
    build = load_build(write_files(tmp_path, **{"index.html": page, "first.css": "b { top: 0 }", "first.js": "a();"}))
    assert build.pages[1].body == b"<style>b { top: 0 }</style><script>a();</script>"
    assert build.style_source == "'sha256-" + digest(b"b { top: 0 }") + "'"
    assert build.script_source == "'sha256-" + digest(b"a();") + "'"


def digest(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def test_the_stylesheets_of_the_shipped_page_are_behind_its_skeleton() -> None:
    head, _, body = load_build().pages[0].body.partition(b"<body>")
    assert b'rel="stylesheet"' not in head
    assert body.index(b'class="skeleton"') < body.index(b'rel="stylesheet"')


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"notes.md": "x"}, "notes.md: files of the console end in one of"),
        (
            {"index.html": "{{other}}"},
            "{{assets}}, {{preload}}, {{styles}}, {{first.css}}, {{first.js}} can be replaced",
        ),
        ({"main.js": 'import "./none.js";'}, "main.js imports none.js, which does not exist"),
    ],
)
def test_files_that_do_not_fit_together_are_rejected(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as error:
        load_build(write_files(tmp_path, **changes))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["index.html", "main.js", "first.css", "first.js"])
def test_a_folder_without_the_page_or_what_it_needs_first_is_rejected(tmp_path: Path, name: str) -> None:
    write_files(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=f"the console has no {name}"):
        load_build(tmp_path)


def test_the_number_and_size_of_the_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path)
    monkeypatch.setattr(console_build, "MAX_FILES", len(FILES) - 1)
    with pytest.raises(ValueError, match="more than"):
        load_build(tmp_path)
    monkeypatch.setattr(console_build, "MAX_FILES", len(FILES))
    monkeypatch.setattr(console_build, "MAX_TOTAL_BYTES", 100)
    with pytest.raises(ValueError, match="more than"):
        load_build(tmp_path)


def test_the_shipped_files_load_and_their_text_types_have_a_charset() -> None:
    build = load_build()
    assert b"<!doctype html>" in build.pages[0].body
    assert build.assets["main.js"].content_type == "text/javascript; charset=utf-8"
    without_charset = {suffix for suffix, content_type in CONTENT_TYPES.items() if "charset" not in content_type}
    assert without_charset == {".png", ".ico", ".woff2"}
