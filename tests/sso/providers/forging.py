"""An OpenID provider that does what a test tells it: forged tokens, wrong claims, slow, huge or strange answers.

    with running_forger(certificates) as forger:
        code = forger.grant(authorization_url, sub="eve", aud="another-client")     # a token with a wrong audience
        code = forger.grant_token(authorization_url, unsigned_token)                 # any token
        forger.answers["/jwks"] = Answer(status=500)                                 # any answer

What it is not told to do wrong it does right: codes are for one use, and bound to client, redirect address and
challenge. It runs in a thread with an event loop of its own.
"""

import asyncio
import base64
import hashlib
import secrets
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

import orjson

from fairlead.core.crypto.certificates import Certificates
from tests.sso.providers.processes import Client
from tests.sso.providers.tokens import ABSENT, Key, edit_claims, rsa_key, sign

JSON = {"content-type": "application/json"}
MAX_REQUEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """A request that arrived. `form` is that of the query for GET, and of the body for POST."""

    method: str
    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. `delay` is the time until its first byte; `stall` sends nothing after the headers, for ever."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(JSON))
    delay: float = 0
    stall: bool = False

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else orjson.dumps(self.body)


Reply = Answer | Callable[[Request], Answer]


@dataclass(frozen=True, slots=True)
class Grant:
    """What a code or a refresh token can be exchanged for. Without a challenge, everything is accepted."""

    answer: Reply
    client_id: str = ""
    redirect_uri: str = ""
    challenge: str = ""


class Forger:
    """Knows one client, `use`. `reset` forgets the instructions of a test.

    Without instructions, userinfo has nothing but the subject of the last token.
    """

    def __init__(self) -> None:
        self.origin = ""
        self.tenant = ""
        self.client_id = "fairlead"
        self.secret = secrets.token_urlsafe(24)
        self.reset()

    def reset(self) -> None:
        self.key: Key = rsa_key(0)
        self.published: list[dict[str, Any]] = [rsa_key(0).public]
        self.answers: dict[str, Reply] = {}
        self.requests: list[Request] = []
        self.grants: dict[str, Grant] = {}
        self.refreshes: dict[str, Reply] = {}
        self.subject = ""
        self.userinfo: dict[str, Any] | None = None

    @property
    def issuer(self) -> str:
        return f"{self.origin}{self.tenant}"

    def become_another(self) -> None:
        """The same provider under another issuer: clients know nothing of it yet."""
        self.tenant = f"/{secrets.token_hex(4)}"

    def use(self, client: Client) -> None:
        """The client whose requests are accepted."""
        self.client_id, self.secret = client.id, client.secret

    # --- what tests prepare

    def claims(self, authorization: str, **changes: Any) -> dict[str, Any]:
        """The right claims for an authorization request, with changes. `ABSENT` removes a claim."""
        now = int(time.time())
        right = {
            "iss": self.issuer,
            "sub": "eve",
            "aud": self.client_id,
            "exp": now + 600,
            "iat": now,
            "nonce": read_query(authorization).get("nonce", ABSENT),
            "email": "eve@corp.example",
            "email_verified": True,
            "preferred_username": "eve",
            "name": "Eve Example",
            "groups": ["developers"],
        }
        edited = edit_claims(right, changes)
        self.subject = edited.get("sub", "")
        return edited

    def grant(self, authorization: str, **changes: Any) -> str:
        """A code for a well signed token with changed claims."""
        return self.grant_token(authorization, sign(self.claims(authorization, **changes), self.key))

    def grant_token(self, authorization: str, token: Any, **response: Any) -> str:
        """A code for any ID token; `response` changes the other fields of the token endpoint's answer."""
        body = {"access_token": secrets.token_urlsafe(16), "token_type": "Bearer", "expires_in": 600, "id_token": token}
        return self.grant_answer(authorization, Answer(edit_claims(body, response)))

    def grant_answer(self, authorization: str, answer: Reply) -> str:
        """A code for any answer of the token endpoint."""
        query = read_query(authorization)
        code = secrets.token_urlsafe(16)
        challenge = query.get("code_challenge", "")
        self.grants[code] = Grant(answer, query.get("client_id", ""), query.get("redirect_uri", ""), challenge)
        return code

    def allow_refresh(self, answer: Reply) -> str:
        """A refresh token, with what the token endpoint answers for it each time."""
        token = secrets.token_urlsafe(16)
        self.refreshes[token] = answer
        return token

    def count(self, path: str) -> int:
        """How many requests for a path have arrived."""
        return sum(request.path == path for request in self.requests)

    # --- what the provider answers

    def respond(self, request: Request) -> Answer:
        request = replace(request, path=request.path.removeprefix(self.tenant))
        self.requests.append(request)
        if (reply := self.answers.get(request.path)) is not None:
            return reply if isinstance(reply, Answer) else reply(request)
        match request.path:
            case "/.well-known/openid-configuration":
                return Answer(self.metadata())
            case "/jwks":
                return Answer({"keys": self.published})
            case "/token":
                return self._exchange(request)
            case "/userinfo":
                return Answer({"sub": self.subject} if self.userinfo is None else self.userinfo)
            case "/authorize":
                return self._authorize(request)
        return Answer({"error": "not_found"}, 404)

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _authorize(self, request: Request) -> Answer:
        """Signs in without a page."""
        query = request.form
        code = self.grant(f"{self.issuer}/authorize?{urlencode(query)}")
        answer = urlencode({"code": code, "state": query.get("state", ""), "iss": self.issuer})
        return Answer(status=302, headers={"location": f"{query.get('redirect_uri', '')}?{answer}"})

    def _exchange(self, request: Request) -> Answer:
        form = request.form
        if self._read_client(request) != (self.client_id, self.secret):
            return Answer({"error": "invalid_client"}, 401)
        if form.get("grant_type") == "refresh_token":
            reply = self.refreshes.get(form.get("refresh_token", ""))
        else:
            grant = self.grants.pop(form.get("code", ""), None)
            reply = grant.answer if grant is not None and _is_bound(grant, form, self.client_id) else None
        if reply is None:
            return Answer({"error": "invalid_grant"}, 400)
        return reply if isinstance(reply, Answer) else reply(request)

    def _read_client(self, request: Request) -> tuple[str, str]:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return request.form.get("client_id", ""), request.form.get("client_secret", "")
        name, _, secret = base64.b64decode(value).decode().partition(":")
        return unquote(name), unquote(secret)


