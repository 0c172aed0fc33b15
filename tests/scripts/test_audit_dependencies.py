"""scripts/audit_dependencies.py tells three results apart: no vulnerabilities, some, and an audit that failed."""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
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


@pytest.mark.parametrize(("arguments", "expected"), [((), 3), (("--lenient",), 0)])
def test_a_package_that_was_not_looked_up_fails_the_audit_unless_it_is_lenient(
    tmp_path: Path, arguments: tuple[str, ...], expected: int
) -> None:
    code, output = run_audit(tmp_path, [SAFE, SKIPPED], *arguments)
    assert code == expected and "private" in output


class FakeDatabase(BaseHTTPRequestHandler):
    """An OSV database that knows one vulnerable version."""

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        vulnerabilities = [VULNERABILITY] if (query["package"]["name"], query["version"]) == ("jinja2", "2.4.1") else []
        body = json.dumps({"vulns": vulnerabilities}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


VULNERABILITY = {
    "id": "PYSEC-2014-8",
    "modified": "2021-07-05T00:01:22Z",
    "published": "2014-05-19T14:55:00Z",
    "details": "For the tests.",
    "affected": [
        {
            "package": {"name": "jinja2", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.7.3"}]}],
        }
    ],
}


@pytest.mark.long  # installs pip-audit from the package index
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("version", "expected"), [("2.4.1", 1), ("3.1.6", 0)])
def test_the_real_program_finds_a_known_vulnerability(tmp_path: Path, version: str, expected: int) -> None:
    lock = tmp_path / "bad.lock"
    lock.write_text(f"jinja2=={version} --hash=sha256:{'0' * 64}\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeDatabase)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        code, output = run_real_audit(lock, f"http://127.0.0.1:{server.server_address[1]}/v1/query")
    finally:
        server.shutdown()
        server.server_close()
    assert code == expected, output
    assert ("PYSEC-2014-8, fixed in 2.7.3" in output) == (expected == 1)
    unreachable = f"http://127.0.0.1:{server.server_address[1]}/v1/query"
    code, output = run_real_audit(lock, unreachable)
    assert code == 3 and "NOT AUDITED" in output


def run_real_audit(lock: Path, url: str) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), "--lock", str(lock), "--osv-url", url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    return result.returncode, result.stdout + result.stderr
