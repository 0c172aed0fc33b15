"""How agents join, prove who they are, and replace their keys; and what attackers of that get."""

import asyncio
from contextlib import suppress

import pytest

from fairlead.core.crypto.agent_keys import parse_token
from fairlead.core.errors import ApiError, BadRequest, Conflict, Forbidden, TooManyRequests, Unauthorized
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.kinds.clusters.cluster import CLUSTER_AGENT_TOKEN
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.agents.endpoints import HANDSHAKE_BURST, agent_token_handlers
from fairlead.subresources.agents.identities import OVERLAP_SECONDS, REPEAT_SECONDS, TOKEN_LIFETIME
from tests.harness.calls import call
from tests.harness.virtual_time import on_virtual_time
from tests.subresources.agents.agent_api import FakeAgent, open_agent_api, post, websocket


@on_virtual_time
async def test_an_agent_joins_with_a_token_and_opens_sessions_with_its_key() -> None:
    async with open_agent_api() as api:
        agent = FakeAgent()
        with pytest.raises(Unauthorized):
            await api.open_session(agent)
        await api.join(agent, await api.issue_token())
        assert (await api.open_session(agent)).status == 101


@on_virtual_time
async def test_a_token_works_once() -> None:
    async with open_agent_api() as api:
        token = await api.issue_token()
        agent = FakeAgent()
        await api.join(agent, token)
        await api.join(agent, token)  # its first response may have been lost
        with pytest.raises(Unauthorized, match="was used"):
            await api.join(FakeAgent(), token)
        await asyncio.sleep(REPEAT_SECONDS + 1)
        with pytest.raises(Unauthorized, match="was used"):
            await api.join(agent, token)
        assert (await api.open_session(agent)).status == 101


@on_virtual_time
async def test_of_two_that_use_a_token_at_once_one_joins() -> None:
    async with open_agent_api() as api:
        token = await api.issue_token()
        agents = [FakeAgent(), FakeAgent()]
        results = await asyncio.gather(*(api.join(agent, token) for agent in agents), return_exceptions=True)
        assert sum(isinstance(each, Unauthorized) for each in results) == 1


@on_virtual_time
async def test_a_token_ends_after_an_hour_and_with_the_next_one() -> None:
    async with open_agent_api() as api:
        replaced, token = await api.issue_token(), await api.issue_token()
        with pytest.raises(Unauthorized):
            await api.join(FakeAgent(), replaced)
        await asyncio.sleep(TOKEN_LIFETIME.total_seconds() + 1)
        with pytest.raises(Unauthorized):
            await api.join(FakeAgent(), token)


@on_virtual_time
async def test_a_token_is_for_one_cluster() -> None:
    async with open_agent_api() as api:
        token = parse_token(await api.issue_token("berlin"))
        await api.issue_token("oslo")
        moved = type(token)("oslo", token.secret).encode()
        with pytest.raises(Unauthorized):
            await api.join(FakeAgent("oslo"), moved)
        for text in ("", "fljoin_", "fljoin_e30", "x" * 5000):
            with pytest.raises(Unauthorized):
                await api.join(FakeAgent(), text)


@on_virtual_time
async def test_a_key_that_is_not_ones_own_does_not_join() -> None:
    async with open_agent_api() as api:
        token = await api.issue_token()
        with pytest.raises(Unauthorized, match="signature"):
            await api.join(FakeAgent(), token, publicKey=FakeAgent().public_key)
        with pytest.raises(BadRequest, match="Ed25519"):
            await api.join(FakeAgent(), token, publicKey="AAAA")


@on_virtual_time
async def test_the_secret_has_no_part_of_the_token() -> None:
    async with open_agent_api() as api:
        token = parse_token(await api.issue_token())
        secret = api.registry.registry.resource("", "secrets").get_cached("service-system", "link-berlin")
        assert secret is not None
        assert token.secret not in str(api.identities.find("berlin"))
        assert token.secret not in repr(token)


@on_virtual_time
async def test_a_cluster_that_is_dialled_gets_no_token() -> None:
    async with open_agent_api() as api:
        await api.registry.create("Cluster", "paris", spec={})
        with pytest.raises(Conflict, match="reached with a kubeconfig"):
            await api.issue_token("paris")


@on_virtual_time
async def test_only_with_a_token_of_an_administrator_an_agent_joins_a_cluster_that_gets_exported_keys() -> None:
    declared = {"service.sh/export-argocd": "argocd", "service.sh/export-user": "gitops"}
    async with open_agent_api() as api:
        token = await api.issue_token()
        await api.registry.patch("Cluster", "berlin", lambda obj: obj["metadata"].update(annotations=declared))
        with pytest.raises(Unauthorized, match="join token is not valid"):
            await api.join(FakeAgent(), token)
        with pytest.raises(Forbidden, match="only administrators, with a key without a scope, may let an agent join"):
            await api.issue_token()
        agent = FakeAgent()
        await api.join(agent, await api.issue_token(is_admin=True))
        assert (await api.open_session(agent)).status == 101


@pytest.mark.parametrize(
    ("user", "is_admin"),
    [
        (User("root", ("system:masters",)), True),
        (User("root", ("system:masters",), scope=Scope()), False),
        (User("eve"), False),
    ],
    ids=["administrator", "scoped key", "owner"],
)
@on_virtual_time
async def test_a_token_is_of_who_asks_for_it(user: User, is_admin: bool) -> None:
    async with open_agent_api() as api:
        (create,) = agent_token_handlers(MANAGEMENT_GROUP, api.identities, lambda: "", "https://f").values()
        await create(ActionRequest(user, CLUSTER_AGENT_TOKEN, "create", "", "berlin", {}, False, call("/")))
        identity = api.identities.find("berlin")
        assert identity is not None
        assert identity.token is not None
        assert identity.token.is_from_admin == is_admin


