"""console.build: the files of the console, their addresses, and the page that loads them."""

import gzip
from pathlib import Path

import pytest

from fairlead.console import build as console_build
from fairlead.console.build import CONTENT_TYPES, MAX_PAGE_DEPTH, load_build

PAGE = '<title>x</title>\n{{preload}}\n<script type="module" src="{{assets}}/main.js"></script>\n'
FILES = {
    "index.html": PAGE,
    "main.js": 'import "./core/a.js";\nimport sheet from "./styles/a.css" with { type: "css" };\nimport("./later.js");\n'
    + "// comment\n" * 50,
    "core/a.js": "export {};\n",
    "later.js": "",
    "styles/a.css": "",
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


def test_the_template_is_not_an_asset(tmp_path: Path) -> None:
    assert load_build(write_files(tmp_path)).assets.keys() == FILES.keys() - {"index.html"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"notes.md": "x"}, "notes.md: files of the console end in one of"),
        ({"index.html": "{{other}}"}, "index.html: only {{assets}} and {{preload}} can be replaced"),
        ({"main.js": 'import "./none.js";'}, "main.js imports none.js, which does not exist"),
    ],
)
def test_files_that_do_not_fit_together_are_rejected(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as error:
        load_build(write_files(tmp_path, **changes))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["index.html", "main.js"])
def test_a_folder_without_the_page_or_its_first_module_is_rejected(tmp_path: Path, name: str) -> None:
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
