"""`make audit`: checks the locked dependencies for known vulnerabilities.

pip-audit looks up every package of requirements/*.lock in the vulnerability database of the Python package index, or
with --osv-url in a copy of the OSV database. It is installed from its own lock into a folder in .venv. The exit codes:

    0  all packages were looked up, and have no known vulnerabilities
    1  there are known vulnerabilities, which are listed
    3  not audited: the database could not be reached, or does not know all packages

pip-audit itself exits with 0 if it could look up nothing. Its option --strict is not used: it ends at the first package
that is not in the database, without the vulnerabilities of the others. With --lenient, such packages are listed and
skipped, as long as others were looked up.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("runtime", "build", "test", "audit", "sbom")
ENVIRONMENT = ROOT / ".venv" / "audit"
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3


def main() -> int:
    options = _parse_options()
    program = options.program or str(_install_pip_audit())
    codes = set()
    locks = [options.lock] if options.lock else [ROOT / "requirements" / f"{lock}.lock" for lock in LOCKS]
    command = [program, *(("--vulnerability-service", "osv", "--osv-url", options.osv_url) if options.osv_url else ())]
    for lock in locks:
        code, message = audit(command, lock, strict=not options.lenient)
        print(message, file=sys.stderr if code else sys.stdout, flush=True)
        codes.add(code)
    return next(code for code in (VULNERABLE, UNKNOWN, CLEAN) if code in codes)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Checks the dependencies in requirements/*.lock for known vulnerabilities."
    )
    parser.add_argument("--lenient", action="store_true", help="skip packages that are not in the database")
    parser.add_argument("--osv-url", help="URL of the query API of an OSV database, instead of the package index")
    parser.add_argument("--lock", type=Path, help="audit only this file")
    parser.add_argument("--program", help="path of pip-audit; default: .venv/audit")
    return parser.parse_args()


def _install_pip_audit() -> Path:
    program = ENVIRONMENT / "bin" / "pip-audit"
    lock = ROOT / "requirements" / "audit.lock"
    marker = ENVIRONMENT / "installed"
    if not marker.exists() or marker.stat().st_mtime < lock.stat().st_mtime:
        print("installing pip-audit into .venv/audit", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        install = [str(ENVIRONMENT / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, "--require-hashes", "--requirement", str(lock)], check=True)
        marker.touch()
    return program


def audit(program: list[str], lock: Path, *, strict: bool) -> tuple[int, str]:
    """The exit code and the message for one lock."""
    command = [*program, "--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
    result = subprocess.run([*command, "--requirement", str(lock)], capture_output=True, text=True, check=False)
    try:
        report = json.loads(result.stdout)
    except ValueError:
        lines = result.stderr.strip().splitlines() or [f"pip-audit exited with {result.returncode}"]
        return UNKNOWN, _describe_failure(lock, lines[-1])
    return evaluate_report(report, lock, strict=strict)


def evaluate_report(report: dict[str, Any], lock: Path, *, strict: bool) -> tuple[int, str]:
    packages = report.get("dependencies", [])
    found = [_describe_vulnerability(package, each) for package in packages for each in package.get("vulns", [])]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if found:
        return VULNERABLE, "\n".join([f"{lock.name}: {len(found)} known vulnerabilities", *found])
    if not packages or len(skipped) == len(packages):
        return UNKNOWN, _describe_failure(lock, "it contains none of the packages")
    if skipped and strict:
        return UNKNOWN, _describe_failure(lock, f"it does not contain {', '.join(skipped)}")
    not_checked = f"; not looked up: {', '.join(skipped)}" if skipped else ""
    return CLEAN, f"{lock.name}: no known vulnerabilities in {len(packages) - len(skipped)} packages{not_checked}"


def _describe_vulnerability(package: dict[str, Any], vulnerability: dict[str, Any]) -> str:
    fixed = ", ".join(vulnerability.get("fix_versions", [])) or "no version yet"
    return f"  {package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}"


def _describe_failure(lock: Path, reason: str) -> str:
    problem = f"NOT AUDITED, the vulnerability database could not be reached or is incomplete: {reason}"
    return f"{lock.name}: {problem}. Check the network and try again"


if __name__ == "__main__":
    sys.exit(main())
