"""With the most verbose logging, no access key is in the log, and none is in the database."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.server_process import CONFIGMAPS, MANAGEMENT, Server, configmap, running_server

CANARY = "canary-5b1f0c7e-not-to-be-logged"
SECRETS = f"{MANAGEMENT}/api/v1/namespaces/default/secrets"


@pytest.fixture(scope="module", params=["console", "json"])
def stopped_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has processed many requests, and has stopped."""
    folder = tmp_path_factory.mktemp("secrets") / "data"
    with running_server(folder, log_level="debug", log_format=request.param) as server:
        send_secrets(server)
        assert server.stop() == 0
        yield server


def send_secrets(server: Server) -> None:
    """Sends valid and invalid requests with secrets in every place where a client might put them."""
    key, bearer = server.key, f"Bearer {CANARY}"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": CANARY}}
    with server.client() as client, server.client(None) as anonymous:
        assert client.post(SECRETS, json=secret).status_code == 201
        assert client.post(SECRETS, json=secret).status_code == 409
        assert client.post(SECRETS, content=json.dumps(secret)[:-5]).status_code == 400
        assert client.post(SECRETS, content=json.dumps(secret), headers={"Content-Type": "text/x"}).status_code == 415
        assert client.put(f"{SECRETS}/s", json=secret | {"metadata": {"name": "t"}}).status_code == 400
        assert client.get(SECRETS, params={"token": key, "watch": "1", "timeoutSeconds": "1"}).status_code == 200
        client.get(f"{CONFIGMAPS}/{CANARY}/{key}")
        client.get(f"/{key}", params={"access_token": key, "password": CANARY})
        client.get(CONFIGMAPS, headers={"Accept": CANARY, "User-Agent": key, "Cookie": f"token={key}"})
        client.request(CANARY.upper(), CONFIGMAPS)
        anonymous.get(CONFIGMAPS, headers={"Authorization": bearer})
        anonymous.get(CONFIGMAPS, headers=[("Authorization", f"Bearer {key}"), ("Authorization", bearer)])
        anonymous.get(CONFIGMAPS, headers={"Authorization": key})
        client.post(CONFIGMAPS, json=configmap("a") | {CANARY: 1})
    with server.connect() as connection:
        head = (
            f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {key}\r\nContent-Length: 500\r\n\r\n"
        )
        connection.sendall(f"{head}{CANARY}".encode())
    with server.connect() as connection:
        connection.sendall(f"{CANARY} {key}\r\n\r\n".encode())


def list_encodings(secret: str) -> list[bytes]:
    plain = secret.encode()
    return [plain, base64.b64encode(plain).rstrip(b"="), plain.hex().encode()]


def test_no_secret_is_logged(stopped_server: Server) -> None:
    log = stopped_server.log.read_bytes()
    for secret in (stopped_server.key, CANARY):
        for encoding in list_encodings(secret):
            assert encoding not in log


def test_no_key_is_in_the_database(stopped_server: Server) -> None:
    folder = Path(stopped_server.ca_file).parent.parent
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "admin.kubeconfig"]
    assert {"fairlead.db", "pepper.key"} <= {path.name for path in files}
    for path in files:
        for encoding in list_encodings(stopped_server.key):
            assert encoding not in path.read_bytes(), path


def test_only_the_owner_can_read_the_files_of_the_server(stopped_server: Server) -> None:
    folder = Path(stopped_server.ca_file).parent.parent
    assert folder.stat().st_mode & 0o077 == 0
    public = {"ca.crt", "server.crt"}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in public:
            assert path.stat().st_mode & 0o077 == 0, path
