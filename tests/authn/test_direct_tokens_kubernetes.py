"""A kube-apiserver configured as in docs/direct-tokens.md maps a token to the same identity as gateways and agents.

The tests read the configuration on the page and apply its claim mapping as a kube-apiserver does.
"""

import re
from dataclasses import replace
from typing import Any

import jwt
import orjson
import pytest

from fairlead.agent.config_cache import AgentConfig
from fairlead.agent.tokens import DirectTokenAuthenticator
from fairlead.authn.direct_tokens import AUDIENCE
from fairlead.core.crypto import signing
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, metadata
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.agent import CLUSTER, build_configuration
from tests.harness.auth import ROOT
from tests.harness.jwt_configuration import read_jwt_configuration
from tests.harness.signing_keys import iterate_keys
from tests.harness.token_issuer import ISSUER, TokenIssuerFixture, open_token_issuer

NAMES = ClusterIdentityMapper("fairlead:")


def decode_payload(token: str) -> Object:
    payload: Object = jwt.decode(token, options={"verify_signature": False})
    return payload


def evaluate_expression(expression: str, claims: Object) -> Any:
    """Evaluates the only form of expression in the mapping: a field of a claim."""
    match = re.fullmatch(r'claims\["([^"]+)"\]\.(\w+)', expression)
    assert match, expression
    return claims[match[1]][match[2]]


def kube_apiserver_identity(claims: Object) -> tuple[str, tuple[str, ...], str]:
    """The name, groups and uid that a kube-apiserver reads from a token. It adds `system:authenticated`."""
    mapping = read_jwt_configuration()["claimMappings"]
    username, groups = mapping["username"], mapping["groups"]
    mapped_groups = [groups["prefix"] + each for each in claims[groups["claim"]]]
    uid = evaluate_expression(mapping["uid"]["expression"], claims)
    return username["prefix"] + claims[username["claim"]], (*mapped_groups, "system:authenticated"), uid


def gateway_identity(user: User) -> tuple[str, tuple[str, ...], str]:
    """The name, groups and uid that a gateway sends."""
    identity = NAMES.map_user(user)
    return identity.user, identity.groups, identity.uid


@pytest.fixture(autouse=True)
def use_prepared_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iterate_keys()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(keys))


async def agent_identity(fixture: TokenIssuerFixture, token: str, user: User) -> tuple[str, tuple[str, ...], str]:
    """The name, groups and uid that an agent sends for the token."""
    uid = metadata(fixture.auth.api.get("Cluster", CLUSTER) or {})["uid"]
    known_user = {"uid": user.uid, "generation": 0, "groups": list(user.groups)}
    config = build_configuration(
        issuer=ISSUER,
        clusterUID=uid,
        jwks={"keys": list(await fixture.keys.jwks())},
        identities={"users": [known_user], "teams": [{"uid": user.uid}]},
    )
    state = AgentConfig.parse(orjson.dumps(config), CLUSTER)
    return gateway_identity(
        replace(DirectTokenAuthenticator(fixture.auth.api.clock).authenticate(token, state).user, extra=())
    )


async def create_users(fixture: TokenIssuerFixture) -> list[User]:
    """An ordinary user in a team and a system group, and administrators with and without a User."""
    await fixture.auth.update_spec("User", "ada", ROOT, groups=["devs", "system:nodes"])
    await fixture.auth.create_user("boss", groups=["system:masters", "ops"])
    await fixture.auth.create_team("red", users=["ada"])
    users = [await fixture.auth.sign_in(name) for name in ("ada", "boss")]
    return [*users, ROOT]


async def test_a_token_is_the_same_identity_at_kube_apiserver_gateway_and_agent() -> None:
    async with open_token_issuer() as fixture:
        await fixture.auth.create("Cluster", CLUSTER, ROOT)
        for user in await create_users(fixture):
            fixture.auth.permissions.grant(user, "use", f"clusters.{GROUP}", CLUSTER)
            token = await fixture.issue(user)
            claims = decode_payload(token.value)
            assert kube_apiserver_identity(claims) == gateway_identity(user)
            assert await agent_identity(fixture, token.value, user) == gateway_identity(user)


async def test_the_token_of_an_administrator_has_the_admin_group_of_clusters() -> None:
    async with open_token_issuer() as fixture:
        claims = decode_payload((await fixture.issue(ROOT)).value)
        assert "service:admins" in claims["groups"]
        assert NAMES.admin_group in kube_apiserver_identity(claims)[1]
        assert not any(group.startswith("system:") for group in claims["groups"])


async def test_system_users_get_no_token() -> None:
    async with open_token_issuer() as fixture:
        with pytest.raises(Forbidden, match="is not sent to connected clusters"):
            await fixture.issue(replace(ROOT, name="system:admin"))


def test_the_page_trusts_only_unscoped_tokens_and_rejects_system_names() -> None:
    issuer = read_jwt_configuration()
    (audience,) = issuer["issuer"]["audiences"]
    assert re.fullmatch(f"{AUDIENCE}/[0-9a-f-]{{36}}", audience), (
        "the audience of one cluster, never that of scoped tokens"
    )
    rules = [each["expression"] for each in issuer["userValidationRules"]]
    assert rules == ["!user.username.startsWith('system:')", "user.groups.all(group, !group.startsWith('system:'))"]
