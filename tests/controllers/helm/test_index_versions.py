"""Tests of `fairlead.controllers.helm.index_versions`: what is read of an index."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.controllers.helm import index_versions
from fairlead.controllers.helm.index_versions import INVALID, NO_SUCH_CHART, TOO_MANY

INDEX = b"""
apiVersion: v1
generated: 2026-01-01T00:00:00Z
entries:
  other:
  - {version: 9.9.9, urls: [other.tgz]}
  vc:
  - apiVersion: v2
    name: vc
    version: 1.10
    digest: 0012
    keywords: [a, {deep: [1, 2]}]
    urls:
    - vc-1.10.tgz
    - https://mirror.example/vc-1.10.tgz
  - version: "1.2.3"
    urls: [vc-1.2.3.tgz]
  - null
  - {version: 1.0.0}
  - {urls: [x.tgz]}
  - {version: ~, urls: ~, digest: null}
  empty: []
  nothing:
serverInfo: {contextPath: /}
"""
VERSIONS = [["1.10", "vc-1.10.tgz", "0012"], ["1.2.3", "vc-1.2.3.tgz", ""]]


def run_program(folder: Path, index: bytes, chart: str = "vc") -> tuple[int, object]:
    source, target = folder / "index.yaml", folder / "versions.json"
    source.write_bytes(index)
    command = [sys.executable, "-I", index_versions.__file__, str(source), chart, str(target)]
    code = subprocess.run(command, check=False, timeout=60).returncode
    return code, json.loads(target.read_bytes()) if target.exists() else None


def test_versions_are_read_as_they_are_written(tmp_path: Path) -> None:
    assert run_program(tmp_path, INDEX) == (0, VERSIONS)


@pytest.mark.parametrize(
    ("chart", "expected"), [("empty", (0, [])), ("nothing", (0, [])), ("no", (NO_SUCH_CHART, None))]
)
def test_a_chart_may_have_no_versions(tmp_path: Path, chart: str, expected: tuple[int, object]) -> None:
    assert run_program(tmp_path, INDEX, chart) == expected


def test_an_index_may_be_json(tmp_path: Path) -> None:
    entry = {"version": "1.2.3", "urls": ["vc.tgz"], "digest": "0"}
    index = json.dumps({"apiVersion": "v1", "entries": {"vc": [entry]}}, indent=1).encode()
    assert run_program(tmp_path, index) == (0, [["1.2.3", "vc.tgz", "0"]])


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"text",
        b"[]",
        b"{}",
        b"entries: 7",
        b"entries: [vc]",
        b"entries: {vc: 7}",
        b"entries: {vc: {version: 1}}",
        b"entries: {vc: [{version: [1], urls: [x]}]}",
        b"entries: {vc: [{version: 1.0.0, urls: x}]}",
        b"entries: {vc: [{version: 1.0.0, urls: [{a: b}]}]}",
        b"entries: {vc: [{version: 1.0.0, urls: [x], urls: [y]}]}",
        b"entries: {vc: [], vc: []}",
        b"entries: {}\nentries: {vc: []}",
        b"x: &x [{version: 1.0.0, urls: [x]}]\nentries: {vc: *x}",
        b"x: &x y\nentries: {vc: [{version: 1.0.0, urls: [*x]}]}",
        b"entries: {? {a: b} : c}",
        b"entries: {vc: []}\n---\n[",
        b"entries: {vc: [",
        b"\xff\xfe\0",
        b"entries: {vc: [{version: " + b"1" * 10_000 + b", urls: [x]}]}",
        b"entries: {x: " + b"[" * 1_000 + b"]" * 1_000 + b"}",
        b"entries: " + b"[" * 20_000_000,
    ],
    ids=lambda index: index[:50].decode(errors="replace"),
)
def test_what_is_no_index_is_refused(tmp_path: Path, index: bytes) -> None:
    assert run_program(tmp_path, index) == (INVALID, None)


def test_aliases_elsewhere_are_not_expanded(tmp_path: Path) -> None:
    levels = b"".join(
        b"a%d: &a%d [%s]\n" % (number, number, b", ".join([b"*a%d" % (number - 1)] * 9)) for number in range(1, 40)
    )
    assert run_program(tmp_path, b"a0: &a0 x\n" + levels + INDEX) == (0, VERSIONS)


def test_a_chart_with_too_many_versions_is_refused(tmp_path: Path) -> None:
    entries = b"".join(b"  - {version: %d.0.0, urls: [%s]}\n" % (number, b"x" * 1000) for number in range(3_000))
    assert run_program(tmp_path, b"entries:\n  vc:\n" + entries) == (TOO_MANY, None)
