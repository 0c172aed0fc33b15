"""Direct tokens over HTTP: shown once, in the answer, and in no log."""

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
from tests.harness.signing_keys import keys_in_turn

ISSUER = "https://fairlead.example.com"
ROOT = f"{MOUNT}/apis/{GROUP}/v1"
KINDS = {TOKENS: DIRECT_CLUSTER_ENDPOINT_TOKEN, ROTATIONS: TOKEN_KEY_ROTATION}


class Api:
    """The two kinds behind an audit log that records everything."""

    def __init__(self, auth: AuthFixture, keys: SigningKeyStore, asking: AuditFixture) -> None:
        self.auth = auth
        self.keys = keys
        self.asking = asking

    async def __call__(self, plural: str, body: Any = None, code: int = 201, **others: Any) -> Object:
        reply = await self.asking("POST", f"{ROOT}/{plural}", {} if body is None else body, **others)
        assert reply.status == code, reply.body
        answer: Object = orjson.loads(reply.body)
        return answer

    async def verifies(self, token: str) -> bool:
        listed = {"keys": await self.keys.jwks()}
        now = self.auth.api.clock.now()
        return verify(token, listed, issuer=ISSUER, audience=AUDIENCE, now=now).user == "ada"

    @property
    def log(self) -> bytes:
        return self.asking.notebook.data


def serving(handlers: DirectTokenHandlers) -> Handler:
    actions = Actions(Catalog(tuple(KINDS.values())), handlers.handlers(GROUP))

    async def serve(call: Call) -> Reply:
        return await actions(call, KINDS[call.target.resource])

    return serve


@asynccontextmanager
async def an_api(user: User = ADA) -> AsyncIterator[Api]:
    async with open_auth() as auth:
        keys = SigningKeyStore(auth.registry, SYSTEM)
        rights = DelegationChecks(is_superset, auth.rights)
        minting = DirectTokenIssuer(auth.registry, GROUP, keys, IssuerConfig(ISSUER, Lifetimes), rights)
        async with open_audit(serving(DirectTokenHandlers(minting, keys)), EVERYTHING, user=user) as asking:
            yield Api(auth, keys, asking)


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys_in_turn()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(made))


async def test_a_token_is_answered_with_how_long_it_lives() -> None:
    async with an_api() as api:
        made = await api(TOKENS, {"spec": {"ttl": 60}})
        assert (made["kind"], made["apiVersion"]) == ("DirectClusterEndpointToken", f"{GROUP}/v1")
        assert made["spec"] == {"ttl": 60}
        assert made["metadata"].keys() == {"creationTimestamp"}
        assert await api.verifies(made["status"]["token"])


@pytest.mark.parametrize("body", [{}, {"spec": {}}, {"spec": None}, {"kind": "DirectClusterEndpointToken"}])
async def test_whoever_says_nothing_gets_the_default(body: Object) -> None:
    async with an_api() as api:
        sent = {**body, "apiVersion": f"{GROUP}/v1"} if "kind" in body else body
        assert (await api(TOKENS, sent))["spec"] == {"ttl": 24 * 3600}


async def test_a_status_that_is_sent_is_not_echoed() -> None:
    async with an_api() as api:
        made = await api(TOKENS, {"status": {"token": "mine"}})
        assert made["status"]["token"] != "mine"


async def test_too_long_a_life_is_a_field_that_is_wrong() -> None:
    async with an_api() as api:
        told = await api(TOKENS, {"spec": {"ttl": 90 * 24 * 3600 + 1}}, code=422)
        assert told["details"]["causes"][0]["field"] == "spec.ttl"


async def test_a_rehearsal_has_no_token() -> None:
    async with an_api() as api:
        made = await api(TOKENS, query="dryRun=All")
        assert "status" not in made
        assert await api.keys.jwks() == []


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
@pytest.mark.parametrize("plural", KINDS)
async def test_there_is_nothing_to_read_or_change(plural: str, method: str) -> None:
    async with an_api() as api:
        assert (await api.asking(method, f"{ROOT}/{plural}")).status == 405


async def test_t_30_every_token_is_on_record_and_none_of_them_can_be_read_there() -> None:
    async with an_api() as api:
        with capture_logs() as lines:
            made = await api(TOKENS)
    token = made["status"]["token"]
    (event,) = api.asking.completed()
    assert event["objectRef"]["resource"] == TOKENS
    assert event["responseObject"]["spec"] == made["spec"]
    for part in token.split("."):
        assert part.encode() not in api.log
        assert part not in str(lines)


async def test_each_token_is_logged_by_its_id() -> None:
    async with an_api() as api:
        with capture_logs() as lines:
            await api(TOKENS, {"spec": {"ttl": 60}})
    (line,) = [each for each in lines if each["event"] == "a direct token was issued"]
    assert (line["user"], line["ttl"], len(line["id"])) == ("ada", 60, 32)


async def test_a_rotation_names_the_new_key_and_how_long_the_one_before_is_needed() -> None:
    async with an_api() as api:
        before = (await api(TOKENS))["status"]["token"]
        (old,) = await api.keys.jwks()
        status = (await api(ROTATIONS))["status"]
        after = (await api(TOKENS))["status"]["token"]
        assert [each["kid"] for each in await api.keys.jwks()] == [status["keyID"], old["kid"]]
        assert status["retiredUntil"].endswith("Z")
        assert await api.verifies(before) and await api.verifies(after)


async def test_the_first_key_has_none_before_it() -> None:
    async with an_api() as api:
        assert (await api(ROTATIONS))["status"].keys() == {"keyID"}


async def test_a_rotation_cannot_be_rehearsed() -> None:
    async with an_api() as api:
        told = await api(ROTATIONS, query="dryRun=All", code=400)
        assert told["message"].startswith("dryRun is not supported") and "omit it" in told["message"]
        assert await api.keys.jwks() == []
