"""Direct tokens hand on what the key in use has, and not more (T-4)."""

from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import orjson
import pytest

from fairlead.authn.direct_tokens import AUDIENCE, SCOPED_AUDIENCE, Claims, verify
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import (
    MAX_CLUSTERS,
    DelegationChecks,
    DirectTokenIssuer,
    IssuedToken,
    IssuerConfig,
    Lifetimes,
)
from fairlead.authz.scope import is_superset
from fairlead.core.crypto import signing
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.auth import ADA, BOB, ROOT, AuthFixture, open_auth, projects
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.signing_keys import keys_in_turn

ISSUER = "https://fairlead.example.com"
DAY = 24 * 3600


@dataclass
class Office:
    auth: AuthFixture
    keys: SigningKeyStore
    minting: DirectTokenIssuer
    lifetimes: Lifetimes = field(default_factory=Lifetimes)

    async def mint(self, user: User, **spec: Any) -> IssuedToken:
        minted = await self.minting.issue(user, spec)
        assert minted is not None
        return minted

    async def claims(self, user: User, **spec: Any) -> Claims:
        """What a token for the user says, to somebody who enforces scopes."""
        minted = await self.mint(user, **spec)
        listed = {"keys": await self.keys.jwks()}
        audience = (AUDIENCE, SCOPED_AUDIENCE)
        return verify(minted.value, listed, issuer=ISSUER, audience=audience, now=self.auth.api.clock.now())


@asynccontextmanager
async def an_office() -> AsyncIterator[Office]:
    async with open_auth() as auth:
        keys = SigningKeyStore(auth.registry, SYSTEM)
        issuing = IssuerConfig(ISSUER, lambda: made.lifetimes)
        minting = DirectTokenIssuer(auth.registry, GROUP, keys, issuing, DelegationChecks(is_superset, auth.rights))
        made = Office(auth, keys, minting)
        yield made


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys_in_turn()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(made))


async def test_a_token_says_who_its_owner_is() -> None:
    async with an_office() as office:
        ada = await office.auth.signed_in("ada")
        claims = await office.claims(ada)
        assert (claims.user, claims.name, claims.kind, claims.uid) == ("ada", "ada", "User", ada.uid)
        assert set(claims.groups) == {"service:authenticated", "service:user:ada", "service:user:*"}
        assert (claims.generation, claims.scope) == (0, None)
        assert claims.original_requester == ""


async def test_two_tokens_are_never_the_same() -> None:
    async with an_office() as office:
        minted = [await office.mint(ADA) for _ in range(5)]
        assert len({each.id for each in minted}) == len({each.value for each in minted}) == 5
        assert minted[0].value not in repr(minted[0])


async def test_a_token_lives_a_day_or_as_long_as_was_asked() -> None:
    async with an_office() as office:
        lives = [await office.claims(ADA, **spec) for spec in ({}, {"ttl": 0}, {"ttl": 60}, {"ttl": 90 * DAY})]
        assert [each.expires_at - each.issued_at for each in lives] == [DAY, DAY, 60, 90 * DAY]


async def test_more_than_the_cap_is_refused_and_not_cut() -> None:
    async with an_office() as office:
        with pytest.raises(
            Invalid, match=f"spec.ttl: Invalid value: {90 * DAY + 1}: must be at most {90 * DAY} seconds"
        ):
            await office.mint(ROOT, ttl=90 * DAY + 1)


async def test_another_default_and_another_cap_count_at_once() -> None:
    async with an_office() as office:
        office.lifetimes = Lifetimes(default=100, maximum=50)
        assert (await office.mint(ADA)).ttl == 50
        office.lifetimes = Lifetimes(maximum=400 * DAY)
        await office.mint(ADA, ttl=400 * DAY)
        assert (await office.keys.active_key(1)).active.longest == 400 * DAY


async def test_t4_a_token_does_not_outlive_the_key_that_it_was_asked_with() -> None:
    async with an_office() as office:
        ada = await office.auth.signed_in("ada", ttl=3600)
        with pytest.raises(Forbidden, match=r"set spec.ttl to at most 3[56]\d\d"):
            await office.mint(ada, ttl=3700)
        assert (await office.mint(ada, ttl=3000)).ttl == 3000


async def test_t4_nobody_asked_for_more_than_the_key_has_left() -> None:
    async with an_office() as office:
        ada = await office.auth.signed_in("ada", ttl=3600)
        minted = await office.mint(ada)
        assert 3500 < minted.ttl <= 3600
        lasting = await office.auth.signed_in("ada", ttl=90 * DAY)
        assert (await office.mint(lasting)).ttl == DAY


