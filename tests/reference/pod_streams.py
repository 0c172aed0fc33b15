"""What kubectl carries to and from a running pod is complete: output, input and files of `exec` and `cp`.

The pod is `box` of the kubeconfig's namespace. Used for the gateway, for agents and for virtual clusters.
"""

import hashlib
import os
import re
import subprocess
import urllib.request
from pathlib import Path

from tests.harness.kubectl import Kubectl

MIB = 2**20
EXIT_CODE = 7


def execute(
    kubectl: Kubectl, *command: str, stdin: bytes = b"", seconds: float = 120
) -> "subprocess.CompletedProcess[bytes]":
    """Runs `kubectl exec` with binary input and output."""
    exec_command = [str(kubectl.program), "exec", "-i", "box", "--", *command]
    variables = {"PATH": os.environ["PATH"], "HOME": str(kubectl.home), "KUBECONFIG": str(kubectl.kubeconfig)}
    return subprocess.run(exec_command, input=stdin, capture_output=True, timeout=seconds, check=False, env=variables)


def check_output(kubectl: Kubectl, size: int) -> None:
    """`size` bytes of output, and the exit code."""
    result = execute(kubectl, "sh", "-c", f"yes fairlead | head -c {size}; exit {EXIT_CODE}")
    assert (len(result.stdout), result.returncode) == (size, EXIT_CODE), result.stderr


def check_input(kubectl: Kubectl, size: int) -> None:
    sent = os.urandom(size)
    result = execute(kubectl, "sha256sum", stdin=sent)
    assert result.stdout.split()[0].decode() == hashlib.sha256(sent).hexdigest(), result.stderr


def check_copies(kubectl: Kubectl, size: int, folder: Path) -> None:
    """A file is copied to the pod, and back."""
    sent, returned = folder / "sent", folder / "back"
    sent.write_bytes(os.urandom(size))
    for arguments in (("cp", str(sent), "box:/tmp/file"), ("cp", "box:/tmp/file", str(returned))):
        assert not kubectl.expect_warnings(*arguments)
    assert returned.read_bytes() == sent.read_bytes()


def serve_page(kubectl: Kubectl) -> None:
    """Starts a web server in the pod, at port 8080."""
    execute(kubectl, "sh", "-c", "mkdir -p /www; echo hello > /www/index.html; busybox httpd -p 8080 -h /www")


def check_forwarded_port(kubectl: Kubectl) -> int:
    """The page of `serve_page` is read through `port-forward`. Returns the local port, which is closed again."""
    with kubectl.watching("port-forward", "pod/box", ":8080") as process:
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert match is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{match[1]}/", timeout=10) as response:
            assert response.read() == b"hello\n"
    return int(match[1])
