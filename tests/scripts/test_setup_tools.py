"""scripts/setup-tools.sh and the targets that call it: what they say, also when a program cannot be had."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NPM = """#!/bin/sh
case "$*" in *--silent*) ;; *) echo "npm error: no such host" >&2 ;; esac
exit 1
"""


def test_the_log_that_is_named_says_why_npm_has_failed(tmp_path: Path) -> None:
    script = tmp_path / "checkout" / "scripts" / "setup-tools.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup-tools.sh", script)
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM)
    npm.chmod(0o755)
    environment = {"PATH": f"{npm.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "REQUIRED": "true"}
    for tool in ("devcontainer", "axe"):
        result = subprocess.run([script, tool], env=environment, capture_output=True, text=True, check=False)
        log = f".tools/{tool}.log"
        assert (result.returncode, f"see {log}" in result.stderr) == (1, True), result.stderr
        assert (tmp_path / "checkout" / log).read_text() == "npm error: no such host\n"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("tools", ("kubectl is in .tools/bin", "export PATH=")),
        ("helm-tools", ("helm is in .tools/bin", "`make up`", "export PATH=")),
        ("runner-tools", ("podman is /", "/.tools/bin/devcontainer", "fairlead runner doctor NAME")),
    ],
)
def test_a_target_says_what_it_has_installed_and_where(tmp_path: Path, target: str, words: tuple[str, ...]) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for program in (tmp_path / "scripts" / "setup-tools.sh", tmp_path / "bin" / "podman"):
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    result = subprocess.run(
        ["make", target], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert [word for word in words if word not in result.stdout] == []
