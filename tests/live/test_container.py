"""The container, for each architecture: built from nothing with podman, and run as restricted as possible.

Images of another architecture than this machine's are built and run with qemu, which takes several times as long.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.emulation import MACHINES, is_emulated
from tests.live.image_build import BASE_PYTHON, ROOT, Podman, download_wheels, open_podman

MAX_BYTES = 200 * 10**6
IMAGE = "localhost/fairlead"
RESTRICTED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges")
ARCHITECTURES = ("amd64", "arm64")
DEFAULT_PYTHON = "3.14"
"""The version of CPython in the images that the Containerfile is built on by default."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]  # builds base images, one of them with qemu


@pytest.fixture(scope="module", params=ARCHITECTURES)
def podman(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with open_podman(tmp_path_factory.mktemp("container"), request.param) as podman:
        yield podman


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    return podman.build(IMAGE)


@pytest.mark.parametrize("python", [BASE_PYTHON, DEFAULT_PYTHON])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_locked_package_has_a_wheel(architecture: str, python: str, tmp_path: Path) -> None:
    wheels = download_wheels(architecture, python, tmp_path)
    compiled = [name for name in wheels if not name.endswith("-none-any.whl")]
    assert any(name.startswith("uvloop-") for name in compiled), wheels
    assert all(MACHINES[architecture] in name for name in compiled), compiled


def test_the_default_base_images_have_the_python_that_wheels_are_checked_for() -> None:
    text = (ROOT / "Containerfile").read_text()
    assert f"ARG BASE=docker.io/library/python:{DEFAULT_PYTHON}-slim\n" in text
    assert f"ARG BUILD_BASE=docker.io/library/python:{DEFAULT_PYTHON}\n" in text


def test_the_image_is_small_runs_as_a_number_and_has_a_health_check(podman: Podman, image: str) -> None:
    described = json.loads(podman("image", "inspect", image))[0]
    assert described["Size"] < MAX_BYTES, f"{described['Size'] / 1e6:.0f} MB"
    assert (described["Os"], described["Architecture"]) == ("linux", podman.architecture)
    assert described["User"] == "65532:65532"
    assert described["Healthcheck"]["Test"] == ["CMD", "fairlead-healthcheck"]
    assert described["Created"].startswith("1970-01-01")
    print(f"size for {podman.architecture}: {described['Size'] / 1e6:.0f} MB")


def test_the_same_sources_give_the_same_image(podman: Podman, image: str) -> None:
    ids = image, podman.build("localhost/again")
    first, second = (json.loads(podman("image", "inspect", each))[0] for each in ids)
    for part in ("RootFS", "Config", "Created", "Architecture"):  # the layers are named by the digests of their content
        assert first[part] == second[part]
    assert len(first["RootFS"]["Layers"]) > 1


def test_the_container_runs_other_commands_on_its_architecture(podman: Podman, image: str) -> None:
    arguments = ("run", "--rm", *RESTRICTED, "--network=none")
    assert podman(*arguments, image, "version").startswith("fairlead ")
    machine = ("-c", "import platform; print(platform.machine())")
    assert podman(*arguments, "--entrypoint=python3", image, *machine) == MACHINES[podman.architecture]


def test_the_image_has_helm_which_is_only_taken_with_the_right_digest(podman: Podman, image: str) -> None:
    arguments = ("run", "--rm", *RESTRICTED, "--network=none")
    assert podman(*arguments, "--entrypoint=helm", image, "version", "--short").startswith("v4.1.4")
    with pytest.raises(AssertionError, match=r"its SHA-256 is .*, not 0000"):
        podman.build("localhost/wrong", f"--build-arg=HELM_SHA256={'0' * 64}")
    without = podman.build("localhost/without", "--build-arg=HELM=none", f"--build-arg=HELM_SHA256={'0' * 64}")
    find = ("-c", "import shutil; print(shutil.which('helm'))")
    assert podman(*arguments, "--entrypoint=python3", without, *find) == "None"


def test_the_drivers_of_all_stores_can_be_loaded(podman: Podman, image: str) -> None:
    """The base has no C++ library, which the driver of etcd needs."""
    arguments = ("run", "--rm", *RESTRICTED, "--network=none", "--entrypoint=python3", image, "-c")
    assert podman(*arguments, "import asyncpg, grpc; print('loaded')") == "loaded"


def test_the_container_serves_is_healthy_stops_and_keeps_its_data(
    podman: Podman, image: str, component: Callable[[str], Path], tmp_path: Path
) -> None:
    kubectl = str(component("kubectl"))
    first = start(podman, image)
    kubeconfig = read_kubeconfig(podman, first, tmp_path)
    run_kubectl(kubectl, kubeconfig, "create", "configmap", "kept", "--from-literal=a=1")
    check_health(podman, first)
    assert httpx.get("https://127.0.0.1:28443/console/", verify=False, timeout=60).status_code == 200
    assert podman("exec", first, "python3", "-c", "import os; print(os.getuid(), os.access('/opt', os.W_OK))") == (
        "65532 False"
    )
    before = time.monotonic()
    podman("stop", "--time=120", first)
    assert time.monotonic() - before < 110, "it did not stop on SIGTERM"
    assert podman("inspect", "--format={{.State.ExitCode}}", first) == "0"
    podman("rm", first)
    second = start(podman, image)
    assert "kept" in run_kubectl(kubectl, read_kubeconfig(podman, second, tmp_path), "get", "configmap", "kept")
    podman("rm", "--force", "--time=20", second)


def test_the_health_check_fails_if_nothing_listens(podman: Podman, image: str) -> None:
    arguments = ("run", "--rm", *RESTRICTED, "--network=none", "--entrypoint=fairlead-healthcheck", image)
    assert "port 8443" in podman(*arguments, check=False)


def start(podman: Podman, image: str) -> str:
    """A container in the network of this machine, with a volume that outlives it."""
    settings = ("--env=FAIRLEAD_LISTEN=127.0.0.1", "--env=FAIRLEAD_PORT=28443", "--env=FAIRLEAD_WORKERS=1")
    container = podman(
        "run", "--detach", *RESTRICTED, "--network=host", "--volume=fairlead-data:/data", *settings, image
    )

    def is_ready() -> bool:
        try:
            return httpx.get("https://127.0.0.1:28443/readyz", verify=False, timeout=30).status_code == 200
        except httpx.TransportError:
            state = podman("inspect", "--format={{.State.Status}}", container)
            assert state == "running", podman("logs", container)
            return False

    deadline = time.monotonic() + 600
    while not is_ready():
        assert time.monotonic() < deadline, podman("logs", container)
        time.sleep(0.5)
    return container


def check_health(podman: Podman, container: str) -> None:
    """With qemu, Python alone may take longer to start than the image gives its health check, so it runs without that
    limit there."""
    if is_emulated(podman.architecture):
        assert podman("exec", container, "fairlead-healthcheck") == "/livez: 200"
    else:
        assert podman("healthcheck", "run", container) == ""


def read_kubeconfig(podman: Podman, container: str, folder: Path) -> Path:
    file = folder / "kubeconfig"
    read = ("python3", "-c", "print(open('/data/admin.kubeconfig').read())")
    file.write_text(podman("exec", container, *read))
    return file


def run_kubectl(kubectl: str, kubeconfig: Path, *arguments: str) -> str:
    command = [kubectl, "--kubeconfig", str(kubeconfig), *arguments]
    result = subprocess.run(command, env={"HOME": str(kubeconfig.parent)}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
