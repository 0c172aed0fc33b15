"""Logins of the command line: one access key object of type Login for each, with rotating values.

    code  ──redeem──▶  key 1 + refresh token 1  ──refresh──▶  key 2 + refresh token 2  ──▶ ...

`spec.key` has the digest of what the client presents next: first that of the code, then that of its refresh token. The
access keys, which last ten minutes, are in `status.previous`, whose values the authenticator accepts until they expire.
So a login is one object: deleting it ends everything at once, it is listed and revoked like other logins, and the
lifetime of what is created with it is that of the login, not that of a key. `spec.parent` is the key with which its
user has allowed it: a login, or an ordinary access key. It ends with that (`Credential.supports`).

Each step replaces the digest only if it is still the one that was presented, so a code or token works once. A code that
is presented with anything wrong ends the login, so that a thief cannot try verifiers. A client may repeat a refresh for
`GRACE_SECONDS`, and gets the same answer: several processes may refresh at once, and answers get lost. A token that is
used again later was stolen, or the one that replaced it was: the login ends.

How the values are derived from each other is in `cli_tokens.py`.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import orjson

from fairlead.authn.access_keys import ACCESS_KEYS, USERS, Pepper
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, annotations_of, deep_copy, get_path, metadata, name_of
from fairlead.core.user import User
from fairlead.domain.key_lifetime import ttl_seconds
from fairlead.kinds.access.access_key import (
    CLI_CLIENT,
    LOGIN_TYPE,
    MAX_LOGINS,
    TTL_ANNOTATION,
    is_cli_login,
    is_sso_login,
)
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.signin.cli_tokens import Binding, NamedSecret, TokenValues
from fairlead.signin.login_sessions import LoginSessions

CLIENT_ID = CLI_CLIENT
KEY_SECONDS = 600
"""The lifetime of an access key of the command line."""
GRACE_SECONDS = 30
CODE_SECONDS = 60
"""The lifetime of an authorization code."""
MAX_VALUES = 8
"""Values in `status.previous`: two for each refresh."""
CODE_ANNOTATION = "service.sh/login-code"
"""A keyed digest of the authorization code alone, until the first refresh. It only serves to end the login."""


class GrantRejected(Exception):
    """A code or token that is not accepted. `reason` is for the audit log."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes in seconds, which tests shorten. `login` returns that of a login; 0 for no expiry."""

    login: Callable[[], int]
    key: int = KEY_SECONDS
    grace: int = GRACE_SECONDS
    code: int = CODE_SECONDS


@dataclass(frozen=True, slots=True)
class Approval:
    """What a user has allowed: a login of this user, on a machine, that depends on `binding`."""

    user: str
    machine: str
    binding: Binding


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """The values for the client. They are returned once, and never logged."""

    user: User
    access_key: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in: int


