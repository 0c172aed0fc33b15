"""How agents join, open sessions and replace their keys: public paths below `/agents`, which check a proof themselves.

    GET  /agents/authority   the CA certificate of this server, which the join token has the fingerprint of
    GET  /agents/challenge   what to sign next
    POST /agents/join        {token, publicKey}
    GET  /agents/session     the WebSocket of a session; the proof is in a header
    POST /agents/key         {proof, publicKey}: offers a new key

A proof names the cluster, the key and the instance, and signs them with a challenge of this server. A rejection does
not say what is wrong with it. Before anything is read, a gate limits how many handshakes a second a process takes from
one network.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import structlog

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.call import Call, Handler, Reply, Upgrade, WebSocket
from fairlead.core.clock import Clock
from fairlead.core.crypto.agent_keys import (
    JOIN,
    OFFER,
    PROOF_HEADER,
    SESSION,
    Challenges,
    InvalidKey,
    Proof,
    authority_fingerprint,
    decode_bytes,
    is_proof,
    parse_proof,
    parse_token,
)
from fairlead.core.errors import BadRequest, Details, TooLarge, TooManyRequests, Unauthorized
from fairlead.core.objects import Object
from fairlead.links.limits import FrameBudget
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.server.api.content import read_raw
from fairlead.server.flow.attempts import client_network
from fairlead.subresources.agents.hub import AgentHub
from fairlead.subresources.agents.identities import PENDING, REJECTED, AgentIdentities
from fairlead.subresources.workspaces.handlers import LinkTransport

MAX_BODY_BYTES = 8 * 1024
MAX_PROOF_CHARS = 4 * 1024
PUBLIC_KEY_BYTES = 32
HANDSHAKES_PER_SECOND, HANDSHAKE_BURST = 200, 400
"""From one network: many agents may be behind one address."""
MAX_NETWORKS = 10_000
RETRY_AFTER_SECONDS = 2

Body = TypeVar("Body")

log = structlog.get_logger(__name__)


class JoinBody(msgspec.Struct, frozen=True, rename="camel"):
    token: str
    public_key: str
    challenge: str
    signature: str


class OfferBody(msgspec.Struct, frozen=True, rename="camel"):
    proof: Proof
    public_key: str
    signature: str
    """Of the new key, about the same challenge."""


class AgentEndpoints:
    def __init__(
        self,
        hub: AgentHub,
        identities: AgentIdentities,
        challenges: Challenges,
        clock: Clock,
        read_authority: Callable[[], str],
    ) -> None:
        self._hub = hub
        self._identities = identities
        self._challenges = challenges
        self._clock = clock
        self._read_authority = read_authority
        self._gates: BoundedCache[str, FrameBudget] = BoundedCache(MAX_NETWORKS)

    def public_endpoints(self) -> Mapping[tuple[str, str], Handler]:
        return {
            ("get", "/agents/authority"): self.show_authority,
            ("get", "/agents/challenge"): self.show_challenge,
            ("post", "/agents/join"): self.join,
            ("get", "/agents/session"): self.open_session,
            ("post", "/agents/key"): self.offer_key,
        }

    async def show_authority(self, call: Call) -> Reply:
        return _json_reply({"certificate": self._read_authority()})

    async def show_challenge(self, call: Call) -> Reply:
        self._pass_gate(call)
        return _json_reply({"challenge": self._challenges.issue(self._clock.now().timestamp())})

    async def join(self, call: Call) -> Reply:
        self._pass_gate(call)
        body = await _read_body(call, JoinBody)
        try:
            token = parse_token(body.token)
        except InvalidKey:
            raise Unauthorized(REJECTED) from None
        self._check_challenge(body.challenge)
        _check_public_key(body.public_key)
        if not is_proof(body.public_key, body.signature, JOIN, token.cluster, body.challenge):
            raise Unauthorized("the signature of the key is not valid; update the agent")
        await self._identities.join(token, body.public_key)
        log.info("an agent has joined", cluster=token.cluster, client=call.source)
        return _json_reply({"cluster": token.cluster})

    async def open_session(self, call: Call) -> Reply:
        self._pass_gate(call)
        if not call.is_websocket:
            raise BadRequest("Upgrade request required: a session is a WebSocket")
        try:
            proof = parse_proof(call.headers.get(PROOF_HEADER)[:MAX_PROOF_CHARS])
        except InvalidKey:
            raise Unauthorized from None
        self._check_proof(proof, SESSION)
        stored = self._identities.find_key(proof.cluster, proof.key)
        if stored is not None and stored.state == PENDING:
            await self._identities.confirm(proof.cluster, proof.key)

        def recheck() -> None:
            if self._identities.find_key(proof.cluster, proof.key) is None:
                raise Unauthorized("the key of the agent is not valid any more, or its cluster was deleted")

        async def run(websocket: WebSocket) -> None:
            await self._hub.serve(proof.cluster, proof.key, LinkTransport(websocket), recheck)

        return Reply(101, upgrade=Upgrade("", run))

    async def offer_key(self, call: Call) -> Reply:
        self._pass_gate(call)
        body = await _read_body(call, OfferBody)
        _check_public_key(body.public_key)
        self._check_proof(body.proof, OFFER, body.public_key)
        if not is_proof(body.public_key, body.signature, OFFER, body.proof.cluster, body.proof.challenge):
            raise Unauthorized
        await self._identities.offer(body.proof.cluster, body.proof.key, body.public_key)
        log.info("an agent has offered a new key", cluster=body.proof.cluster, client=call.source)
        return _json_reply({"cluster": body.proof.cluster})

    def _check_proof(self, proof: Proof, purpose: str, *more: str) -> None:
        self._check_challenge(proof.challenge)
        stored = self._identities.find_key(proof.cluster, proof.key)
        if stored is None or not proof.is_signed(stored.public, purpose, *more):
            raise Unauthorized

    def _check_challenge(self, challenge: str) -> None:
        if not self._challenges.is_valid(challenge, self._clock.now().timestamp()):
            raise Unauthorized("the challenge has expired; get another one")

    def _pass_gate(self, call: Call) -> None:
        """Requests without an identity, in any number, keep out no agents of other networks."""
        network = client_network(call.source)
        gate = self._gates.get(network)
        if gate is None:
            gate = self._gates[network] = FrameBudget(HANDSHAKES_PER_SECOND, HANDSHAKE_BURST)
        if not gate.spend(self._clock.monotonic()):
            raise TooManyRequests(
                "too many agents connect at once; try again", Details(retry_after=RETRY_AFTER_SECONDS)
            )


def agent_token_handlers(
    api_group: str, identities: AgentIdentities, read_authority: Callable[[], str], url: str
) -> dict[ActionPath, ActionHandler]:
    async def create_token(request: ActionRequest) -> Object:
        if request.dry_run:
            raise BadRequest("dryRun is not supported: it would return a token that does not work; omit it")
        authority = read_authority()
        fingerprint = authority_fingerprint(authority)
        token = await identities.issue_token(request.name, fingerprint, is_admin=request.user.is_unscoped_admin)
        return {
            "kind": request.kind.name,
            "apiVersion": request.kind.api_version,
            "metadata": {"creationTimestamp": None},
            "status": {"token": token.encode(), "serviceHost": url, "caCert": authority},
        }

    return {(api_group, "clusters", "agenttoken"): create_token}


def _json_reply(value: Object) -> Reply:
    return Reply(200, msgspec.json.encode(value), headers=[("cache-control", "no-store")], cacheable=True)


async def _read_body(call: Call, body_type: type[Body]) -> Body:
    length = call.headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()):
        raise BadRequest("Content-Length is required; send the length of the body")
    if len(length) > 6 or int(length) > MAX_BODY_BYTES:
        raise TooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")
    try:
        return msgspec.json.decode(await read_raw(call), type=body_type)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise BadRequest("the body is not valid; update the agent") from None


def _check_public_key(text: str) -> None:
    try:
        is_key = len(decode_bytes(text)) == PUBLIC_KEY_BYTES
    except InvalidKey:
        is_key = False
    if not is_key:
        raise BadRequest("publicKey is not an Ed25519 key")
