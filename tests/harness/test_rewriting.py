"""tests.harness.rewriting: pytest takes the files that were compiled in advance."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.rewriting import compile_test_file


def test_pytest_uses_the_compiled_file(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    file = tmp_path / "test_one.py"
    file.write_text("def test_it():\n    found = 3\n    assert found == 4\n")
    compiled = compile_test_file(file, pytestconfig)
    inode = compiled.stat().st_ino
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", str(file)]
    ended = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert "assert 3 == 4" in ended.stdout
    assert [each.name for each in compiled.parent.iterdir()] == [compiled.name]
    assert compiled.stat().st_ino == inode  # pytest replaces a file that it does not accept


def test_a_file_is_compiled_again_after_a_change(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("def test_it(): assert 1\n")
    before = compile_test_file(file, pytestconfig).read_bytes()
    assert compile_test_file(file, pytestconfig).read_bytes() == before
    file.write_text("def test_it(): assert 2\n")
    assert compile_test_file(file, pytestconfig).read_bytes() != before
