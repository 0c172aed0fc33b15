"""scripts/check-console.sh: what it says about code that breaks the rules, and without its tools."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "biome.json",
    "jsconfig.json",
    "scripts/check-console.sh",
    "scripts/console/types.d.ts",
    "scripts/console/strict.json",
    "scripts/console/package-lock.json",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "fairlead/console/static").mkdir(parents=True)
    return tmp_path


def check(checkout: Path, what: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(checkout / "scripts/check-console.sh"), what]
    environment = {**os.environ, "CI": ci}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_without_the_tools_it_says_how_to_get_them_and_fails_in_ci_only(checkout: Path) -> None:
    here = check(checkout, "style")
    assert (here.returncode, "run: scripts/setup-tools.sh console" in here.stderr) == (0, True)
    assert check(checkout, "style", ci="true").returncode == 1


def test_code_that_breaks_the_rules_is_named_and_formatted(checkout: Path) -> None:
    installed = ROOT / ".tools" / "console"
    if not installed.exists():
        pytest.skip("Biome is not installed; `make test-tools` installs it")
    (checkout / ".tools").mkdir()
    (checkout / ".tools/console").symlink_to(installed)
    module = checkout / "fairlead/console/static/main.js"
    module.write_text("export  const a = { b:1 }\n")
    found = check(checkout, "style")
    assert (found.returncode, "main.js: format" in found.stderr, "make fmt" in found.stderr) == (1, True, True)
    assert check(checkout, "format").returncode == 0
    assert module.read_text() == "export const a = { b: 1 };\n"
    assert check(checkout, "style").returncode == 0
    module.write_text("const unused = 1;\n")
    found = check(checkout, "style")
    assert (found.returncode, "noUnusedVariables" in found.stderr) == (1, True)


def test_wrong_types_are_named(checkout: Path) -> None:
    installed = ROOT / ".tools" / "console"
    if not installed.exists():
        pytest.skip("TypeScript is not installed; `make test-tools` installs it")
    (checkout / ".tools").mkdir()
    (checkout / ".tools/console").symlink_to(installed)
    module = checkout / "fairlead/console/static/main.js"
    module.write_text("/** @param {number} a */\nconst double = (a) => a * 2;\ndouble('x');\n")
    shutil.copytree(ROOT / "fairlead/console/static/core", checkout / "fairlead/console/static/core")
    found = check(checkout, "types")
    assert (found.returncode, "main.js(3,8): error TS2345" in found.stderr) == (1, True)
    module.unlink()
    assert check(checkout, "types").returncode == 0
    (checkout / "fairlead/console/static/core/untyped.js").write_text("export const double = (a) => a * 2;\n")
    found = check(checkout, "types")
    assert (found.returncode, "untyped.js(1,24): error TS7006" in found.stderr) == (1, True)


def test_an_unknown_check_is_an_error(checkout: Path) -> None:
    (checkout / ".tools/console").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/console/package-lock.json", checkout / ".tools/console/installed.json")
    found = check(checkout, "all")
    assert (found.returncode, "all cannot be checked" in found.stderr) == (2, True)