def _is_bound(grant: Grant, form: Mapping[str, str], client_id: str) -> bool:
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    right = grant.client_id, grant.redirect_uri, grant.challenge
    return right == (client_id, form.get("redirect_uri", ""), challenge)


def read_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


@contextmanager
def running_forger(certificates: Certificates) -> Iterator[Forger]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert_file, certificates.key_file)
    forger, started = Forger(), threading.Event()
    end: list[Callable[[], object]] = []

    async def serve() -> None:
        ended = asyncio.Event()
        end.append(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))
        server = await asyncio.start_server(partial(_handle, forger), "127.0.0.1", 0, ssl=context)
        forger.origin = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        started.set()
        await ended.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="forger", daemon=True)
    thread.start()
    try:
        assert started.wait(60)
        yield forger
    finally:
        end[0]()
        thread.join(10)


async def _handle(forger: Forger, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        request = await _read_request(reader)
        await _send(writer.write, writer.drain, forger.respond(request))
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client has gone, as it may
    finally:
        writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    length = min(int(headers.get("content-length", "0")), MAX_REQUEST_BYTES)
    body = (await reader.readexactly(length)).decode() if length else ""
    path, _, query = target.partition("?")
    form = parse_qs(body if method == "POST" else query, keep_blank_values=True)
    return Request(method, path, headers, {name: values[0] for name, values in form.items()})


async def _send(write: Callable[[bytes], None], drain: Callable[[], Awaitable[None]], answer: Answer) -> None:
    await asyncio.sleep(answer.delay)
    content = answer.content
    lines = [f"HTTP/1.1 {answer.status} Answer", f"content-length: {len(content)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    write("\r\n".join([*lines, "", ""]).encode())
    await drain()
    if answer.stall:
        await asyncio.sleep(3600)
    write(content)
    await drain()
