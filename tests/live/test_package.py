"""The wheel in an environment of its own: what it declares is enough to serve the API and the console."""

import json
import os
import re
import ssl
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]  # installs all dependencies from the package index


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel and its dependencies, in the locked versions."""
    folder = tmp_path_factory.mktemp("package")
    command = [sys.executable, str(ROOT / "scripts" / "build_dist.py"), "--out", str(folder / "dist")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    venv.create(folder / "venv", with_pip=True)
    pins = re.findall(r"^[a-z0-9._-]+==[^ ;\\]+", (ROOT / "requirements" / "runtime.lock").read_text(), re.MULTILINE)
    (folder / "constraints").write_text("\n".join(pins))
    (wheel,) = (folder / "dist").glob("*.whl")
    pip = [str(folder / "venv" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(folder / "constraints"), str(wheel)], check=True, timeout=900)
    return folder / "venv"


def run(environment: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed command, outside of the clone and with nothing of this process's settings."""
    return subprocess.run(
        [str(environment / "bin" / "fairlead"), *arguments],
        cwd=environment,
        env={"PATH": os.environ["PATH"], "HOME": str(environment), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_installed_package_serves_the_api_and_the_console(
    environment: Path, tmp_path: Path, component: Callable[[str], Path]
) -> None:
    kubectl, started = component("kubectl"), time.monotonic()
    process = subprocess.Popen(
        [str(environment / "bin" / "fairlead"), "up", "--data", str(tmp_path / "data"), "--port", "0", "--json"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        trust = ssl.create_default_context(cafile=ready["caFile"])
        page = httpx.get(ready["consoleUrl"], verify=trust, timeout=60)
        assert page.status_code == 200
        for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            asset = httpx.get(httpx.URL(ready["consoleUrl"]).join(path), verify=trust, timeout=60)
            assert asset.status_code == 200 and asset.content, path
        listed = subprocess.run(
            [str(kubectl), "--kubeconfig", ready["kubeconfig"], "get", "projects,apps"],
            env={"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert listed.returncode == 0, listed.stderr
        print(f"started, and reached with kubectl, after {time.monotonic() - started:.1f} s")
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("url", "extra"), [("postgres://127.0.0.1:1/x", "postgres"), ("etcd://127.0.0.1:1", "etcd")])
def test_a_store_whose_driver_is_not_installed_is_rejected_with_advice(
    environment: Path, tmp_path: Path, url: str, extra: str
) -> None:
    result = run(environment, "serve", "--data", str(tmp_path / "data"), "--port", "0", "--store", url)
    assert result.returncode == 1
    assert f"-py3-none-any.whl[{extra}]'" in result.stderr and "Traceback" not in result.stderr
