"""scripts/write_sbom.py: the bill of materials is complete, and the same for the same wheel and locks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead import __version__
from scripts.write_sbom import describe_helm
from tests.scripts.test_dist import ROOT, build
from tests.scripts.test_locks import normalize_name, read_pins

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # installs all dependencies from the package index, twice


def write_sbom(wheel: Path, out: Path, **variables: str) -> bytes:
    command = [sys.executable, str(ROOT / "scripts" / "write_sbom.py"), str(wheel), "--out", str(out)]
    subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=900)
    return out.read_bytes()


def test_the_bill_of_materials_lists_what_is_installed_and_is_reproducible(tmp_path: Path) -> None:
    wheel = build(ROOT, tmp_path / "dist")[1]
    first = write_sbom(wheel, tmp_path / "first.json")
    (tmp_path / "elsewhere").mkdir()
    second = write_sbom(wheel, tmp_path / "second.json", TMPDIR=str(tmp_path / "elsewhere"), TZ="Asia/Tokyo")
    assert first == second
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    listed = {normalize_name(each["name"]): each["version"] for each in bill["components"]}
    assert listed.pop("helm") == describe_helm()["version"]
    assert {"ref": "helm"} in bill["dependencies"]
    assert listed.items() <= read_pins("runtime").items()
    assert {"asyncpg", "granian", "grpcio", "orjson"} <= listed.keys()
    assert b"file:" not in first and b"/tmp" not in first
