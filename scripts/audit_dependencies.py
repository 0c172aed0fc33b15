"""`make audit`: are there known vulnerabilities in what the locks name?

pip-audit asks the vulnerability database of the Python package index about every package in requirements/*.lock. It is
installed, from its own lock, into a folder beside the rest of .venv. The exit code tells three answers apart:

    0  everything was looked up, and nothing is known
    1  there are known vulnerabilities; they are listed
    3  the database could not be asked, so nothing is known either way

With --strict, a package that the database does not know is a 3 as well; otherwise it is named and passed over.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("runtime", "test", "audit")
PLACE = ROOT / ".venv" / "audit"
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3


def main() -> int:
    options = _options()
    program = options.program or str(_installed())
    codes = set()
    for lock in LOCKS:
        code, message = audit(program, ROOT / "requirements" / f"{lock}.lock", strict=options.strict)
        print(message, file=sys.stderr if code else sys.stdout, flush=True)
        codes.add(code)
    return next(code for code in (VULNERABLE, UNKNOWN, CLEAN) if code in codes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Looks for known vulnerabilities in what requirements/*.lock name.")
    parser.add_argument("--strict", action="store_true", help="fail if any package could not be looked up")
    parser.add_argument("--program", help="a pip-audit to use instead of the one that is installed for this")
    return parser.parse_args()


def _installed() -> Path:
    program = PLACE / "bin" / "pip-audit"
    lock = ROOT / "requirements" / "audit.lock"
    mark = PLACE / "installed"
    if not mark.exists() or mark.stat().st_mtime < lock.stat().st_mtime:
        print("installing pip-audit into .venv/audit", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE)], check=True)
        install = [str(PLACE / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, "--require-hashes", "--requirement", str(lock)], check=True)
        mark.touch()
    return program


def audit(program: str, lock: Path, *, strict: bool) -> tuple[int, str]:
    """The exit code for one lock, and what to tell people."""
    command = [program, "--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([*command, "--requirement", str(lock)], capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"]
        return UNKNOWN, _unknown(lock, lines[-1])
    return judge(report, lock, strict=strict)


def judge(report: dict[str, Any], lock: Path, *, strict: bool) -> tuple[int, str]:
    packages = report.get("dependencies", [])
    found = [_told(package, each) for package in packages for each in package.get("vulns", [])]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if found:
        return VULNERABLE, "\n".join([f"{lock.name}: {len(found)} known vulnerabilities", *found])
    if not packages or len(skipped) == len(packages):
        return UNKNOWN, _unknown(lock, "it knows none of the packages")
    if skipped and strict:
        return UNKNOWN, _unknown(lock, f"it does not know {', '.join(skipped)}")
    passed_over = f"; not looked up: {', '.join(skipped)}" if skipped else ""
    return CLEAN, f"{lock.name}: no known vulnerabilities in {len(packages) - len(skipped)} packages{passed_over}"


def _told(package: dict[str, Any], vulnerability: dict[str, Any]) -> str:
    fixed = ", ".join(vulnerability.get("fix_versions", [])) or "no version yet"
    return f"  {package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}"


def _unknown(lock: Path, why: str) -> str:
    return f"{lock.name}: NOT AUDITED, the vulnerability database could not be asked: {why}. Try again with a network"


if __name__ == "__main__":
    sys.exit(main())
