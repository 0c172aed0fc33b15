"""`make release`: checks that this commit can be released, and collects the files of the release in dist/.

It changes nothing in the repository and publishes nothing. dist/ gets the sdist, the wheel, the bill of materials,
`RELEASE.md` with the section of the changelog, and `SHA256SUMS` over all of them. The packages are built twice, and
must be the same. With --check, it only checks.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SECTION = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?\n", re.M)
CHARTS = ("deploy/chart/Chart.yaml", "deploy/agent-chart/Chart.yaml")


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks and collects a release of Fairlead.")
    parser.add_argument("--check", action="store_true", help="only check, and build nothing")
    options = parser.parse_args()
    version = read_version(ROOT)
    problems = find_problems(ROOT, version, datetime.now(UTC).date())
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"{version} can be released")
    if not options.check:
        build(version)
        print(f"\ndist/ has the files of {version}. Next, as docs/releasing.md describes:\n  git tag -s v{version}")
    return 0


def read_version(root: Path) -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (root / "fairlead" / "__init__.py").read_text(), re.M)
    if found is None:
        sys.exit("error: fairlead/__init__.py has no __version__")
    return found[1]


def find_problems(root: Path, version: str, today: date) -> list[str]:
    """What keeps the commit from being released as this version."""
    problems = find_changelog_problems((root / "CHANGELOG.md").read_text(), version, today)
    if not (root / "tests" / "upgrade" / "fixtures" / f"{version}.tar.gz").exists():
        problems.append(
            f"tests/upgrade/fixtures has no data of {version}; run: python -m tests.upgrade.make_fixture {version}"
        )
    for file in CHARTS:
        chart = (root / file).read_text()
        for name in ("version", "appVersion"):
            if not re.search(rf'^{name}: "?{re.escape(version)}"?$', chart, re.M):
                problems.append(f"{name} of {file} is not {version}")
    if run_git(root, "status", "--porcelain"):
        problems.append("there are changes that are not committed; see: git status")
    tag = f"v{version}"
    if run_git(root, "tag", "--list", tag) and run_git(root, "rev-list", "-n1", tag) != run_git(
        root, "rev-parse", "HEAD"
    ):
        problems.append(f"the tag {tag} is that of another commit; raise __version__ in fairlead/__init__.py")
    return problems


def find_changelog_problems(changelog: str, version: str, today: date) -> list[str]:
    sections = list(SECTION.finditer(changelog))
    names = [each["name"] for each in sections]
    if names[:2] != ["Unreleased", version]:
        return [f'CHANGELOG.md does not begin with the sections "Unreleased" and "{version}"']
    problems = []
    if changelog[sections[0].end() : sections[1].start()].strip():
        problems.append(f'CHANGELOG.md has entries under "Unreleased"; move them to {version}')
    try:
        released = date.fromisoformat(sections[1]["date"] or "")
    except ValueError:
        return [*problems, f"the section {version} of CHANGELOG.md has no date, as in: ## [{version}] - {today}"]
    if released > today:
        problems.append(f"the section {version} of CHANGELOG.md is dated {released}, which is in the future")
    return problems


def read_notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading."""
    sections = list(SECTION.finditer(changelog))
    index = [each["name"] for each in sections].index(version)
    end = sections[index + 1].start() if index + 1 < len(sections) else len(changelog)
    return changelog[sections[index].end() : end].strip() + "\n"


def build(version: str) -> None:
    builder = ROOT / "scripts" / "build_dist.py"
    with tempfile.TemporaryDirectory() as second:
        for folder in (DIST, Path(second)):
            subprocess.run([sys.executable, builder, "--out", folder], check=True)
        compare(DIST, Path(second))
    (wheel,) = DIST.glob("fairlead-*.whl")
    subprocess.run([sys.executable, ROOT / "scripts" / "write_sbom.py", wheel], check=True)
    (DIST / "RELEASE.md").write_text(read_notes((ROOT / "CHANGELOG.md").read_text(), version))
    write_digests(DIST, version)


def compare(one: Path, other: Path) -> None:
    for file in other.iterdir():
        if file.read_bytes() != (one / file.name).read_bytes():
            sys.exit(f"error: {file.name} was not the same when it was built again; see scripts/build_dist.py")


def write_digests(folder: Path, version: str) -> None:
    """Writes SHA256SUMS, for `sha256sum --check`."""
    files = [folder / "RELEASE.md", *folder.glob(f"fairlead-{version}*")]
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)]
    (folder / "SHA256SUMS").write_text("".join(lines))


def run_git(root: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"error: git {arguments[0]} failed: {result.stderr.strip()}")
    return result.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
