"""`make audit` tells three answers apart: nothing known, something known, and nobody could be asked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "audit_dependencies.py"
FINE = {"name": "fine", "version": "1.0", "vulns": []}
BROKEN = {"name": "broken", "version": "1.0", "vulns": [{"id": "PYSEC-0", "fix_versions": ["1.1"]}]}
SKIPPED = {"name": "private", "skip_reason": "not found"}


def run(folder: Path, packages: list[dict[str, Any]] | None, *arguments: str) -> tuple[int, str]:
    """The script with a stand-in for pip-audit, which ends like the real one."""
    program = folder / "pip-audit"
    report = json.dumps({"dependencies": packages, "fixes": []}) if packages is not None else ""
    code = int(packages is None or any(package.get("vulns") for package in packages))
    (folder / "report").write_text(report)
    program.write_text(f'#!/bin/sh\ncat {folder}/report\necho "ERROR: no route to host" >&2\nexit {code}\n')
    program.chmod(0o755)
    command = [sys.executable, str(SCRIPT), "--program", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_nothing_is_known(tmp_path: Path) -> None:
    code, told = run(tmp_path, [FINE])
    assert code == 0 and "runtime.lock: no known vulnerabilities in 1 packages" in told


def test_a_vulnerability_is_named_with_the_version_that_fixes_it(tmp_path: Path) -> None:
    code, told = run(tmp_path, [FINE, BROKEN, SKIPPED])
    assert code == 1 and "broken 1.0: PYSEC-0, fixed in 1.1" in told


@pytest.mark.parametrize("packages", [None, [], [SKIPPED]])
def test_a_database_that_cannot_be_asked_is_not_taken_for_good_news(
    tmp_path: Path, packages: list[dict[str, Any]] | None
) -> None:
    code, told = run(tmp_path, packages)
    assert code == 3 and "NOT AUDITED" in told and "no known" not in told
    assert packages is not None or "no route to host" in told


@pytest.mark.parametrize(("arguments", "expected"), [((), 0), (("--strict",), 3)])
def test_a_package_that_is_not_known_there_fails_only_a_strict_audit(
    tmp_path: Path, arguments: tuple[str, ...], expected: int
) -> None:
    code, told = run(tmp_path, [FINE, SKIPPED], *arguments)
    assert code == expected and "private" in told
