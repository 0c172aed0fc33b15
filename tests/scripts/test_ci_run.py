"""`.ci/run`, with a fake `make`: what the tests of CI find around them. And all shell scripts can be parsed."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [ROOT / ".ci" / "run", *sorted((ROOT / "scripts").glob("*.sh"))]
MAKE = """#!/bin/bash
target="${@: -1}"
echo "target $target"
if [[ $target == test-more ]]; then
    sleep 600 >/dev/null 2>&1 & # is left running
    echo '2 failed, 1 passed in 0.02s'
    exit 4
fi
echo "folder $PWD"
echo "home $HOME with $(ls -A "$HOME" | wc -l) files"
echo "variables $(compgen -e | grep -c '^PYTHON.')"
test -f Makefile && git rev-parse HEAD
echo '1 passed in 0.01s'
exit 3
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_can_be_parsed(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_ci_runs_both_parts_on_a_clone_in_a_plain_environment_and_leaves_nothing(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    make = tmp_path / "bin" / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    variables = {
        "PATH": f"{make.parent}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONUNBUFFERED": "1",
    }
    result = subprocess.run(
        [str(ROOT / ".ci" / "run")], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    first, folder, home, count, commit, _, second, *_, summary, summary_of_more = result.stdout.splitlines()
    assert result.returncode == 3 + 4 + 1, result.stderr
    assert [first, second] == ["target test", "target test-more"]
    assert folder.startswith(f"folder {tmp_path}/tmp/ci.")
    assert home.startswith(f"home {tmp_path}/tmp/ci.") and home.endswith(" with 0 files")
    assert count == "variables 0"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert commit == head.strip()
    assert summary == "make test: 1 passed in 0.01s"
    assert summary_of_more == "make test-more: 2 failed, 1 passed in 0.02s"
    assert "left running: " in result.stderr and "sleep 600" in result.stderr
    assert "error: the tests of make test-more left processes behind" in result.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
