"""`fairlead doctor` and `fairlead support-bundle` beside a running server, with a canary wherever a secret can be."""

import base64
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

from tests.harness.replicas import new_secrets
from tests.harness.server_process import MANAGEMENT, ROOT, running_server, server_environment

CANARY = "canary-3f9a7c51"
SECRETS_PATH = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"


def run(folder: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *arguments, "--data", str(folder)],
        cwd=ROOT,
        env=server_environment(**variables),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_running_server_is_found_healthy_and_described_without_secrets(tmp_path: Path) -> None:
    folder, secrets = tmp_path / "data", {**new_secrets(), "etcd_password": f"{CANARY}-etcd"}
    with running_server(folder, **secrets) as server:
        with server.client() as client:
            value = base64.b64encode(f"{CANARY}-value".encode()).decode()
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CANARY}, "data": {"key": value}}
            assert client.post(SECRETS_PATH, json=body).status_code == 201
        log = tmp_path / "server.log"
        log.write_text(f'{{"event": "started"}}\nBearer {server.key}\npassword={CANARY}-log\n{secrets["pepper"]}\n')
        checked = run(folder, secrets, "doctor", "--json")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        states = {each["subject"]: each["state"] for each in json.loads(checked.stdout)["findings"]}
        assert {states[f"port {urlsplit(server.url).port}"], states["store (sqlite)"], states["permissions"]} == {"ok"}
        out = tmp_path / "bundle.tar.gz"
        written = run(folder, secrets, "support-bundle", str(out), "--log", str(log))
        assert written.returncode == 0, written.stderr
        files = read_bundle(out)
        assert out.stat().st_mode & 0o777 == 0o600
    everything = "\n".join(files.values()) + written.stdout + written.stderr + checked.stdout
    private = secrets["encryption_keys"].split()[1], secrets["pepper"], server.key, value, CANARY
    assert [each for each in private if each in everything] == []
    assert json.loads(files["objects.json"])["counts"]["secrets"] >= 1
    assert "apiserver_request_total" in files["metrics.txt"], files["metrics.txt"][:200]
    assert '"event": "started"' in files["logs/1-server.log"]
    assert json.loads(files["versions.json"])["packages"]["granian"]
    assert {"doctor.json", "machine.json", "settings.json"} <= set(files)


def read_bundle(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        members = [(each.name.partition("/")[2], archive.extractfile(each)) for each in archive]
        return {name: file.read().decode() for name, file in members if file is not None}


def test_wrong_settings_are_findings_of_the_doctor(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlead", "doctor", "--data", str(tmp_path), "--port", "many"]
    result = subprocess.run(command, env=server_environment(), capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "PROBLEM  settings: --port: 'many' is not an integer" in result.stdout and "fix: " in result.stdout
