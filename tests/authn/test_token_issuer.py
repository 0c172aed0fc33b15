"""DirectTokenIssuer: a direct token has no more permissions than the key that requests it (T-4)."""

from base64 import urlsafe_b64decode
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest

from fairlead.authn.direct_tokens import AUDIENCE, SCOPED_AUDIENCE, verify
from fairlead.authn.token_issuer import (
    MAX_CLUSTERS,
    IssuedToken,
    Lifetimes,
)
from fairlead.core.crypto import signing
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.auth import ADA, BOB, ROOT, project_scope
from tests.harness.registry import NAMESPACE as SYSTEM
from tests.harness.signing_keys import iterate_keys
from tests.harness.token_issuer import ISSUER, TokenIssuerFixture, open_token_issuer

DAY = 24 * 3600


@pytest.fixture(autouse=True)
def use_prepared_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iterate_keys()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(keys))


async def test_a_token_identifies_its_owner() -> None:
    async with open_token_issuer() as fixture:
        ada = await fixture.auth.sign_in("ada")
        claims = await fixture.claims(ada)
        assert (claims.user, claims.name, claims.kind, claims.uid) == ("ada", "ada", "User", ada.uid)
        assert set(claims.groups) == {"service:authenticated", "service:user:ada", "service:user:*"}
        assert (claims.generation, claims.scope) == (0, None)
        assert claims.original_requester == ""


async def test_all_tokens_differ() -> None:
    async with open_token_issuer() as fixture:
        tokens = [await fixture.issue(ADA) for _ in range(5)]
        assert len({each.id for each in tokens}) == len({each.value for each in tokens}) == 5
        assert tokens[0].value not in repr(tokens[0])


async def test_the_default_ttl_is_a_day() -> None:
    async with open_token_issuer() as fixture:
        claims = [await fixture.claims(ADA, **spec) for spec in ({}, {"ttl": 0}, {"ttl": 60}, {"ttl": 90 * DAY})]
        assert [each.expires_at - each.issued_at for each in claims] == [DAY, DAY, 60, 90 * DAY]


async def test_a_ttl_above_the_maximum_is_invalid() -> None:
    async with open_token_issuer() as fixture:
        with pytest.raises(
            Invalid, match=f"spec.ttl: Invalid value: {90 * DAY + 1}: must be at most {90 * DAY} seconds"
        ):
            await fixture.issue(ROOT, ttl=90 * DAY + 1)


async def test_changed_lifetimes_apply_immediately() -> None:
    async with open_token_issuer() as fixture:
        fixture.lifetimes = Lifetimes(default=100, maximum=50)
        assert (await fixture.issue(ADA)).ttl == 50
        fixture.lifetimes = Lifetimes(maximum=400 * DAY)
        await fixture.issue(ADA, ttl=400 * DAY)
        assert (await fixture.keys.active_key(1)).active.longest == 400 * DAY


async def test_t4_a_token_does_not_outlive_the_key_that_requests_it() -> None:
    async with open_token_issuer() as fixture:
        ada = await fixture.auth.sign_in("ada", ttl=3600)
        with pytest.raises(Forbidden, match=r"set spec.ttl to at most 3[56]\d\d"):
            await fixture.issue(ada, ttl=3700)
        assert (await fixture.issue(ada, ttl=3000)).ttl == 3000


async def test_t4_the_default_ttl_is_limited_by_the_key() -> None:
    async with open_token_issuer() as fixture:
        ada = await fixture.auth.sign_in("ada", ttl=3600)
        token = await fixture.issue(ada)
        assert 3500 < token.ttl <= 3600
        long_lived = await fixture.auth.sign_in("ada", ttl=90 * DAY)
        assert (await fixture.issue(long_lived)).ttl == DAY


async def test_t4_a_deleted_key_gets_no_token() -> None:
    async with open_token_issuer() as fixture:
        with pytest.raises(Forbidden, match="no longer exists; sign in again"):
            await fixture.issue(replace(ADA, key="nothing"))


async def test_t4_a_token_inherits_the_scope_of_the_key() -> None:
    async with open_token_issuer() as fixture:
        ada = await fixture.auth.sign_in("ada", scope=project_scope("web", "api"))
        assert (await fixture.claims(ada)).scope == project_scope("web", "api")
        assert (await fixture.claims(ada, scope=project_scope("web"))).scope == project_scope("web")


async def test_t4_a_wider_scope_is_forbidden() -> None:
    async with open_token_issuer() as fixture:
        ada = await fixture.auth.sign_in("ada", scope=project_scope("web"))
        for scope in (project_scope("web", "api"), project_scope("*"), {"clusters": [{"cluster": "berlin"}]}):
            with pytest.raises(Forbidden, match=r"spec.scope exceeds the scope of"):
                await fixture.issue(ada, scope=scope)


