"""Keys in exchange for tokens: each token once, never longer than the token, and records that are deleted in time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from fairlead.admission.access_keys import KeyIssuer, issue_access_key
from fairlead.authn.access_keys import Pepper, generate_key
from fairlead.authn.principals import TEAMS, USERS, PrincipalDirectory
from fairlead.authz.scope import is_superset
from fairlead.core.call import Reply
from fairlead.core.errors import Unavailable
from fairlead.kinds.access.access_key import RULE_LABEL
from fairlead.registry.informer import Informer
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.signin import token_exchange
from fairlead.signin.oauth import FORM, REASON_ANNOTATION, TokenEndpoint
from fairlead.signin.oidc.tokens import Reason, TokenRejected
from fairlead.signin.token_exchange import MAX_CLEANED, TokenExchange, WorkloadKeys
from fairlead.signin.workload_identity import ExchangeReason, ExchangeRejected, TrustRule, VerifiedWorkload
from tests.harness.calls import call
from tests.harness.registry import NAMESPACE, RegistryFixture, open_registry
from tests.harness.virtual_time import EPOCH, on_virtual_time

SCOPE = {"projects": [{"project": "web"}]}
START = EPOCH.timestamp()
JWT_TYPE = "urn:ietf:params:oauth:token-type:jwt"


@asynccontextmanager
async def open_keys() -> AsyncIterator[tuple[RegistryFixture, WorkloadKeys]]:
    issuer = KeyIssuer(Pepper(bytes(32)), generate_key, is_superset)
    async with open_registry(rules=(issue_access_key(issuer, GROUP),)) as api:
        await api.create("User", "ci", spec={"username": "ci"})
        principals = PrincipalDirectory(Informer(api.view, GROUP, USERS), Informer(api.view, GROUP, TEAMS))
        yield api, WorkloadKeys(api.registry, GROUP, NAMESPACE, principals)


def _workload(
    token_id: str = "1", expires_in: float = 300, source: str = "https://ci.example", **rule: Any
) -> VerifiedWorkload:
    fields = {"name": "deploy", "issuer": source, "claims": {"sub": "a"}, "user": "ci", "scope": SCOPE, **rule}
    return VerifiedWorkload(TrustRule.parse(fields), source, "a", token_id, START + expires_in)


@on_virtual_time
async def test_a_key_has_the_principal_scope_and_label_of_its_rule() -> None:
    async with open_keys() as (api, keys):
        key = await keys.issue(_workload(maxTTLSeconds=60))
        assert (key.user.name, key.seconds) == ("ci", 60)
        assert key.value.startswith("fairlead_") and key.value not in repr(key)
        stored = api.get("OwnedAccessKey", key.user.key)
        assert stored is not None
        assert stored["metadata"]["labels"] == {RULE_LABEL: "deploy"}
        assert (stored["spec"]["user"], stored["spec"]["ttl"], stored["spec"]["scope"]) == ("ci", 60, SCOPE)


@on_virtual_time
async def test_a_token_id_counts_once_for_each_issuer() -> None:
    async with open_keys() as (_, keys):
        results = await asyncio.gather(*(keys.issue(_workload()) for _ in range(5)), return_exceptions=True)
        rejected = [each for each in results if isinstance(each, ExchangeRejected)]
        assert [each.reason for each in rejected] == [ExchangeReason.REPLAYED] * 4
        await keys.issue(_workload("2"))
        await keys.issue(_workload(source="https://other.example"))


@pytest.mark.parametrize(
    ("expires_in", "reason"), [(0.9, Reason.EXPIRED), (-30, Reason.EXPIRED), (2 * 24 * 3600, Reason.INVALID_TIME)]
)
def test_a_token_must_have_some_life_left_but_not_too_much(expires_in: float, reason: Reason) -> None:
    @on_virtual_time
    async def check() -> None:
        async with open_keys() as (api, keys):
            with pytest.raises(TokenRejected) as rejected:
                await keys.issue(_workload(expires_in=expires_in))
            assert rejected.value.reason == reason
            assert api.list_names("Lease") == []

    check()


@on_virtual_time
async def test_a_slow_store_does_not_make_a_key_outlive_its_token() -> None:
    async with open_keys() as (api, keys):
        commit = api.store.commit

        async def slow_commit(*arguments: Any, **options: Any) -> int:
            await asyncio.sleep(20)
            return await commit(*arguments, **options)

        api.store.commit = slow_commit  # type: ignore[method-assign]
        key = await keys.issue(_workload(expires_in=100))
        assert key.seconds <= 80


@on_virtual_time
async def test_an_absent_or_recreated_principal_uses_up_no_token() -> None:
    async with open_keys() as (api, keys):
        rules: tuple[dict[str, Any], ...] = (
            {"user": "absent"},
            {"uid": "uid-of-an-earlier-user"},
            {"user": "", "serviceAccount": "demo/x"},
        )
        for rule in rules:
            with pytest.raises(ExchangeRejected) as rejected:
                await keys.issue(_workload(**rule))
            assert rejected.value.reason == ExchangeReason.NO_PRINCIPAL
        assert api.list_names("Lease") == []
        await keys.issue(_workload())


@on_virtual_time
async def test_records_stay_until_their_tokens_have_expired_and_then_go() -> None:
    async with open_keys() as (api, keys):
        for number in range(3 * MAX_CLEANED):
            await keys.issue(_workload(str(number)))
        assert len(api.list_names("Lease")) == 3 * MAX_CLEANED
        await asyncio.sleep(299)
        with pytest.raises((ExchangeRejected, TokenRejected)):
            await keys.issue(_workload("0"))
        await asyncio.sleep(300)
        for number in range(4):
            await keys.issue(_workload(f"later-{number}", expires_in=1_000))
        assert len(api.list_names("Lease")) == 4


@on_virtual_time
async def test_the_live_keys_of_a_rule_are_bounded() -> None:
    async with open_keys() as (_, keys):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(token_exchange, "MAX_LIVE_KEYS", 3)
            for number in range(3):
                await keys.issue(_workload(f"{number}", maxTTLSeconds=60))
            with pytest.raises(ExchangeRejected, match="3 keys of the rule have not expired") as rejected:
                await keys.issue(_workload("3"))
            assert rejected.value.reason == ExchangeReason.TOO_MANY_KEYS
            await keys.issue(_workload("4", name="deploy-2"))  # other rules have keys of their own
            await asyncio.sleep(61)
            await keys.issue(_workload("3"))  # the token was not used up


@on_virtual_time
async def test_an_exchange_beyond_the_bound_gets_429() -> None:
    """As CI systems know it: try again later."""

    class Identity:
        async def verify(self, token: str, cluster: str, now: datetime) -> VerifiedWorkload:
            return _workload(token)

    async with open_keys() as (api, keys):
        exchange = TokenExchange(Identity(), keys, api.clock)  # type: ignore[arg-type]
        endpoint, replies = TokenEndpoint({"exchange": exchange}), list[Reply]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(token_exchange, "MAX_LIVE_KEYS", 2)
            for token in ("1", "2", "3"):
                fields = {"grant_type": "exchange", "subject_token_type": JWT_TYPE, "subject_token": token}
                body = urlencode(fields).encode()
                headers = {"content-type": FORM, "content-length": str(len(body))}
                request = call("/auth/token", method="POST", headers=headers, body=body)
                replies.append(await endpoint(request))
        assert [each.status for each in replies] == [200, 200, 429]
        error = orjson.loads(replies[-1].body)
        assert error["error"] == "temporarily_unavailable"
        assert error["error_description"].startswith("2 keys of the rule have not expired; try again later")
        assert request.annotations[REASON_ANNOTATION] == ExchangeReason.TOO_MANY_KEYS
        assert token_exchange.MAX_LIVE_KEYS == 1_000


@on_virtual_time
async def test_a_key_is_returned_even_if_old_records_cannot_be_deleted() -> None:
    async with open_keys() as (api, keys):
        await keys.issue(_workload(expires_in=1.5))
        await asyncio.sleep(600)

        async def fail(*arguments: Any) -> None:
            raise Unavailable("the store is busy")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(keys._leases), "delete", fail)
            key = await keys.issue(_workload("2", expires_in=900))
        assert api.get("OwnedAccessKey", key.user.key) is not None