class CliLogins:
    """Starts, refreshes and ends logins. `user_of_key` returns the user of a key that is active, by name."""

    def __init__(
        self,
        registry: Registry,
        sessions: LoginSessions,
        pepper: Pepper,
        lifetimes: Lifetimes,
        user_of_key: Callable[[str], User | None],
        api_group: str,
    ) -> None:
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._users = registry.resource(api_group, USERS)
        self._clock = registry.clock
        self._sessions = sessions
        self._user_of_key = user_of_key
        self.values = TokenValues(pepper)
        self.lifetimes = lifetimes

    async def start(self, approval: Approval, digest: str, seconds: int, code: str = "") -> str:
        """Creates a login that waits for its code, and returns its name. `seconds`: how long the code is valid.

        `code` is the secret of an authorization code, which is recognized in a request that is otherwise wrong.
        """
        where = f" on {approval.machine}" if approval.machine else ""
        binding = approval.binding
        spec = {
            "displayName": f"Command line{where}",
            "user": approval.user,
            "type": LOGIN_TYPE,
            "ttl": seconds,
            "oidcProvider": {"clientId": CLI_CLIENT},
            **({"parent": binding.parent} if binding.parent else {}),
        }
        annotations = {
            TTL_ANNOTATION: str(binding.ttl),
            **({CODE_ANNOTATION: self.values.code_mark(code)} if code else {}),
        }
        meta = {"generateName": f"cli-{approval.user}-", "annotations": annotations}
        body = self._keys.kind.build(meta, spec=spec)
        created: Object = orjson.loads(await self._keys.create(body, "", server_write_options()))
        name = name_of(created)

        def edit(old: Object) -> Object:
            new = deep_copy(old)
            new["spec"]["key"] = digest
            return new

        await self._keys.modify("", name, edit, server_write_options())
        await self._sessions.revoke_all(approval.user, keep=name, newest=MAX_LOGINS - 1)
        return name

    async def redeem(self, code: NamedSecret, digest_for: Callable[[Binding], str]) -> IssuedTokens:
        """Exchanges a code for tokens. `digest_for` returns the digest of the code for what the login depends on.

        A code is for one attempt: if that fails, or the code was used before, the login ends.
        """
        login = await self._find(code.name)
        binding = self._binding_of(login, _intended_ttl(login))
        digest = digest_for(binding)
        if not _is_equal(get_path(login, "spec.key"), digest):
            is_reused = self._previous_end(login, digest) is not None
            if not is_reused and not self._is_code_of(login, code):
                raise GrantRejected("code_unknown")  # an invented code must not end a login
            await self.end(code.name)
            raise GrantRejected("code_reused" if is_reused or not _is_waiting(login) else "code_misused")
        user = self._user_of_key(code.name)
        if user is None:
            await self.end(code.name)
            raise GrantRejected("code_expired")
        # For all the code's life, a second use of it ends the login.
        reuse_window = max(self.lifetimes.grace, self.lifetimes.code)
        if not await self._advance(login, code.secret, digest, binding, reuse_window):
            return await self.redeem(code, digest_for)  # another request has used it meanwhile
        return self._tokens(user, login, code.secret, self.lifetimes.key)

    async def reject(self, code: NamedSecret) -> None:
        """Ends the login of a code that was presented in a request that is not valid. An invented code ends none."""
        try:
            login = await self._find(code.name)
        except GrantRejected:
            return
        if self._is_code_of(login, code):
            await self.end(code.name)

    async def refresh(self, token: NamedSecret) -> IssuedTokens:
        """Replaces a refresh token, and issues the next key."""
        login = await self._find(token.name)
        if not self.values.is_issued(token, metadata(login).get("uid", "")):
            raise GrantRejected("token_unknown")
        user = self._user_of_key(token.name)
        if user is None:
            await self.end(token.name)
            raise GrantRejected("login_ended")
        binding = self._binding_of(login, ttl_seconds(login))
        digest = self.values.refresh_digest(token.secret, binding)
        if _is_equal(get_path(login, "spec.key"), digest):
            if not await self._advance(login, token.secret, digest, binding, self.lifetimes.grace):
                return await self.refresh(token)  # another request has used it meanwhile: within the grace period
            return self._tokens(user, login, token.secret, self.lifetimes.key)
        in_grace = self._previous_end(login, digest) is not None
        key_left = self._previous_end(login, self.values.key_digest(token.secret))
        if not in_grace or key_left is None:
            await self.end(token.name)
            raise GrantRejected("token_reused")
        return self._tokens(user, login, token.secret, key_left)

    async def revoke(self, token: NamedSecret) -> None:
        """Ends the login of a refresh token that was issued by this server, current or not."""
        try:
            login = await self._find(token.name)
        except GrantRejected:
            return
        if self.values.is_issued(token, metadata(login).get("uid", "")):
            await self.end(token.name)

    async def end(self, name: str) -> None:
        await self._keys.delete_if_exists("", name)

    def binding_for(self, user: User, ttl: int) -> Binding:
        """What a login depends on that this user allows: the login or access key with which the user does so."""
        return Binding(user.key, _identity_of(self._key_of(user)), ttl)

    def lacks_sign_on(self, user: User) -> bool:
        """Whether this is a user of an identity provider whose key is no single sign-on.

        A login that such a key allows would depend on no session, and go on after the provider has ended them all.
        """
        entry = self._users.get_cached("", user.name)
        return (
            entry is not None and bool(get_path(decode(entry), "spec.issuer")) and not is_sso_login(self._key_of(user))
        )

    def allowed_ttl(self, user: User) -> int:
        """The lifetime of a login that this user allows: not longer than that of the key in use."""
        return self._sessions.allowed_ttl(user.key, self.lifetimes.login())

    def _key_of(self, user: User) -> Object:
        entry = self._keys.get_cached("", user.key) if user.key else None
        return decode(entry) if entry is not None else {}

    def is_cli_login(self, name: str) -> bool:
        entry = self._keys.get_cached("", name)
        return entry is not None and is_cli_login(decode(entry))

    async def _find(self, name: str) -> Object:
        try:
            login = decode(await self._keys.get("", name))
        except NotFound:
            raise GrantRejected("login_ended") from None
        if not is_cli_login(login):
            raise GrantRejected("token_unknown")
        return login

    def _binding_of(self, login: Object, ttl: int) -> Binding:
        parent = get_path(login, "spec.parent") or ""
        entry = self._keys.get_cached("", parent) if parent else None
        return Binding(parent, _identity_of(decode(entry)) if entry is not None else "", ttl)

    def _is_code_of(self, login: Object, code: NamedSecret) -> bool:
        """Whether this is the code of a login, whatever verifier and redirect URI came with it."""
        mark = annotations_of(login).get(CODE_ANNOTATION)
        return _is_equal(mark, self.values.code_mark(code.secret))

    def _previous_end(self, login: Object, digest: str) -> int | None:
        """The seconds that a previous value is still valid; None if it is not."""
        now = self._clock.now()
        for each in get_path(login, "status.previous") or ():
            until = parse_rfc3339(each.get("until"))
            if until is not None and until > now and _is_equal(each.get("key"), digest):
                return max(1, int((until - now).total_seconds()))
        return None

    async def _advance(self, login: Object, secret: str, digest: str, binding: Binding, reuse_window: int) -> bool:
        """Replaces the digest of the presented value, if it is still the current one. First adds the key and, for
        `reuse_window` seconds, the presented value to the previous ones, so that an interrupted request can be
        repeated."""
        now = self._clock.now()
        name = name_of(login)
        until = {
            self.values.key_digest(secret): timestamp(now + timedelta(seconds=self.lifetimes.key)),
            digest: timestamp(now + timedelta(seconds=reuse_window)),
        }
        valid = [
            each
            for each in get_path(login, "status.previous") or ()
            if (parse_rfc3339(each["until"]) or now) > now and each["key"] not in until
        ]
        added = [{"key": value, "until": end} for value, end in until.items()]
        previous = [*valid, *added][-MAX_VALUES:]
        if not await self._write(name, digest, "status", {"previous": previous}):
            return False
        following = self.values.refresh_digest(self.values.next_secret(secret), binding)
        return await self._write(name, digest, "", {"key": following, "ttl": binding.ttl})

    async def _write(self, name: str, digest: str, subresource: str, fields: Object) -> bool:
        """Sets fields of the spec or the status, if the login still has that digest."""
        is_same, section = True, subresource or "spec"

        def edit(old: Object) -> Object:
            nonlocal is_same
            is_same = _is_equal(get_path(old, "spec.key"), digest)
            new = deep_copy(old)
            if is_same:
                new[section] = {**(new.get(section) or {}), **fields}
            if is_same and not subresource:
                annotations = metadata(new).get("annotations") or {}
                annotations.pop(TTL_ANNOTATION if _is_waiting(old) else CODE_ANNOTATION, None)
            return new

        try:
            await self._keys.modify("", name, edit, server_write_options(subresource))
        except NotFound:
            raise GrantRejected("login_ended") from None
        return is_same

    def _tokens(self, user: User, login: Object, secret: str, seconds: int) -> IssuedTokens:
        name = name_of(login)
        uid = metadata(login).get("uid", "")
        token = self.values.refresh_token(name, uid, self.values.next_secret(secret))
        return IssuedTokens(user, self.values.access_key(secret), token, seconds)


def _identity_of(parent: Object) -> str:
    """Identifies a key, and its value unless it is a login in a browser: a login ends when that is replaced."""
    uid = str(metadata(parent).get("uid") or "")
    return uid if get_path(parent, "spec.type") == LOGIN_TYPE else f"{uid}:{get_path(parent, 'spec.key') or ''}"


def _is_waiting(login: Object) -> bool:
    """Whether the code of a login was not redeemed yet."""
    return TTL_ANNOTATION in annotations_of(login)


def _intended_ttl(login: Object) -> int:
    """The lifetime in seconds that a login has, or will have when its code is redeemed."""
    text = annotations_of(login).get(TTL_ANNOTATION) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else ttl_seconds(login)


def _is_equal(stored: object, digest: str) -> bool:
    return isinstance(stored, str) and hmac.compare_digest(stored.encode(), digest.encode())
