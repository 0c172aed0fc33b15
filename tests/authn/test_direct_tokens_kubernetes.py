"""A kube-apiserver that is configured as docs/direct-tokens.md says takes a direct token for the very identity that the
gateways and the agent send. The page is read, and its claim mapping applied, as a kube-apiserver was seen to do it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
import yaml

from fairlead.agent.config_cache import AgentConfig
from fairlead.agent.tokens import DirectTokenAuthenticator
from fairlead.authn.direct_tokens import AUDIENCE
from fairlead.core.cluster_identity import DEFAULT_PREFIX, ClusterIdentityMapper
from fairlead.core.crypto import signing
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, metadata
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.authn.test_token_issuer import ISSUER, Office, an_office
from tests.harness.agent import CLUSTER, configuration
from tests.harness.auth import ROOT
from tests.harness.signing_keys import keys_in_turn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "direct-tokens.md"
NAMES = ClusterIdentityMapper(DEFAULT_PREFIX)


def documented() -> Any:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [each for each in map(yaml.safe_load, blocks) if each["kind"] == "AuthenticationConfiguration"]
    (issuer,) = found["jwt"]
    return issuer


def payload_of(token: str) -> Object:
    found: Object = jwt.decode(token, options={"verify_signature": False})
    return found


def evaluated(expression: str, claims: Object) -> Any:
    """The one form of expression that the mapping has: a field of a claim."""
    match = re.fullmatch(r'claims\["([^"]+)"\]\.(\w+)', expression)
    assert match, expression
    return claims[match[1]][match[2]]


def mapped(claims: Object) -> tuple[str, tuple[str, ...], str]:
    """Name, groups and uid that a kube-apiserver finds in a token. It adds `system:authenticated`."""
    mapping = documented()["claimMappings"]
    username, groups = mapping["username"], mapping["groups"]
    found = [groups["prefix"] + each for each in claims[groups["claim"]]]
    uid = evaluated(mapping["uid"]["expression"], claims)
    return username["prefix"] + claims[username["claim"]], (*found, "system:authenticated"), uid


def sent(user: User) -> tuple[str, tuple[str, ...], str]:
    """The same as a gateway sends it."""
    identity = NAMES.map_user(user)
    return identity.user, identity.groups, identity.uid


@pytest.fixture(autouse=True)
def quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys_in_turn()
    monkeypatch.setattr(signing, "generate_signing_key", lambda now, longest: next(made))


async def at_the_agent(office: Office, token: str, user: User) -> tuple[str, tuple[str, ...], str]:
    """The same as an agent sends it that knows the user as it is."""
    uid = metadata(office.auth.api.see("Cluster", CLUSTER) or {})["uid"]
    known = {"uid": user.uid, "generation": 0, "groups": list(user.groups)}
    config = configuration(
        issuer=ISSUER,
        clusterUID=uid,
        jwks={"keys": list(await office.keys.jwks())},
        identities={"users": [known], "teams": [{"uid": user.uid}]},
    )
    state = AgentConfig.parse(orjson.dumps(config), CLUSTER)
    return sent(replace(DirectTokenAuthenticator(office.auth.api.clock).authenticate(token, state).user, extra=()))


async def people(office: Office) -> list[User]:
    """An ordinary user in a team and in a group of Kubernetes' own, and administrators with a User and without."""
    await office.auth.set("User", "ada", ROOT, groups=["devs", "system:nodes"])
    await office.auth.user("boss", groups=["system:masters", "ops"])
    await office.auth.team("red", users=["ada"])
    signed_in = [await office.auth.signed_in(name) for name in ("ada", "boss")]
    return [*signed_in, ROOT]


async def test_a_token_is_the_same_identity_at_a_kube_apiserver_a_gateway_and_an_agent() -> None:
    async with an_office() as office:
        await office.auth.make("Cluster", CLUSTER, ROOT)
        for user in await people(office):
            office.auth.rights.grant(user, "use", f"clusters.{GROUP}", CLUSTER)
            minted = await office.mint(user)
            claims = payload_of(minted.value)
            assert mapped(claims) == sent(user)
            assert await at_the_agent(office, minted.value, user) == sent(user)


async def test_an_administrators_token_says_so_in_the_group_that_clusters_bind() -> None:
    async with an_office() as office:
        claims = payload_of((await office.mint(ROOT)).value)
        assert "service:admins" in claims["groups"]
        assert NAMES.admin_group in mapped(claims)[1]
        assert not any(group.startswith("system:") for group in claims["groups"])


async def test_names_of_kubernetes_itself_get_no_token() -> None:
    async with an_office() as office:
        with pytest.raises(Forbidden, match="is not sent to connected clusters"):
            await office.mint(replace(ROOT, name="system:admin"))


def test_the_page_trusts_tokens_without_a_scope_only_and_refuses_names_of_kubernetes_itself() -> None:
    issuer = documented()
    (audience,) = issuer["issuer"]["audiences"]
    assert re.fullmatch(f"{AUDIENCE}/[0-9a-f-]{{36}}", audience), "of one cluster, and never of tokens with a scope"
    rules = [each["expression"] for each in issuer["userValidationRules"]]
    assert rules == ["!user.username.startsWith('system:')", "user.groups.all(group, !group.startsWith('system:'))"]
