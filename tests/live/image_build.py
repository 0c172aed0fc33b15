"""Builds the image for an architecture with podman: on a Debian that is made here, and without network."""

import gzip
import hashlib
import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.emulation import MACHINES, require_architecture

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("CONTAINER_TEST_CACHE") or ROOT / ".tools" / "container")
"""Base images and wheels, which are made once per architecture."""
LOCK = ROOT / "requirements" / "runtime.lock"
BASE_PYTHON = "3.11"
"""The version of CPython in the base images that are made here."""


def write_configuration(folder: Path) -> dict[str, str]:
    """Settings of podman that work in containers and small machines, too: runc instead of crun, which refuses hybrid
    cgroups, and limits on open files that need no privilege."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    (folder / "networks").mkdir()
    (folder / "containers.conf").write_text(
        f"""
[containers]
default_ulimits = ["nofile=1024:{files}", "nproc=4096:8192"]
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
    )
    (folder / "storage.conf").write_text(
        f"""
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
    )
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


@dataclass(frozen=True, slots=True)
class Podman:
    """podman with an image store of its own, and images of one architecture."""

    folder: Path
    environment: dict[str, str]
    architecture: str

    def __call__(self, *arguments: str, check: bool = True) -> str:
        result = subprocess.run(
            ["podman", *arguments], env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        assert not check or result.returncode == 0, f"podman {arguments[0]}: {result.stdout}{result.stderr}"
        return result.stdout.strip()

    def build(self, tag: str, *flags: str) -> str:
        """Builds the image without network, and returns its id. `flags` come last, so they count."""
        return self(
            *("build", "--quiet", "--no-cache", "--format=docker", "--timestamp=0", "--network=none", f"--tag={tag}"),
            *(f"--platform=linux/{self.architecture}", "--build-arg=PIP_NO_INDEX=1"),
            *("--build-arg=BASE=localhost/base", "--build-arg=BUILD_BASE=localhost/build"),
            f"--build-arg=HELM_SHA256={hashlib.sha256(build_helm_archive(self.architecture)).hexdigest()}",
            *flags,
            *(f"--file={self.folder}/context/Containerfile", f"{self.folder}/context"),
        ).splitlines()[-1]


@contextmanager
def open_podman(folder: Path, architecture: str) -> Iterator[Podman]:
    """Podman with the base images, and a context to build. Skips the test where the machine lacks something."""
    if os.geteuid() != 0:
        pytest.skip("the base images are made by root")
    for program in ("podman", "runc", "mmdebstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; `make test-tools` installs it")
    require_architecture(architecture)
    podman = Podman(folder, write_configuration(folder), architecture)
    bases = CACHE / architecture
    subprocess.run([str(ROOT / "scripts" / "build-container-base.sh"), str(bases), architecture], check=True)
    try:
        for name in ("base", "build"):
            podman(
                "import", "--quiet", f"--arch={architecture}", str(bases / f"{name}.tar"), f"localhost/{name}:latest"
            )
        make_context(folder / "context", architecture)
        yield podman
    finally:
        podman("rm", "--all", "--force", "--time=0", check=False)
        subprocess.run(["umount", str(folder / "storage/overlay")], check=False, capture_output=True)
        shutil.rmtree(folder)


def build_helm_archive(architecture: str) -> bytes:
    """An archive as Helm's, always the same, with a program that prints a version as Helm does."""
    program = b"#!/opt/fairlead/bin/python3\nprint('v4.1.4+g0000000')\n"
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        entry = tarfile.TarInfo(f"linux-{architecture}/helm")
        entry.size = len(program)
        archive.addfile(entry, io.BytesIO(program))
    return packed.getvalue()


def make_context(context: Path, architecture: str) -> None:
    """What a checkout has after `make dist`, and the locked wheels, which are downloaded once per lock."""
    wheels = CACHE / architecture / f"wheels-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"
    if not wheels.exists():
        download_wheels(architecture, BASE_PYTHON, Path(f"{wheels}.new"))
        Path(f"{wheels}.new").rename(wheels)
    programs = ("deploy/container/healthcheck.py", "deploy/container/fetch_helm.py")
    for name in ("Containerfile", ".containerignore", *programs, "requirements/runtime.lock"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, context / name)
    shutil.copytree(wheels, context / "wheels")
    (context / "helm").mkdir()
    (context / "helm" / f"helm-v4.1.4-linux-{architecture}.tar.gz").write_bytes(build_helm_archive(architecture))
    command = [sys.executable, str(ROOT / "scripts" / "build_dist.py"), "--out", str(context / "dist")]
    subprocess.run(command, check=True, capture_output=True, timeout=600)


def download_wheels(architecture: str, python: str, folder: Path) -> list[str]:
    """Downloads the locked packages, whose digests must be right, for a C library from 2018 or newer, and returns the
    names of the wheels. There are no sources among them: a package without a wheel is an error."""
    machine = MACHINES[architecture]
    # pip takes exactly these tags. The last one is the older name of manylinux_2_17.
    tags = (f"manylinux_2_28_{machine}", f"manylinux_2_17_{machine}", f"manylinux2014_{machine}")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
            *("--only-binary=:all:", f"--python-version={python}", *(f"--platform={tag}" for tag in tags)),
            *("--requirement", str(LOCK), "--dest", str(folder)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert result.returncode == 0, result.stderr
    return sorted(file.name for file in folder.iterdir())
