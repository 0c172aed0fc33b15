"""Builds the part of the agent that dials out: its token, its identity, the CA that it trusts, and its sessions.

The join token has the fingerprint of the server's CA. Without a file with that CA, the agent fetches it from the server
and compares: another program that answers in the place of the server has another one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
import msgspec

from fairlead.agent.identity import FileStore, IdentityError, IdentityStore, SecretStore
from fairlead.agent.requests import RequestService
from fairlead.agent.sessions import REQUEST_SECONDS, AgentSessions, Server, ServerApi
from fairlead.client.tls import build_ssl_context
from fairlead.core.crypto.agent_keys import InvalidKey, JoinToken, authority_fingerprint, parse_token
from fairlead.core.files import read_file, write_file
from fairlead.settings import StartError
from fairlead.upstream.kube_client import KubeClient
from fairlead.upstream.local_cluster import SERVICE_ACCOUNT_DIR, LocalCluster

IDENTITY_FILE, AUTHORITY_FILE = "identity.json", "server-ca.crt"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """`identity_secret` names a Secret in the namespace of the pod; without it, the identity is in the state folder."""

    server: str
    token: str = field(repr=False)
    token_file: Path | None
    ca_file: Path | None
    identity_secret: str
    state_folder: Path


@asynccontextmanager
async def open_sessions(settings: SessionSettings, cluster: LocalCluster) -> AsyncIterator[AgentSessions]:
    """Raises StartError. Nothing has been dialled yet, unless the CA has to be fetched."""
    token = _read_token(settings)
    store = _identity_store(settings, cluster)
    if token is None:
        await _require_identity(settings, store)
    authority = await _find_authority(settings, token)
    try:
        context = build_ssl_context(authority)
    except ValueError as error:
        raise StartError(f"the CA of the server cannot be used: {error}") from None
    async with httpx.AsyncClient(base_url=settings.server, verify=context, timeout=REQUEST_SECONDS) as http:
        api = ServerApi(Server(settings.server, context), http)
        serve = RequestService(lambda: cluster.exchanges).serve
        yield AgentSessions(api, store, serve, uuid4().hex, token)


def _read_token(settings: SessionSettings) -> JoinToken | None:
    text = settings.token
    if settings.token_file is not None:
        text = (read_file(settings.token_file) or b"").decode(errors="replace").strip()
    if not text:
        return None
    try:
        return parse_token(text)
    except InvalidKey:
        advice = "pass what `fairlead cluster add NAME --agent` has printed"
        raise StartError(f"{settings.token_file or '--token'}: not a join token; {advice}") from None


async def _require_identity(settings: SessionSettings, store: IdentityStore) -> None:
    """Without a token, only an agent that has joined before can dial out. What it joined with may be gone since."""
    try:
        identity = await store.load()
    except IdentityError:
        return  # its cluster may not respond yet: the sessions try again, and log why
    if identity is not None:
        return
    problem = "no join token"
    if settings.token_file is not None:
        found = read_file(settings.token_file)
        problem = f"{settings.token_file}: {'no such file' if found is None else 'the file is empty'}"
    place = settings.identity_secret or settings.state_folder / IDENTITY_FILE
    raise StartError(
        f"{problem}, and the agent has not joined before: there is no key in {place}; start it with the token that "
        "`fairlead cluster add NAME --agent` prints, or with the --state of the agent that has joined"
    )


async def _find_authority(settings: SessionSettings, token: JoinToken | None) -> str:
    """The CA certificate of the server as PEM; empty for a public one."""
    wanted = token.authority if token is not None else ""
    if settings.ca_file is not None:
        content = read_file(settings.ca_file)
        if content is None:
            raise StartError(f"{settings.ca_file}: no such file; pass the CA certificate of the server with --ca-file")
        authority = content.decode(errors="replace")
        if wanted and authority_fingerprint(authority) != wanted:
            raise StartError(f"{settings.ca_file}: not the CA that the join token is for; use the one of the server")
        return authority
    stored = settings.state_folder / AUTHORITY_FILE
    authority = (read_file(stored) or b"").decode(errors="replace")
    if wanted and authority_fingerprint(authority) != wanted:
        authority = await _fetch_authority(settings.server, wanted)
        write_file(stored, authority.encode())
    return authority


async def _fetch_authority(server: str, wanted: str) -> str:
    """Nothing else is sent or believed on this connection, whose other end is not known yet."""
    context = build_ssl_context(insecure=True)
    try:
        async with httpx.AsyncClient(base_url=server, verify=context, timeout=REQUEST_SECONDS) as http:
            response = await http.get("/agents/authority")
        authority = str(msgspec.json.decode(response.content, type=dict[str, str]).get("certificate", ""))
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        raise StartError(
            f"{server}: its CA certificate cannot be fetched ({type(error).__name__}); check --server"
        ) from None
    if authority_fingerprint(authority) != wanted:
        raise StartError(
            f"{server}: what answers there has another CA than the join token is for: a proxy that intercepts TLS, or "
            "another server; pass the CA of the server with --ca-file, or check --server"
        )
    return authority


def _identity_store(settings: SessionSettings, cluster: LocalCluster) -> IdentityStore:
    if not settings.identity_secret:
        return FileStore(settings.state_folder / IDENTITY_FILE)
    namespace = (read_file(SERVICE_ACCOUNT_DIR / "namespace") or b"").decode(errors="replace").strip()
    if not namespace:
        raise StartError("--identity-secret needs a pod with a service account; omit it outside of a cluster")
    return SecretStore(lambda: KubeClient(cluster()), namespace, settings.identity_secret)
