"""Tests of `fairlead.controllers.helm.versions`: the same version is selected as by Helm itself."""

import json
import subprocess
import sys

import pytest

from fairlead.controllers.helm.versions import find_best, is_strict_version, parse_range, parse_version
from tests.controllers.helm import real_helm_pull
from tests.fake_cluster.chart_repository import Chart, ChartRepository

OLD = ("0.0.0", "0.0.1", "0.0.2", "0.1.0", "0.1.1", "0.2.0", "1.0.0", "1.0.1", "1.2.0-alpha", "1.2.0-alpha.1")
NEW = ("1.2.0-beta.2", "1.2.0-beta.11", "1.2.0", "1.2.3", "1.3.0-rc.1", "1.3.0", "1.10.0", "2.0.0-0", "2.0.0", "2.1.0")
VERSIONS = (*OLD, *NEW, "v3.0.0", "4.1", "5.0.0-pre", "1.2.4+build")

OPERATORS = ("", "=", ">", "<", ">=", "=>", "<=", "=<", "~", "~>", "^")
WHOLE = ("0.0.0", "0.0.1", "0.1.0", "1.2.3", "1.2.0-alpha", "1.2.0-beta.2", "2.0.0-0", "v3.0.0", "1.2.3+other")
PARTS = ("0", "0.0", "0.1", "1", "1.x", "1.2", "1.2.x", "1-0", "2", "3", "4.1", "9", "0.x", "v1.2", "1.*.3", "1.X")
COMBINED = ("1.2 - 2", "1.0.0 - 1.2.0", ">=1.2 <2", ">1 <2.1", "~ 1.2", "^ 1", ">=1.2.0-0 <2", "1.2.0 - 1.3.0-zz")
UNUSUAL = (">1.2.3 < 2.0.0-1", "^1 ^1.2", "01.2.3", "", "*", "x", "=*", ">=*", "~*", ">*", "<*", "<1.2.0-beta.11")
INVALID = ("garbage", "1.2.", "1..2", "a.b", "1.2 -2", "1.2.3.4", "- 1", "1 -", ">= 1 - 2", ">", "^", "1.2.3-", "= = 1")
REQUESTED = (
    *(f"{operator}{part}" for operator in OPERATORS for part in (*WHOLE, *PARTS)),
    *COMBINED,
    *UNUSUAL,
    *INVALID,
)


@pytest.fixture(scope="module")
def choices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What Helm itself downloads, by the version that was requested. In a process of its own: Helm has its caches in
    the home folder, and reads the environment once."""
    folder = tmp_path_factory.mktemp("helm-versions")
    with ChartRepository(folder, tuple(Chart("vc", {}, version) for version in VERSIONS)) as repository:
        given = json.dumps([repository.url, str(folder), REQUESTED])
        environment = {"HOME": str(folder), "SSL_CERT_FILE": str(repository.ca_file)}
        command = [sys.executable, real_helm_pull.__file__]
        done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, check=True)
    archives: list[str | None] = json.loads(done.stdout)
    assert len([each for each in archives if each]) > 200
    return dict(zip(REQUESTED, archives, strict=True))


def test_the_same_version_is_selected_as_by_helm(choices: dict[str, str | None]) -> None:
    found = {requested: find_best(VERSIONS, requested) for requested in REQUESTED}
    assert {requested: version and f"vc-{version}.tgz" for requested, version in found.items()} == choices


@pytest.mark.parametrize("text", INVALID)
def test_what_is_no_range_is_noticed(text: str) -> None:
    assert parse_range(text) is None


@pytest.mark.parametrize("text", ["^*", "<=*", ""])
def test_these_are_all_releases(text: str) -> None:
    """Helm takes `^*` for 0.0.0 and `<=*` for 0.0.x, which nobody means."""
    assert find_best(VERSIONS, text) == "4.1"


def test_a_version_as_it_is_written_comes_first() -> None:
    assert find_best(["1.2.3+a", "1.2.3+b"], "1.2.3+b") == "1.2.3+b"
    assert find_best(["1.2.3-rc"], "1.2.3-rc") == "1.2.3-rc"


def test_texts_of_any_length_are_read_quickly() -> None:
    assert parse_version("1" * 1_000_000) is None
    assert parse_version(f"1.0.0-{'a.' * 500_000}") is None
    assert not is_strict_version(f"1.0.0-{'a' * 300}")
    assert find_best(["1." * 100_000, "1.0.0"], "") == "1.0.0"


def test_only_complete_versions_are_strict() -> None:
    assert [each for each in (*VERSIONS, "1.2", "v1.2.3", "latest") if not is_strict_version(each)] == [
        *("v3.0.0", "4.1", "1.2", "v1.2.3", "latest")
    ]
