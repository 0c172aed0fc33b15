"""The server as a service manager starts it: readiness is announced, secrets are not in the environment, and memory is
never writable and executable (MemoryDenyWriteExecute=yes in the unit)."""

import base64
import errno
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from tests.harness.server_process import ROOT, server_environment

PR_SET_MDWE = 65  # linux/prctl.h; the kernel's own implementation of what systemd does with system call filters
PR_MDWE_REFUSE_EXEC_GAIN = 1
WRONG_LOGIN = {"username": "admin", "password": "wrong"}
"""It is rejected only after the password has been hashed, in native code."""
PEPPER = base64.b64encode(b"canary-pepper-of-32-bytes-length").decode()


DENY_WRITABLE_CODE = f"""
import ctypes, os, sys
if ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0):
    sys.exit("this kernel is older than Linux 6.3")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
RESTRICTED_PYTHON = (sys.executable, "-c", DENY_WRITABLE_CODE)


def test_the_restriction_of_memory_is_in_force_in_this_test() -> None:
    """Otherwise the next test would show nothing."""
    program = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"
    result = subprocess.run([*RESTRICTED_PYTHON, "-c", program], capture_output=True, text=True, check=False)
    assert f"[Errno {errno.EACCES}]" in result.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_is_ready_keeps_its_secrets_and_needs_no_writable_code(tmp_path: Path, workers: int) -> None:
    credentials, address, data = tmp_path / "credentials", tmp_path / "notify", tmp_path / "data"
    credentials.mkdir(mode=0o700)
    (credentials / "fairlead.pepper").write_text(PEPPER)
    variables = {"NOTIFY_SOCKET": str(address), "CREDENTIALS_DIRECTORY": str(credentials)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, (tmp_path / "log").open("w+") as log:
        manager.bind(str(address))
        manager.settimeout(90)
        process = subprocess.Popen(
            [*RESTRICTED_PYTHON, "-m", "fairlead", "serve", "--data", str(data), "--port", "0"],
            cwd=ROOT,
            env={**server_environment(workers=workers), **variables},
            stderr=log,
        )
        try:
            assert manager.recv(100) == b"READY=1", (tmp_path / "log").read_text()
            check_requests(data)
            for pid in [process.pid, *list_children(process.pid)]:
                assert PEPPER.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
            assert not (data / "pepper.key").exists()  # the pepper of the credential was used
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()


def list_children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def check_requests(data: Path) -> None:
    """Uses native code: TLS, JSON, schemas, passwords."""
    config = yaml.safe_load((data / "admin.kubeconfig").read_text())
    url, key = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
    trust = ssl.create_default_context(cafile=str(data / "tls" / "ca.crt"))
    with httpx.Client(timeout=60, verify=trust, headers={"Authorization": f"Bearer {key}"}) as client:
        project = {
            "apiVersion": "management.service.sh/v1",
            "kind": "Project",
            "metadata": {"name": "demo"},
            "spec": {},
        }
        created = client.post(f"{url}/apis/management.service.sh/v1/projects", json=project)
        assert created.status_code == 201, created.text
        assert client.get(f"{url}/apis/management.service.sh/v1/projects/demo").status_code == 200
        login = client.post(f"{os.path.dirname(os.path.dirname(url))}/auth/password/login", json=WRONG_LOGIN)
        assert login.status_code == 401
