"""A registry with a Cluster that dials out, and what an agent sends to the endpoints."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.core.call import Call, Reply
from fairlead.core.crypto.agent_keys import (
    JOIN,
    OFFER,
    PROOF_HEADER,
    SESSION,
    Challenges,
    build_proof,
    find_public_key,
    generate_private_key,
    key_id,
    sign_proof,
)
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.subresources.agents.endpoints import AgentEndpoints
from fairlead.subresources.agents.hub import AgentHub
from fairlead.subresources.agents.identities import AgentIdentities
from tests.harness.calls import call
from tests.harness.registry import RegistryFixture, open_registry

AUTHORITY = "-----BEGIN CERTIFICATE-----\nthe CA\n-----END CERTIFICATE-----\n"


@dataclass(slots=True)
class AgentApi:
    registry: RegistryFixture
    identities: AgentIdentities
    hub: AgentHub
    endpoints: AgentEndpoints
    challenges: Challenges

    def challenge(self) -> str:
        return self.challenges.issue(self.registry.clock.now().timestamp())

    async def issue_token(self, cluster: str = "berlin", *, is_admin: bool = False) -> str:
        return (await self.identities.issue_token(cluster, "", is_admin=is_admin)).encode()

    async def join(self, agent: "FakeAgent", token: str, **changes: Any) -> Reply:
        challenge = self.challenge()
        body = {
            "token": token,
            "publicKey": agent.public_key,
            "challenge": challenge,
            "signature": sign_proof(agent.key, JOIN, agent.cluster, challenge),
            **changes,
        }
        return await self.endpoints.join(post(body))

    async def open_session(self, agent: "FakeAgent", cluster: str = "", challenge: str = "") -> Reply:
        proof = build_proof(agent.key, SESSION, cluster or agent.cluster, "one", challenge or self.challenge())
        return await self.endpoints.open_session(websocket({PROOF_HEADER: proof.encode()}))

    async def offer(self, agent: "FakeAgent", new: "FakeAgent", signer: "FakeAgent | None" = None) -> Reply:
        challenge = self.challenge()
        proof = build_proof(agent.key, OFFER, agent.cluster, "one", challenge, new.public_key)
        signature = sign_proof((signer or new).key, OFFER, agent.cluster, challenge)
        body = {"proof": msgspec.to_builtins(proof), "publicKey": new.public_key, "signature": signature}
        return await self.endpoints.offer_key(post(body))


@dataclass(slots=True)
class FakeAgent:
    cluster: str = "berlin"
    key: str = field(default_factory=generate_private_key)

    @property
    def public_key(self) -> str:
        return find_public_key(self.key)

    @property
    def key_id(self) -> str:
        return key_id(self.public_key)


def post(body: Any) -> Call:
    content = msgspec.json.encode(body)
    return call("/agents", method="POST", body=content, headers={"content-length": str(len(content))})


def websocket(headers: dict[str, str]) -> Call:
    request = call("/agents/session", headers=headers)
    request.is_websocket = True
    return request


@asynccontextmanager
async def open_agent_api() -> AsyncIterator[AgentApi]:
    async with open_registry() as registry:
        await registry.create("Namespace", SYSTEM_NAMESPACE)
        for name in ("berlin", "oslo"):
            await registry.create("Cluster", name, spec={"networkPeer": True})
        identities = AgentIdentities(registry.registry, MANAGEMENT_GROUP, SYSTEM_NAMESPACE)
        hub = AgentHub(registry.clock, "server")
        challenges = Challenges(b"s" * 32)
        endpoints = AgentEndpoints(hub, identities, challenges, registry.clock, lambda: AUTHORITY)
        yield AgentApi(registry, identities, hub, endpoints, challenges)
