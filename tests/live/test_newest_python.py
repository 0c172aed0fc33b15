"""The server and the command line on the newest Python that is supported, where each warning is an error.

`scripts/setup-python.sh` unpacks it, with the locked dependencies of the server. `make test-pythons` runs more.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.server_process import CONFIGMAPS, TIMEOUT_SECONDS, build_tls_context, configmap

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "fairlead-python3.14"

# `__main__` would start the command line.
IMPORT_ALL = """
import importlib, pkgutil
import fairlead
names = [each.name for each in pkgutil.walk_packages(fairlead.__path__, "fairlead.")]
names = [name for name in names if not name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.fixture
def python(component: Callable[[str], Path]) -> Path:
    return component(PROGRAM)


def build_environment(home: Path, **variables: str) -> dict[str, str]:
    """A plain environment, but for warnings, which are errors in all processes."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONWARNINGS": "error", **variables}


def run(command: list[str], environment: Mapping[str, str]) -> str:
    """Returns what the command prints. It prints no warning."""
    result = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    return result.stdout


@contextmanager
def running_server(python: Path, folder: Path, workers: int) -> Iterator[dict[str, Any]]:
    """What the server says when it is ready. It ends properly, and logs neither tracebacks nor warnings of Python."""
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [str(python), "-m", "fairlead", "up", "--data", str(folder / "data"), "--port", "0", "--json"],
            cwd=ROOT,
            env=build_environment(folder, FAIRLEAD_WORKERS=str(workers)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield json.loads(line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 0
        logged = log.read_text()
        assert "Traceback" not in logged and "Warning" not in logged, logged
    finally:
        process.kill()
        process.communicate()


def test_the_newest_python_imports_every_module_without_a_warning(python: Path, tmp_path: Path) -> None:
    modules = run([str(python), "-c", IMPORT_ALL], build_environment(tmp_path))
    assert int(modules) == sum(path.name != "__main__.py" for path in (ROOT / "fairlead").rglob("*.py")) - 1


@pytest.mark.parametrize("workers", [1, 2])
def test_the_newest_python_runs_the_server(python: Path, tmp_path: Path, workers: int) -> None:
    with running_server(python, tmp_path, workers) as ready:
        headers = {"Authorization": f"Bearer {ready['accessKey']}"}
        tls = build_tls_context(ready["caFile"])
        with httpx.Client(base_url=ready["url"], headers=headers, verify=tls) as client:
            created = client.post(CONFIGMAPS, json=configmap("one", text="x"))
            assert created.status_code == 201, created.text
            assert client.get("/readyz").status_code == 200
            assert client.get("/metrics").status_code == 200
            with client.stream("GET", CONFIGMAPS, params={"watch": "1"}) as events:
                assert json.loads(next(events.iter_lines()))["object"]["metadata"]["name"] == "one"
        if workers == 1:
            use_command_line(python, tmp_path, ready["kubeconfig"])


def use_command_line(python: Path, home: Path, kubeconfig: str) -> None:
    environment = build_environment(home)
    program = [str(python), "-m", "fairlead"]
    run([*program, "login", "--kubeconfig", kubeconfig], environment)
    run([*program, "project", "create", "first", "--display-name", "First"], environment)
    shown = json.loads(run([*program, "get", "projects", "first", "-o", "json"], environment))
    assert shown["spec"]["displayName"] == "First"
    assert "First" in run([*program, "project", "list"], environment)