async def test_t4_a_key_whose_scope_was_removed_concurrently_gets_no_unscoped_token() -> None:
    async with open_token_issuer() as fixture:
        ada = await fixture.auth.sign_in("ada", scope=project_scope("web"))
        await fixture.auth.update_spec("OwnedAccessKey", ada.key, ROOT, scope=None)
        with pytest.raises(Forbidden, match="exceeds the scope"):
            await fixture.issue(ada)


async def test_a_key_without_a_scope_may_request_any_scope() -> None:
    async with open_token_issuer() as fixture:
        for scope in ({}, project_scope("web")):
            assert (await fixture.claims(ADA, scope=scope)).scope == scope


async def test_a_scoped_token_has_another_audience() -> None:
    """A verifier that does not know scopes would give it all permissions."""
    async with open_token_issuer() as fixture:
        scoped = await fixture.issue(ADA, scope={})
        with pytest.raises(Exception, match="another audience"):
            jwks = {"keys": await fixture.keys.jwks()}
            verify(scoped.value, jwks, issuer=ISSUER, audience=AUDIENCE, now=fixture.auth.api.clock.now())


@pytest.mark.parametrize("verb", ["get", "use"])
async def test_t13_a_token_has_the_uids_of_the_clusters_in_its_scope(verb: str) -> None:
    async with open_token_issuer() as fixture:
        cluster = await fixture.auth.create("Cluster", "berlin", ROOT)
        scope = {"clusters": [{"cluster": name} for name in ("berlin", "*")]}
        fixture.auth.permissions.grant(ADA, verb, f"clusters.{GROUP}", "berlin")
        assert (await fixture.claims(ADA, scope=scope)).clusters == {"berlin": cluster["metadata"]["uid"]}
        for name in ("berlin", "missing"):  # a user without permission must not learn whether a cluster exists
            with pytest.raises(Invalid, match=f'"{name}": there is no such cluster that you can read or use'):
                await fixture.issue(BOB, scope={"clusters": [{"cluster": name}]})


def audiences_of(token: IssuedToken) -> list[str]:
    payload = token.value.split(".")[1]
    audience_list: list[str] = orjson.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["aud"]
    return audience_list


def grant_use(fixture: TokenIssuerFixture, cluster: str) -> None:
    fixture.auth.permissions.grant(ADA, "use", f"clusters.{GROUP}", cluster)


async def test_t13_the_audience_is_the_clusters_that_the_owner_may_use() -> None:
    async with open_token_issuer() as fixture:
        uids = {
            each: (await fixture.auth.create("Cluster", each, ROOT))["metadata"]["uid"] for each in ("berlin", "oslo")
        }
        assert audiences_of(await fixture.issue(ADA)) == [AUDIENCE, f"{AUDIENCE}/nowhere"]
        grant_use(fixture, "berlin")
        assert audiences_of(await fixture.issue(ADA)) == [AUDIENCE, f"{AUDIENCE}/{uids['berlin']}"]
        grant_use(fixture, "oslo")
        assert set(audiences_of(await fixture.issue(ADA))) == {
            AUDIENCE,
            *(f"{AUDIENCE}/{uid}" for uid in uids.values()),
        }
        assert audiences_of(await fixture.issue(BOB)) == [AUDIENCE, f"{AUDIENCE}/nowhere"]
        assert len(audiences_of(await fixture.issue(ROOT))) == 3


async def test_t13_the_audience_includes_clusters_of_spaces_that_the_owner_may_use() -> None:
    async with open_token_issuer() as fixture:
        uid = (await fixture.auth.create("Cluster", "berlin", ROOT))["metadata"]["uid"]
        spec = {"clusterRef": {"cluster": "berlin"}}
        for name in ("own", "other"):
            await fixture.auth.api.create("SpaceInstance", name, SYSTEM, spec=spec)
        fixture.auth.permissions.grant(ADA, "use", f"spaceinstances.{GROUP}", "own")
        assert audiences_of(await fixture.issue(ADA)) == [AUDIENCE, f"{AUDIENCE}/{uid}"]
        assert audiences_of(await fixture.issue(BOB)) == [AUDIENCE, f"{AUDIENCE}/nowhere"]


async def test_t13_the_audience_of_a_scoped_token_is_limited_by_the_scope() -> None:
    async with open_token_issuer() as fixture:
        uids = {
            each: (await fixture.auth.create("Cluster", each, ROOT))["metadata"]["uid"] for each in ("berlin", "oslo")
        }
        for name in uids:
            grant_use(fixture, name)
            fixture.auth.permissions.grant(ADA, "get", f"clusters.{GROUP}", name)
        one_cluster, all_clusters = {"clusters": [{"cluster": "berlin"}]}, {"clusters": [{"cluster": "*"}]}
        expected = [SCOPED_AUDIENCE, f"{SCOPED_AUDIENCE}/{uids['berlin']}"]
        assert audiences_of(await fixture.issue(ADA, scope=one_cluster)) == expected
        assert audiences_of(await fixture.issue(ADA, scope={"rules": [{"cluster": "berlin"}]})) == expected
        for scope in (
            all_clusters,
            project_scope("web"),
            {"rules": [{"verbs": ["get"]}]},
            {**one_cluster, **project_scope("web")},
        ):
            assert len(audiences_of(await fixture.issue(ADA, scope=scope))) == 3
        assert audiences_of(await fixture.issue(ADA, scope={})) == [SCOPED_AUDIENCE, f"{SCOPED_AUDIENCE}/nowhere"]


