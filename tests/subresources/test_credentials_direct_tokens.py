"""Direct tokens and rotations of their keys: a token is only in the reply, and in no log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from fairlead.authn.direct_tokens import AUDIENCE, verify
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import DelegationChecks, DirectTokenIssuer, IssuerConfig, Lifetimes
from fairlead.authz.scope import is_superset
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.crypto import signing
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.kinds.access.direct_token import DIRECT_CLUSTER_ENDPOINT_TOKEN, TOKEN_KEY_ROTATION
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.kind import Catalog
from fairlead.server.api.actions import Actions
from fairlead.subresources.credentials import ROTATIONS, TOKENS, DirectTokenHandlers
from tests.harness.audit import EVERYTHING, MOUNT, AuditFixture, open_audit
from tests.harness.auth import ADA, AuthFixture, open_auth
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.signing_keys import iterate_keys

ISSUER = "https://fairlead.example.com"
ROOT = f"{MOUNT}/apis/{GROUP}/v1"
KINDS = {TOKENS: DIRECT_CLUSTER_ENDPOINT_TOKEN, ROTATIONS: TOKEN_KEY_ROTATION}


class TokenApi:
    """Both kinds behind an audit stage that records everything."""

    def __init__(self, auth: AuthFixture, keys: SigningKeyStore, audited: AuditFixture) -> None:
        self.auth = auth
        self.keys = keys
        self.audited = audited

    async def __call__(self, plural: str, body: Any = None, code: int = 201, **options: Any) -> Object:
        reply = await self.audited("POST", f"{ROOT}/{plural}", {} if body is None else body, **options)
        assert reply.status == code, reply.body
        reply_object: Object = orjson.loads(reply.body)
        return reply_object

    async def is_valid(self, token: str) -> bool:
        jwks = {"keys": await self.keys.jwks()}
        now = self.auth.api.clock.now()
        return verify(token, jwks, issuer=ISSUER, audience=AUDIENCE, now=now).user == "ada"

    @property
    def log(self) -> bytes:
        return self.audited.log.data


def build_handler(handlers: DirectTokenHandlers) -> Handler:
    actions = Actions(Catalog(tuple(KINDS.values())), handlers.handlers(GROUP))

    async def serve(call: Call) -> Reply:
        return await actions(call, KINDS[call.target.resource])

    return serve


@asynccontextmanager
async def open_token_api(user: User = ADA) -> AsyncIterator[TokenApi]:
    async with open_auth() as auth:
        keys = SigningKeyStore(auth.registry, SYSTEM)
        checks = DelegationChecks(is_superset, auth.permissions)
        issuer = DirectTokenIssuer(auth.registry, GROUP, keys, IssuerConfig(ISSUER, Lifetimes), checks)
        async with open_audit(build_handler(DirectTokenHandlers(issuer, keys)), EVERYTHING, user=user) as audited:
            yield TokenApi(auth, keys, audited)


@pytest.fixture(autouse=True)
def use_prepared_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iterate_keys()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(keys))


async def test_the_reply_has_the_token_and_its_ttl() -> None:
    async with open_token_api() as api:
        created = await api(TOKENS, {"spec": {"ttl": 60}})
        assert (created["kind"], created["apiVersion"]) == ("DirectClusterEndpointToken", f"{GROUP}/v1")
        assert created["spec"] == {"ttl": 60}
        assert created["metadata"].keys() == {"creationTimestamp"}
        assert await api.is_valid(created["status"]["token"])


@pytest.mark.parametrize("body", [{}, {"spec": {}}, {"spec": None}, {"kind": "DirectClusterEndpointToken"}])
async def test_a_request_without_a_ttl_gets_the_default(body: Object) -> None:
    async with open_token_api() as api:
        request_body = {**body, "apiVersion": f"{GROUP}/v1"} if "kind" in body else body
        assert (await api(TOKENS, request_body))["spec"] == {"ttl": 24 * 3600}


async def test_a_status_in_the_request_is_ignored() -> None:
    async with open_token_api() as api:
        created = await api(TOKENS, {"status": {"token": "mine"}})
        assert created["status"]["token"] != "mine"


async def test_a_ttl_above_the_maximum_is_invalid() -> None:
    async with open_token_api() as api:
        error = await api(TOKENS, {"spec": {"ttl": 90 * 24 * 3600 + 1}}, code=422)
        assert error["details"]["causes"][0]["field"] == "spec.ttl"


async def test_a_dry_run_returns_no_token() -> None:
    async with open_token_api() as api:
        created = await api(TOKENS, query="dryRun=All")
        assert "status" not in created
        assert await api.keys.jwks() == []


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
@pytest.mark.parametrize("plural", KINDS)
async def test_only_create_is_allowed(plural: str, method: str) -> None:
    async with open_token_api() as api:
        assert (await api.audited(method, f"{ROOT}/{plural}")).status == 405


async def test_t_30_every_token_is_audited_and_none_is_in_the_log() -> None:
    async with open_token_api() as api:
        with capture_logs() as lines:
            created = await api(TOKENS)
    token = created["status"]["token"]
    (event,) = api.audited.completed_events()
    assert event["objectRef"]["resource"] == TOKENS
    assert event["responseObject"]["spec"] == created["spec"]
    for part in token.split("."):
        assert part.encode() not in api.log
        assert part not in str(lines)


async def test_each_token_is_logged_by_its_id() -> None:
    async with open_token_api() as api:
        with capture_logs() as lines:
            await api(TOKENS, {"spec": {"ttl": 60}})
    (line,) = [each for each in lines if each["event"] == "a direct token was issued"]
    assert (line["user"], line["ttl"], len(line["id"])) == ("ada", 60, 32)


async def test_a_rotation_returns_the_new_key_and_the_end_of_the_old_one() -> None:
    async with open_token_api() as api:
        before = (await api(TOKENS))["status"]["token"]
        (old,) = await api.keys.jwks()
        status = (await api(ROTATIONS))["status"]
        after = (await api(TOKENS))["status"]["token"]
        assert [each["kid"] for each in await api.keys.jwks()] == [status["keyID"], old["kid"]]
        assert status["retiredUntil"].endswith("Z")
        assert await api.is_valid(before) and await api.is_valid(after)


async def test_the_first_rotation_retires_no_key() -> None:
    async with open_token_api() as api:
        assert (await api(ROTATIONS))["status"].keys() == {"keyID"}


async def test_a_rotation_supports_no_dry_run() -> None:
    async with open_token_api() as api:
        error = await api(ROTATIONS, query="dryRun=All", code=400)
        assert error["message"].startswith("dryRun is not supported") and "omit it" in error["message"]
        assert await api.keys.jwks() == []