async def test_t4_a_key_that_is_gone_makes_no_token() -> None:
    async with an_office() as office:
        with pytest.raises(Forbidden, match="no longer exists; sign in again"):
            await office.mint(replace(ADA, key="nothing"))


async def test_t4_a_scope_is_handed_on() -> None:
    async with an_office() as office:
        ada = await office.auth.signed_in("ada", scope=projects("web", "api"))
        assert (await office.claims(ada)).scope == projects("web", "api")
        assert (await office.claims(ada, scope=projects("web"))).scope == projects("web")


async def test_t4_a_scope_that_reaches_further_is_refused() -> None:
    async with an_office() as office:
        ada = await office.auth.signed_in("ada", scope=projects("web"))
        for scope in (projects("web", "api"), projects("*"), {"clusters": [{"cluster": "berlin"}]}):
            with pytest.raises(Forbidden, match=r"spec.scope exceeds the scope of"):
                await office.mint(ada, scope=scope)


async def test_t4_a_key_whose_scope_was_taken_away_meanwhile_makes_no_free_token() -> None:
    async with an_office() as office:
        ada = await office.auth.signed_in("ada", scope=projects("web"))
        await office.auth.set("OwnedAccessKey", ada.key, ROOT, scope=None)
        with pytest.raises(Forbidden, match="exceeds the scope"):
            await office.mint(ada)


async def test_who_has_no_scope_may_ask_for_any() -> None:
    async with an_office() as office:
        for scope in ({}, projects("web")):
            assert (await office.claims(ADA, scope=scope)).scope == scope


async def test_a_token_with_a_scope_is_for_another_audience() -> None:
    """Who knows the issuer and nothing of scopes would take it for one with all rights."""
    async with an_office() as office:
        scoped = await office.mint(ADA, scope={})
        with pytest.raises(Exception, match="another audience"):
            listed = {"keys": await office.keys.jwks()}
            verify(scoped.value, listed, issuer=ISSUER, audience=AUDIENCE, now=office.auth.api.clock.now())


async def test_t13_a_token_has_the_uids_of_the_clusters_that_its_scope_names() -> None:
    async with an_office() as office:
        cluster = await office.auth.make("Cluster", "berlin", ROOT)
        scope = {"clusters": [{"cluster": name} for name in ("berlin", "oslo", "*")]}
        office.auth.rights.grant(ADA, "get", f"clusters.{GROUP}", "berlin")
        assert (await office.claims(ADA, scope=scope)).clusters == {"berlin": cluster["metadata"]["uid"]}
        assert (await office.claims(BOB, scope=scope)).clusters == {}, "he may not know whether there is one"


def audiences(minted: IssuedToken) -> list[str]:
    payload = minted.value.split(".")[1]
    found: list[str] = orjson.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["aud"]
    return found


def may_use(office: Office, cluster: str) -> None:
    office.auth.rights.grant(ADA, "use", f"clusters.{GROUP}", cluster)


async def test_t13_a_token_is_for_the_clusters_that_its_owner_may_use_when_it_is_made() -> None:
    async with an_office() as office:
        uids = {each: (await office.auth.make("Cluster", each, ROOT))["metadata"]["uid"] for each in ("berlin", "oslo")}
        assert audiences(await office.mint(ADA)) == [AUDIENCE, f"{AUDIENCE}/nowhere"]
        may_use(office, "berlin")
        assert audiences(await office.mint(ADA)) == [AUDIENCE, f"{AUDIENCE}/{uids['berlin']}"]
        may_use(office, "oslo")
        assert set(audiences(await office.mint(ADA))) == {AUDIENCE, *(f"{AUDIENCE}/{uid}" for uid in uids.values())}
        assert audiences(await office.mint(BOB)) == [AUDIENCE, f"{AUDIENCE}/nowhere"]
        assert len(audiences(await office.mint(ROOT))) == 3


async def test_t13_a_cluster_counts_in_which_its_owner_may_use_a_space() -> None:
    async with an_office() as office:
        uid = (await office.auth.make("Cluster", "berlin", ROOT))["metadata"]["uid"]
        spec = {"clusterRef": {"cluster": "berlin"}}
        for name in ("own", "other"):
            await office.auth.api.create("SpaceInstance", name, SYSTEM, spec=spec)
        office.auth.rights.grant(ADA, "use", f"spaceinstances.{GROUP}", "own")
        assert audiences(await office.mint(ADA)) == [AUDIENCE, f"{AUDIENCE}/{uid}"]
        assert audiences(await office.mint(BOB)) == [AUDIENCE, f"{AUDIENCE}/nowhere"]


