"""controllers.helm.chart_archive: what helm gets of a chart that tries to reach for anything else."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fairlead.controllers.helm import chart_archive
from fairlead.controllers.helm.chart_archive import Budget, InvalidArchive, copy_archive, refers_elsewhere

CHART = {"vc/Chart.yaml": b"apiVersion: v2\nname: vc\nversion: 1.2.3\n", "vc/templates/x.yaml": b"a: {{ .Values.a }}"}
FOREIGN = json.dumps({"$ref": "file:///etc/passwd"}).encode()


def pack(files: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in others:
            archive.addfile(entry)
    return packed.getvalue()


def unpack(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_an_ordinary_chart_is_copied_as_it_is() -> None:
    schema = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#/b"}}})
    files = {**CHART, "vc/values.schema.json": schema.encode(), "vc/charts/sub/Chart.yaml": b"name: sub"}
    nested = {**files, "vc/charts/packed-1.0.0.tgz": pack(CHART)}
    copied = unpack(copy_archive(pack(nested), Budget()))
    assert {name: content for name, content in copied.items() if not name.endswith(".tgz")} == files
    assert unpack(copied["vc/charts/packed-1.0.0.tgz"]) == CHART


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "file:///etc/passwd"},
        {"$ref": "http://169.254.169.254/latest/meta-data"},
        {"$ref": "../kubeconfig"},
        {"$ref": "kubeconfig#/users"},
        {"$ref": "//host/x"},
        {"$ref": ""},
        {"$dynamicRef": "file:///dev/zero"},
        {"$recursiveRef": "file:///dev/zero"},
        {"$schema": "file:///etc/passwd"},
        {"$schema": "http://json-schema.org.evil.example/draft-07/schema"},
        {"$schema": "http://json-schema.org/draft-07/schema/../../x"},
        {"$id": "http://127.0.0.1/", "$ref": "x"},
        {"$id": "file:///etc/passwd#x", "$ref": "#/y"},
        {"id": "file:///etc/passwd#x", "properties": {"a": {"$ref": "#"}}},
        {"$id": "http://127.0.0.1/x#y", "items": {"$ref": "#/y"}},
        {"$id": "http://127.0.0.1/", "items": {"$id": "x#y", "not": {"$ref": "#/y"}}},
        {"properties": {"a": {"$id": "file:///etc/passwd#x", "items": {"$ref": "#/y"}}}},
        {"enum": [{"$id": "http://127.0.0.1/x"}], "$ref": "#/enum/0"},
        {"allOf": [{"properties": {"a": {"items": [{"$ref": "file:///etc/passwd"}]}}}]},
        {"$defs": {"a": {"if": {"$ref": "urn:x"}}}},
    ],
)
def test_a_schema_that_refers_to_another_document_is_left_out(schema: object) -> None:
    content = json.dumps(schema).encode()
    assert refers_elsewhere(content)
    assert unpack(copy_archive(pack({**CHART, "vc/values.schema.json": content}), Budget())) == CHART


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "https://example.com/vc/values.schema.json", "items": {"$ref": "#/definitions/a"}},
        {"id": "http://example.com/root.json#", "items": {"id": "#a"}, "not": {"$ref": "#a"}},
        {"properties": {"a": {"default": {"id": "some text"}}}},
        {"properties": {"id": {"$ref": "#/definitions/id"}, "$id": {"type": "string"}}},
    ],
)
def test_a_schema_with_ids_that_refers_to_itself_is_kept(schema: object) -> None:
    assert not refers_elsewhere(json.dumps(schema).encode())


@pytest.mark.parametrize(
    "text",
    [
        b'{"$ref": "file:///etc/passwd", "$ref": "#/a"}',
        b'{"\\u0024ref": "file:///etc/passwd"}',
        b'{"a": ' * 100_000,
        b"\xff\xfe{",
        b"{",
    ],
)
def test_a_schema_that_could_be_read_in_two_ways_is_left_out(text: bytes) -> None:
    assert refers_elsewhere(text)


@pytest.mark.parametrize(
    "name",
    [
        "vc/charts/sub/values.schema.json",
        "vc/values.schema.json/.",
        "vc/./values.schema.json",
        "vc/a/../values.schema.json",
        "vc\\values.schema.json",
        "vc//values.schema.json",
    ],
)
def test_it_is_recognized_under_any_spelling_of_its_name(name: str) -> None:
    assert FOREIGN not in unpack(copy_archive(pack({**CHART, name: FOREIGN}), Budget())).values()


def test_it_is_found_in_charts_in_charts() -> None:
    inner = pack({**CHART, "vc/values.schema.json": FOREIGN})
    outer = pack({**CHART, "vc/charts/a-1.tgz": pack({**CHART, "vc/charts/b-1.tgz": inner})})
    copied = unpack(unpack(copy_archive(outer, Budget()))["vc/charts/a-1.tgz"])
    assert unpack(copied["vc/charts/b-1.tgz"]) == CHART


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_left_out(kind: bytes) -> None:
    content = pack(CHART, link("vc/values.yaml", "/etc/passwd", kind))
    assert unpack(copy_archive(content, Budget())) == CHART


def test_a_chart_that_unpacks_to_too_much_is_refused() -> None:
    bomb = pack({**CHART, "vc/zeros": b"\0" * 200_000})
    with pytest.raises(InvalidArchive):
        copy_archive(bomb, Budget(size=100_000))
    with pytest.raises(InvalidArchive):
        copy_archive(pack({**CHART, "vc/charts/a.tgz": bomb}), Budget(size=100_000))
    with pytest.raises(InvalidArchive):
        copy_archive(pack({f"vc/{number}": b"" for number in range(20)}), Budget(files=10))


def test_headers_that_unpack_to_too_much_are_refused() -> None:
    """A path of 300 kB is a file of the tar stream that the budget of files does not count."""
    content = pack({f"vc/{'x' * 300_000}": b""})
    with pytest.raises(InvalidArchive, match="too large"):
        copy_archive(content, Budget(stream=200_000))
    with pytest.raises(InvalidArchive, match="too large"):
        copy_archive(pack({**CHART, "vc/charts/a.tgz": content}), Budget(stream=200_000))


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../x",
        "vc/../../x",
        "vc\\..\\..\\x",
        "C:\\x",
        "c:/x",
        "vc/\x1b[2J",
        "vc/" + "x" * 1100,
        "vc/" * 65 + "x",
    ],
)
def test_paths_that_lead_out_of_the_chart_or_are_too_long_are_refused(name: str) -> None:
    with pytest.raises(InvalidArchive, match="a path"):
        copy_archive(pack({**CHART, name: b""}), Budget())


def test_charts_that_are_nested_without_end_are_refused() -> None:
    content = pack(CHART)
    for _ in range(chart_archive.MAX_NESTING + 1):
        content = pack({**CHART, "vc/charts/a.tgz": content})
    with pytest.raises(InvalidArchive):
        copy_archive(content, Budget())


NO_ARCHIVES = {"empty": b"", "text": b"not an archive", "cut": pack(CHART)[:60], "a header": b"\x1f\x8b" + b"x" * 100}


@pytest.mark.parametrize("name", NO_ARCHIVES)
def test_what_is_no_archive_is_refused(name: str) -> None:
    content = NO_ARCHIVES[name]
    with pytest.raises(InvalidArchive):
        copy_archive(content, Budget())
    with pytest.raises(InvalidArchive):
        copy_archive(pack({**CHART, "vc/charts/a.tgz": content}), Budget())


def test_the_program_copies_a_file_and_writes_nothing_for_a_bad_one(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(pack(CHART))
    (tmp_path / "bad").write_bytes(b"x")
    command = [sys.executable, "-I", chart_archive.__file__]
    assert subprocess.run([*command, tmp_path / "good", tmp_path / "copy"], check=False).returncode == 0
    assert unpack((tmp_path / "copy").read_bytes()) == CHART
    assert subprocess.run([*command, tmp_path / "bad", tmp_path / "none"], check=False).returncode == 1
    assert not (tmp_path / "none").exists()
