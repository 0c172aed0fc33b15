"""tests.harness.times: what a test and the processes that it starts use is counted for it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.harness.times import format_tables

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import subprocess, sys, time

WORK = "import time\\nwhile time.process_time() < 0.5: pass"

def test_own():
    exec(WORK)
    while time.process_time() < 1: pass

def test_child():
    subprocess.run([sys.executable, "-c", WORK])

def test_running_child():
    global running
    running = subprocess.Popen([sys.executable, "-c", WORK + "\\ntime.sleep(100)"])
    time.sleep(2)

def test_idle():
    running.kill()
    running.wait()
"""


def test_the_cpu_time_of_a_test_and_of_its_processes_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_work.py").write_text(TESTS)
    times = tmp_path / "times.json"
    options = ("-p", "tests.harness.times", "--times", str(times), "-p", "no:cacheprovider", "-c", "/dev/null")
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path / "test_work.py")]
    result = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    found = {name.partition("::")[2]: values for name, values in json.loads(times.read_text()).items()}
    assert found["test_own"][0] > 0.2
    assert found["test_child"][0] > 0.4
    assert found["test_running_child"][0] > 0.2  # how far it came in two seconds depends on the machine
    assert [started for _, _, started in found.values()] == [1, 0, 0, 1]  # sorted by name
    assert "test_work.py" in result.stdout and "CPU s" in result.stdout


def test_the_table_has_folders_and_files_by_their_cpu_time() -> None:
    tests = {
        "tests/a/test_x.py::test_1": [1.0, 2.0, 0],
        "tests/a/test_y.py::test_1": [2.0, 2.0, 3],
        "tests/b/test_z.py::test_1[a/b]": [2.5, 5.0, 0],
    }
    rows = [line.split() for line in format_tables(tests) if line.endswith(("tests/a", "tests/b", ".py", " all"))]
    assert rows == [
        ["3.0", "4.0", "3", "2", "tests/a"],
        ["2.5", "5.0", "0", "1", "tests/b"],
        ["2.5", "5.0", "0", "1", "tests/b/test_z.py"],
        ["2.0", "2.0", "3", "1", "tests/a/test_y.py"],
        ["1.0", "2.0", "0", "1", "tests/a/test_x.py"],
        ["5.5", "9.0", "3", "3", "all"],
    ]
