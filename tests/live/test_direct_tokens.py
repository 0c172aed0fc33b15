"""Direct tokens of a real server, verified by a JWT library with the published keys."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import jwt

from fairlead.authn.direct_tokens import AUDIENCE
from tests.harness.server_process import MANAGEMENT, Server, running_server

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
PLAIN_PREFIX = b64encode(b'{"active":{"id":"')[:-4]
"""How the signing keys would begin if they were not encrypted."""
CLAIMS = ["exp", "iat", "nbf", "iss", "aud", "sub", "jti"]


def create_token(server: Server) -> str:
    with server.client() as client:
        response = client.post(f"{M}/directclusterendpointtokens", json={"spec": {"ttl": 600}})
        assert response.status_code == 201, response.text
        token: str = response.json()["status"]["token"]
        return token


def verify_token(token: str, server: Server, issuer: str = "") -> dict[str, Any]:
    """Verifies the token as an anonymous client that knows only the base URL."""
    with server.client(None) as anonymous:
        configuration = anonymous.get("/.well-known/openid-configuration").json()
        assert configuration["issuer"] == server.url
        published = jwt.PyJWKSet.from_dict(anonymous.get(configuration["jwks_uri"]).json())
    key = published[jwt.get_unverified_header(token)["kid"]]
    options: Any = {"require": CLAIMS}
    return jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=issuer or server.url, options=options)


def test_a_token_is_verified_with_published_keys_after_a_restart_and_a_rotation(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        issuer, before = server.url, create_token(server)
        claims = verify_token(before, server)
        assert (claims["sub"], claims["service.sh"]["kind"]) == ("admin", "User")
        assert claims["exp"] - claims["iat"] == 600
        key = server.key
        assert server.stop() == 0
    with running_server(tmp_path / "data") as server:
        assert verify_token(before, server, issuer) == claims
        with server.client(key) as admin:
            rotation = admin.post(f"{M}/tokenkeyrotations", json={}).json()["status"]
            response = admin.post(f"{M}/directclusterendpointtokens", json={"spec": {}}).json()
        after = response["status"]["token"]
        assert jwt.get_unverified_header(after)["kid"] == rotation["keyID"]
        assert verify_token(before, server, issuer) == claims
        assert verify_token(after, server)["sub"] == "admin"
        assert server.stop() == 0
    check_audit_log(tmp_path / "data", before, after)


def check_audit_log(folder: Path, *tokens: str) -> None:
    log = (folder / "audit.log").read_text()
    events = [json.loads(line) for line in log.splitlines()]
    creations = [each for each in events if each.get("objectRef", {}).get("resource") == "directclusterendpointtokens"]
    assert len({each["auditID"] for each in creations}) == len(tokens)
    database = b"".join(path.read_bytes() for path in folder.glob("fairlead.db*"))
    assert b"signing-keys" in database and PLAIN_PREFIX not in database
    for part in (part for token in tokens for part in token.split(".")[1:]):
        assert part not in log and part.encode() not in database