@pytest.mark.parametrize("name", ["berlni", "oslo"])
async def test_a_token_for_a_cluster_that_the_user_cannot_read_is_invalid(name: str) -> None:
    """The response is the same for a cluster that does not exist (berlni) and for one that is hidden (oslo)."""
    async with open_token_issuer() as fixture:
        for each in ("berlin", "oslo"):
            await fixture.auth.create("Cluster", each, ROOT)
        fixture.auth.permissions.grant(ADA, "get", f"clusters.{GROUP}", "berlin")
        with pytest.raises(Invalid) as error:
            await fixture.issue(ADA, scope={"clusters": [{"cluster": "berlin"}, {"cluster": name}]})
        expected = f'Invalid value: "{name}": there is no such cluster that you can read or use'
        assert f"spec.scope.clusters[1].cluster: {expected}" in error.value.message
        assert ('did you mean "berlin"' in error.value.message) == (name == "berlni")


async def test_a_user_of_very_many_clusters_must_choose_some() -> None:
    async with open_token_issuer() as fixture:
        for number in range(MAX_CLUSTERS + 1):
            await fixture.auth.create("Cluster", f"c{number}", ROOT)
        with pytest.raises(Invalid, match=f"you may use {MAX_CLUSTERS + 1} clusters, and a token is for"):
            await fixture.issue(ROOT)
        assert len(audiences_of(await fixture.issue(ROOT, scope={"clusters": [{"cluster": "c7"}]}))) == 2


async def test_a_new_token_has_the_current_token_generation_of_the_user() -> None:
    async with open_token_issuer() as fixture:
        assert (await fixture.claims(ADA)).generation == 0
        await fixture.auth.update_spec("User", "ada", ROOT, tokenGeneration=7)
        assert (await fixture.claims(ADA)).generation == 7


async def test_an_impersonator_is_named_and_cannot_choose_the_uid() -> None:
    async with open_token_issuer() as fixture:
        root = await fixture.auth.sign_in("root", ttl=3600)
        impersonated = replace(ADA, uid="made-up", impersonator=root)
        claims = await fixture.claims(impersonated)
        assert (claims.user, claims.original_requester) == ("ada", "root")
        assert claims.uid not in ("", "made-up")
        with pytest.raises(Forbidden, match=r"set spec\.ttl to at most"):
            await fixture.issue(impersonated, ttl=DAY)


async def test_a_team_key_gets_a_token_of_the_team() -> None:
    async with open_token_issuer() as fixture:
        team = await fixture.auth.create_team("core")
        created = await fixture.auth.create_key("k", ROOT, team="core")
        user = fixture.auth.authenticator.authenticate_token(created["spec"]["key"])
        claims = await fixture.claims(user)
        assert (claims.user, claims.name, claims.kind) == ("service:team:core", "core", "Team")
        assert (claims.uid, claims.generation) == (team["metadata"]["uid"], 0)


async def test_a_subject_gets_a_token_only_as_an_administrator() -> None:
    async with open_token_issuer() as fixture:
        with pytest.raises(Forbidden, match='is for a user, a team or an administrator, and "robot" is none'):
            await fixture.issue(User("robot", ("system:authenticated",)))
        claims = await fixture.claims(User("robot", ("system:masters",)))
        assert (claims.user, claims.kind, claims.uid) == ("robot", "ServiceAdmin", "")


@pytest.mark.parametrize("name", ["ada", "service:team:core"])
async def test_a_subject_with_the_name_of_a_user_or_team_gets_no_token(name: str) -> None:
    async with open_token_issuer() as fixture:
        await fixture.auth.create_team("core")
        with pytest.raises(Forbidden, match="is none of them"):
            await fixture.issue(User(name, ("system:authenticated",)))


async def test_a_dry_run_checks_the_request_and_issues_no_token() -> None:
    async with open_token_issuer() as fixture:
        assert await fixture.issuer.issue(ADA, {}, dry_run=True) is None
        assert await fixture.keys.jwks() == [], "a dry run creates no key"
        with pytest.raises(Invalid):
            await fixture.issuer.issue(ADA, {"ttl": 91 * DAY}, dry_run=True)


async def test_a_token_issued_before_a_rotation_stays_valid() -> None:
    async with open_token_issuer() as fixture:
        before = await fixture.issue(ADA, ttl=90 * DAY)
        await fixture.keys.rotate(fixture.issuer.max_ttl)
        jwks: Object = {"keys": await fixture.keys.jwks()}
        later = fixture.auth.api.clock.now() + timedelta(days=89)
        assert verify(before.value, jwks, issuer=ISSUER, audience=AUDIENCE, now=later).user == "ada"
