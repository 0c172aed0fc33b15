"""scripts/build_dist.py: the packages are complete, and the same sources give the same bytes."""

import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from fairlead import __version__

ROOT = Path(__file__).resolve().parents[2]


STEPS = ("copying ", "building the sdist", "building the wheel")


def build(checkout: Path, out: Path, **variables: str) -> tuple[Path, Path]:
    """Builds with other variables. The sdist and the wheel. It says what it does, and prints only digests on stdout."""
    result = subprocess.run(
        [sys.executable, str(checkout / "scripts" / "build_dist.py"), "--out", str(out)],
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
        umask=0o077 if variables else 0o022,
    )
    said = result.stderr.splitlines()
    assert len(said) == len(STEPS) and all(map(str.startswith, said, STEPS)), result.stderr
    assert re.fullmatch(r"([0-9a-f]{64}  \S.*/fairlead-\S+\n){2}", result.stdout)
    return out / f"fairlead-{__version__}.tar.gz", out / f"fairlead-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(packages: tuple[Path, Path]) -> None:
    tracked = subprocess.run(["git", "ls-files", "fairlead"], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name for name in tracked.stdout.splitlines() if (ROOT / name).is_file()}
    with zipfile.ZipFile(packages[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == expected
    assert {"fairlead/console/static/index.html", "fairlead/py.typed"} <= names
    assert {f"fairlead/console/static/vendor/codemirror.{suffix}" for suffix in ("js", "txt")} <= names


def test_the_metadata_has_the_version_the_readme_and_the_extras(packages: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packages[1]) as wheel:
        metadata = email.message_from_bytes(wheel.read(f"fairlead-{__version__}.dist-info/METADATA"))
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "# Fairlead" in metadata.get_payload()
    assert {"postgres", "etcd"} <= set(metadata.get_all("Provides-Extra", []))
    plain = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert not [each for each in plain if each.startswith(("asyncpg", "grpcio"))] and plain


@pytest.mark.long
def test_another_path_umask_and_time_zone_give_the_same_bytes(packages: tuple[Path, Path], tmp_path: Path) -> None:
    """Also from the unpacked sdist instead of a clone."""
    shutil.unpack_archive(packages[0], tmp_path)
    unpacked = tmp_path / f"fairlead-{__version__}"
    again = build(unpacked, tmp_path / "other place", TZ="Asia/Tokyo", SOURCE_DATE_EPOCH="1000000000", LC_ALL="C")
    assert [_digest(file) for file in again] == [_digest(file) for file in packages], _compare(packages[0], again[0])


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _compare(first: Path, second: Path) -> str:
    """The members of two sdists that differ."""
    members = []
    for file in (first, second):
        with tarfile.open(file) as archive:
            members.append({(each.name, each.size, each.mode, each.mtime) for each in archive})
    return str(sorted(members[0] ^ members[1])[:10])
