"""scripts/audit_dependencies.py tells three results apart: no vulnerabilities, some, and an audit that failed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "audit_dependencies.py"
SAFE = {"name": "fine", "version": "1.0", "vulns": []}
VULNERABLE = {"name": "broken", "version": "1.0", "vulns": [{"id": "PYSEC-0", "fix_versions": ["1.1"]}]}
SKIPPED = {"name": "private", "skip_reason": "not found"}


def run_audit(folder: Path, packages: list[dict[str, Any]] | None, *arguments: str) -> tuple[int, str]:
    """Runs the script with a fake pip-audit that exits like the real one."""
    program = folder / "pip-audit"
    report = json.dumps({"dependencies": packages, "fixes": []}) if packages is not None else ""
    code = int(packages is None or any(package.get("vulns") for package in packages))
    (folder / "report").write_text(report)
    program.write_text(f'#!/bin/sh\ncat {folder}/report\necho "ERROR: no route to host" >&2\nexit {code}\n')
    program.chmod(0o755)
    command = [sys.executable, str(SCRIPT), "--program", str(program), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout + result.stderr


def test_no_known_vulnerabilities(tmp_path: Path) -> None:
    code, output = run_audit(tmp_path, [SAFE])
    assert code == 0 and "runtime.lock: no known vulnerabilities in 1 packages" in output


def test_a_vulnerability_is_reported_with_the_version_that_fixes_it(tmp_path: Path) -> None:
    code, output = run_audit(tmp_path, [SAFE, VULNERABLE, SKIPPED])
    assert code == 1 and "broken 1.0: PYSEC-0, fixed in 1.1" in output


@pytest.mark.parametrize("packages", [None, [], [SKIPPED]])
def test_an_unreachable_database_is_not_reported_as_no_vulnerabilities(
    tmp_path: Path, packages: list[dict[str, Any]] | None
) -> None:
    code, output = run_audit(tmp_path, packages)
    assert code == 3 and "NOT AUDITED" in output and "no known" not in output
    assert packages is not None or "no route to host" in output


@pytest.mark.parametrize(("arguments", "expected"), [((), 0), (("--strict",), 3)])
def test_a_skipped_package_fails_only_a_strict_audit(tmp_path: Path, arguments: tuple[str, ...], expected: int) -> None:
    code, output = run_audit(tmp_path, [SAFE, SKIPPED], *arguments)
    assert code == expected and "private" in output
