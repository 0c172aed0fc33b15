"""Direct tokens of a real server, verified as others verify them: with a JWT library, against the published keys."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import jwt

from fairlead.authn.direct_tokens import AUDIENCE
from tests.harness.server_process import MANAGEMENT, Server, running

M = f"{MANAGEMENT}/apis/management.service.sh/v1"
BEGINNING = b64encode(b'{"active":{"id":"')[:-4]
"""How the signing keys would begin if they were not sealed."""
CLAIMS = ["exp", "iat", "nbf", "iss", "aud", "sub", "jti"]


def minted(server: Server) -> str:
    with server.client() as client:
        answer = client.post(f"{M}/directclusterendpointtokens", json={"spec": {"ttl": 600}})
        assert answer.status_code == 201, answer.text
        token: str = answer.json()["status"]["token"]
        return token


def verified(token: str, server: Server, issuer: str = "") -> dict[str, Any]:
    """As a stranger does it who knows the base URL and nothing else."""
    with server.client(None) as stranger:
        configuration = stranger.get("/.well-known/openid-configuration").json()
        assert configuration["issuer"] == server.url
        published = jwt.PyJWKSet.from_dict(stranger.get(configuration["jwks_uri"]).json())
    key = published[jwt.get_unverified_header(token)["kid"]]
    options: Any = {"require": CLAIMS}
    return jwt.decode(token, key, algorithms=["RS256"], audience=AUDIENCE, issuer=issuer or server.url, options=options)


def test_a_token_is_verified_with_what_is_published_also_after_a_restart_and_a_rotation(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        issuer, before = server.url, minted(server)
        claims = verified(before, server)
        assert (claims["sub"], claims["service.sh"]["kind"]) == ("admin", "User")
        assert claims["exp"] - claims["iat"] == 600
        key = server.key
        assert server.stop() == 0
    with running(tmp_path / "data") as server:
        assert verified(before, server, issuer) == claims
        with server.client(key) as admin:
            rotation = admin.post(f"{M}/tokenkeyrotations", json={}).json()["status"]
            answer = admin.post(f"{M}/directclusterendpointtokens", json={"spec": {}}).json()
        after = answer["status"]["token"]
        assert jwt.get_unverified_header(after)["kid"] == rotation["keyID"]
        assert verified(before, server, issuer) == claims
        assert verified(after, server)["sub"] == "admin"
        assert server.stop() == 0
    assert_on_record_without_its_value(tmp_path / "data", before, after)


def assert_on_record_without_its_value(folder: Path, *tokens: str) -> None:
    log = (folder / "audit.log").read_text()
    events = [json.loads(line) for line in log.splitlines()]
    made = [each for each in events if each.get("objectRef", {}).get("resource") == "directclusterendpointtokens"]
    assert len({each["auditID"] for each in made}) == len(tokens)
    database = b"".join(path.read_bytes() for path in folder.glob("fairlead.db*"))
    assert b"signing-keys" in database and BEGINNING not in database
    for part in (part for token in tokens for part in token.split(".")[1:]):
        assert part not in log and part.encode() not in database