async def test_t13_a_token_with_a_scope_is_for_the_clusters_that_the_scope_names_or_could_be_about() -> None:
    async with an_office() as office:
        uids = {each: (await office.auth.make("Cluster", each, ROOT))["metadata"]["uid"] for each in ("berlin", "oslo")}
        for name in uids:
            may_use(office, name)
            office.auth.rights.grant(ADA, "get", f"clusters.{GROUP}", name)
        one, every = {"clusters": [{"cluster": "berlin"}]}, {"clusters": [{"cluster": "*"}]}
        named = [SCOPED_AUDIENCE, f"{SCOPED_AUDIENCE}/{uids['berlin']}"]
        assert audiences(await office.mint(ADA, scope=one)) == named
        assert audiences(await office.mint(ADA, scope={"rules": [{"cluster": "berlin"}]})) == named
        for wide in (every, projects("web"), {"rules": [{"verbs": ["get"]}]}, {**one, **projects("web")}):
            assert len(audiences(await office.mint(ADA, scope=wide))) == 3
        assert audiences(await office.mint(ADA, scope={})) == [SCOPED_AUDIENCE, f"{SCOPED_AUDIENCE}/nowhere"]


async def test_who_may_use_very_many_clusters_names_those_that_a_token_is_for() -> None:
    async with an_office() as office:
        for number in range(MAX_CLUSTERS + 1):
            await office.auth.make("Cluster", f"c{number}", ROOT)
        with pytest.raises(Invalid, match=f"you may use {MAX_CLUSTERS + 1} clusters, and a token is for"):
            await office.mint(ROOT)
        assert len(audiences(await office.mint(ROOT, scope={"clusters": [{"cluster": "c7"}]}))) == 2


async def test_raising_the_generation_of_a_user_shows_in_the_next_token() -> None:
    async with an_office() as office:
        assert (await office.claims(ADA)).generation == 0
        await office.auth.set("User", "ada", ROOT, tokenGeneration=7)
        assert (await office.claims(ADA)).generation == 7


async def test_who_acts_as_somebody_else_is_named_and_cannot_choose_the_uid() -> None:
    async with an_office() as office:
        root = await office.auth.signed_in("root", ttl=3600)
        acting = replace(ADA, uid="made-up", impersonator=root)
        claims = await office.claims(acting)
        assert (claims.user, claims.original_requester) == ("ada", "root")
        assert claims.uid not in ("", "made-up")
        with pytest.raises(Forbidden, match=r"set spec\.ttl to at most"):
            await office.mint(acting, ttl=DAY)


async def test_a_team_has_tokens_of_its_own() -> None:
    async with an_office() as office:
        team = await office.auth.team("core")
        made = await office.auth.key("k", ROOT, team="core")
        user = office.auth.authenticate.authenticate_token(made["spec"]["key"])
        claims = await office.claims(user)
        assert (claims.user, claims.name, claims.kind) == ("service:team:core", "core", "Team")
        assert (claims.uid, claims.generation) == (team["metadata"]["uid"], 0)


async def test_a_subject_has_none_unless_it_is_an_administrator() -> None:
    async with an_office() as office:
        with pytest.raises(Forbidden, match='is for a user, a team or an administrator, and "robot" is none'):
            await office.mint(User("robot", ("system:authenticated",)))
        claims = await office.claims(User("robot", ("system:masters",)))
        assert (claims.user, claims.kind, claims.uid) == ("robot", "ServiceAdmin", "")


@pytest.mark.parametrize("name", ["ada", "service:team:core"])
async def test_a_subject_with_somebodys_name_is_not_taken_for_them(name: str) -> None:
    async with an_office() as office:
        await office.auth.team("core")
        with pytest.raises(Forbidden, match="is none of them"):
            await office.mint(User(name, ("system:authenticated",)))


async def test_a_rehearsal_makes_the_checks_and_no_token() -> None:
    async with an_office() as office:
        assert await office.minting.issue(ADA, {}, dry_run=True) is None
        assert await office.keys.jwks() == [], "nor a key"
        with pytest.raises(Invalid):
            await office.minting.issue(ADA, {"ttl": 91 * DAY}, dry_run=True)


async def test_a_token_of_before_a_rotation_is_valid_until_its_end() -> None:
    async with an_office() as office:
        before = await office.mint(ADA, ttl=90 * DAY)
        await office.keys.rotate(office.minting.max_ttl)
        listed: Object = {"keys": await office.keys.jwks()}
        late = office.auth.api.clock.now() + timedelta(days=89)
        assert verify(before.value, listed, issuer=ISSUER, audience=AUDIENCE, now=late).user == "ada"