@on_virtual_time
async def test_the_agent_of_another_cluster_gets_no_session() -> None:
    async with open_agent_api() as api:
        agent = FakeAgent()
        await api.join(agent, await api.issue_token())
        await api.join(FakeAgent("oslo"), await api.issue_token("oslo"))
        with pytest.raises(Unauthorized):
            await api.open_session(agent, cluster="oslo")


@on_virtual_time
async def test_a_challenge_is_valid_for_a_minute_and_from_this_server_only() -> None:
    async with open_agent_api() as api:
        agent = FakeAgent()
        await api.join(agent, await api.issue_token())
        challenge = api.challenge()
        assert (await api.open_session(agent, challenge=challenge)).status == 101
        await asyncio.sleep(61)
        for old in (challenge, "AAAA", challenge[:-2] + "AA"):
            with pytest.raises(Unauthorized):
                await api.open_session(agent, challenge=old)


@pytest.mark.parametrize("header", ["", "e30", "x" * 10_000, "%%%"])
@on_virtual_time
async def test_a_session_without_a_proof_is_rejected(header: str) -> None:
    async with open_agent_api() as api:
        with pytest.raises(Unauthorized):
            await api.endpoints.open_session(websocket({"x-fairlead-agent": header}))
        with pytest.raises(BadRequest):
            await api.endpoints.open_session(call("/agents/session"))


@on_virtual_time
async def test_a_new_key_is_confirmed_by_its_first_session_and_ends_the_old_one_later() -> None:
    async with open_agent_api() as api:
        old, new = FakeAgent(), FakeAgent()
        await api.join(old, await api.issue_token())
        await api.offer(old, new)
        assert (await api.open_session(old)).status == 101
        assert (await api.open_session(new)).status == 101
        assert (await api.open_session(old)).status == 101  # those of other agents of the cluster
        await asyncio.sleep(OVERLAP_SECONDS + 1)
        with pytest.raises(Unauthorized):
            await api.open_session(old)
        assert (await api.open_session(new)).status == 101


@on_virtual_time
async def test_an_offer_that_is_never_confirmed_changes_nothing() -> None:
    async with open_agent_api() as api:
        old = FakeAgent()
        await api.join(old, await api.issue_token())
        await api.offer(old, FakeAgent())
        await api.offer(old, FakeAgent())
        await asyncio.sleep(10 * OVERLAP_SECONDS)
        assert (await api.open_session(old)).status == 101


@on_virtual_time
async def test_only_the_current_key_offers_another_and_only_ones_own() -> None:
    async with open_agent_api() as api:
        old, new = FakeAgent(), FakeAgent()
        await api.join(old, await api.issue_token())
        with pytest.raises(Unauthorized):
            await api.offer(FakeAgent(), new)
        with pytest.raises(Unauthorized):
            await api.offer(old, new, signer=FakeAgent())
        await api.offer(old, new)
        await api.open_session(new)
        with pytest.raises(Unauthorized):
            await api.offer(old, FakeAgent())


@on_virtual_time
async def test_joining_again_keeps_the_cluster_and_ends_the_former_key() -> None:
    async with open_agent_api() as api:
        lost, again = FakeAgent(), FakeAgent()
        before = api.registry.get("Cluster", "berlin")
        await api.join(lost, await api.issue_token())
        await api.join(again, await api.issue_token())
        assert (await api.open_session(again)).status == 101
        with pytest.raises(Unauthorized):
            await api.open_session(lost)
        assert api.registry.get("Cluster", "berlin") == before


@on_virtual_time
async def test_a_cluster_that_was_created_anew_has_another_agent() -> None:
    async with open_agent_api() as api:
        agent = FakeAgent()
        await api.join(agent, await api.issue_token())
        await api.registry.delete("Cluster", "berlin")
        with pytest.raises(Unauthorized):
            await api.open_session(agent)
        await api.registry.create("Cluster", "berlin", spec={"networkPeer": True})
        with pytest.raises(Unauthorized):
            await api.open_session(agent)
        await api.join(agent, await api.issue_token())
        assert (await api.open_session(agent)).status == 101


@on_virtual_time
async def test_handshakes_are_limited_before_anything_is_read() -> None:
    async with open_agent_api() as api:
        with pytest.raises(TooManyRequests) as refused:
            for _ in range(HANDSHAKE_BURST + 1):
                await api.endpoints.show_challenge(call("/agents/challenge"))
        assert refused.value.details.retry_after > 0
        await asyncio.sleep(5)
        await api.endpoints.show_challenge(call("/agents/challenge"))


@on_virtual_time
async def test_anonymous_handshakes_keep_out_no_agents_of_other_networks_nor_count_for_later() -> None:
    async with open_agent_api() as api:
        anonymous = call("/agents/challenge")
        anonymous.client = "192.0.2.1:4000"
        for _ in range(50 * HANDSHAKE_BURST):
            with suppress(TooManyRequests):
                await api.endpoints.show_challenge(anonymous)
        other = call("/agents/challenge")
        other.client = "198.51.100.1:4000"
        assert (await api.endpoints.show_challenge(other)).status == 200
        await asyncio.sleep(1)
        assert (await api.endpoints.show_challenge(anonymous)).status == 200


@pytest.mark.parametrize("body", [{}, [], {"token": 5}, {"proof": {}, "publicKey": "x", "signature": ""}])
@on_virtual_time
async def test_other_bodies_are_rejected(body: object) -> None:
    async with open_agent_api() as api:
        for endpoint in (api.endpoints.join, api.endpoints.offer_key):
            with pytest.raises(ApiError):
                await endpoint(post(body))
