"""`fairlead serve`, as a process: settings from several sources, JSON logs, and no secret in them."""

import json
import signal
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from fairlead.app import StartedServer
from fairlead.cli.server.serve import announce
from fairlead.client.admin_kubeconfig import read_key, write_admin_kubeconfig
from fairlead.core.crypto.certificates import ensure_certificates
from tests.cli.conftest import Fairlead


def read_log_until_ready(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """Returns the log lines up to the one with the event `ready`."""
    assert process.stderr is not None
    lines: list[dict[str, Any]] = []
    for line in process.stderr:
        assert line.startswith("{"), line + process.communicate()[1]
        lines.append(json.loads(line))
        if lines[-1]["event"] == "ready":
            return lines
    pytest.fail(f"never ready: {lines}")


def test_the_log_has_the_url_and_the_path_of_the_first_key_but_never_the_key(
    fairlead: Fairlead, tmp_path: Path
) -> None:
    (tmp_path / "fairlead.yaml").write_text(f"data: {tmp_path / 'data'}\nport: 1\nlog_level: debug\n")
    process = fairlead("serve", "--config", str(tmp_path / "fairlead.yaml"), FAIRLEAD_PORT="0")
    lines = read_log_until_ready(process)
    kubeconfig = tmp_path / "data" / "admin.kubeconfig"
    assert lines[-1]["kubeconfig"] == str(kubeconfig)
    assert lines[-1]["first_start"] is True
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    key = read_key(kubeconfig)
    ssl_context = ssl.create_default_context(cafile=str(tmp_path / "data" / "tls" / "ca.crt"))
    path = "/kubernetes/management/apis/management.service.sh/v1/apps"
    response = httpx.get(lines[-1]["url"] + path, verify=ssl_context, headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 200
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "")
    assert key is not None
    assert key not in json.dumps(lines) + errors


def test_a_custom_certificate_is_served_and_its_ca_is_in_the_kubeconfig(fairlead: Fairlead, tmp_path: Path) -> None:
    certificates = ensure_certificates(tmp_path / "own", ["fairlead.test"])
    files = [
        "--tls-cert",
        str(certificates.cert_file),
        "--tls-key",
        str(certificates.key_file),
        "--tls-ca",
        str(certificates.ca_file),
    ]
    process = fairlead("serve", "--data", str(tmp_path / "data"), "--port", "0", *files)
    url = read_log_until_ready(process)[-1]["url"]
    ssl_context = ssl.create_default_context(cafile=str(certificates.ca_file))
    assert httpx.get(f"{url}/healthz", verify=ssl_context).status_code == 200
    assert b"certificate-authority-data" in (tmp_path / "data" / "admin.kubeconfig").read_bytes()
    assert not (tmp_path / "data" / "tls").exists()


def test_a_certificate_with_another_private_key_is_rejected_at_start(fairlead: Fairlead, tmp_path: Path) -> None:
    one, other = ensure_certificates(tmp_path / "one"), ensure_certificates(tmp_path / "other")
    files = ["--tls-cert", str(one.cert_file), "--tls-key", str(other.key_file)]
    process = fairlead("serve", "--data", str(tmp_path / "data"), "--port", "0", *files)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith("fairlead: ") and "unusable certificate or key" in errors


def test_a_key_in_the_kubeconfig_that_no_longer_works_is_logged(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "admin.kubeconfig"
    write_admin_kubeconfig(kubeconfig, "https://127.0.0.1:8443", None, "a-key")
    with structlog.testing.capture_logs() as logs:
        announce(StartedServer("https://127.0.0.1:8443", None, None, is_key_rejected=True), kubeconfig)
    [warning] = [each for each in logs if each["log_level"] == "warning"]
    assert "fairlead admin reset" in warning["advice"]
