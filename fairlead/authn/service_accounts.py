"""Tokens of service accounts: `POST namespaces/<ns>/serviceaccounts/<name>/token`, as used by `kubectl create token`.

A token is an access key that the server creates for the account. It carries the account's uid, so that it ends with the
account, and it always expires. The request is already authorized (verb `create` on `serviceaccounts/token`), which
allows acting as the account, as in Kubernetes. In addition, the token inherits the scope of the key it was requested
with, and expires no later.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import orjson

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.core.errors import BadRequest, Conflict, Details, Forbidden, Invalid, Problem
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import User
from fairlead.domain.key_delegation import Delegator, delegator_for
from fairlead.domain.key_lifetime import expires_at
from fairlead.kinds.core.service_account import (
    DEFAULT_TOKEN_SECONDS,
    SERVICE_ACCOUNT,
    TOKEN_REQUEST,
    UID_LABEL,
    account_uid,
    account_username,
    is_account_key,
    token_problems,
)
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.view.view import IndexQuery

MAX_NAME_PREFIX = 200
"""How many characters of the account's name become part of the key's name."""
ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The maximum lifetime of a token in seconds, and the maximum number of active tokens per account."""

    max_seconds: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class AccountToken:
    """A new token; after a dry run it has no value. The value is returned once and never logged."""

    account: Object
    key: str
    seconds: int
    requested_seconds: int
    issued_at: datetime
    value: str = field(repr=False, default="")

    @property
    def expires_at(self) -> datetime:
        return self.issued_at + timedelta(seconds=self.seconds)


class ServiceAccountTokenIssuer:
    """Issues tokens of service accounts. `audience` is the only audience that these tokens have."""

    def __init__(self, registry: Registry, api_group: str, audience: str, limits: Callable[[], TokenLimits]) -> None:
        self._accounts = registry.resource(SERVICE_ACCOUNT.group, SERVICE_ACCOUNT.plural)
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._clock = registry.clock
        self._limits = limits
        self.audience = audience

    async def issue(
        self, user: User, namespace: str, name: str, request: Object, *, dry_run: bool = False
    ) -> AccountToken:
        """Issues a token of the account. Raises NotFound if there is no such account."""
        account = decode(await self._accounts.get(namespace, name))
        if "deletionTimestamp" in metadata(account):
            why = "it is being deleted, so no tokens are issued for it"
            raise Conflict.of(SERVICE_ACCOUNT.plural, SERVICE_ACCOUNT.group, name, why)
        spec = request.get("spec") or {}
        self._validate_request(name, request, spec)
        now = self._clock.now()
        limits = self._limits()
        delegator = delegator_for(user, self._keys)
        requested = spec.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS
        seconds = min(requested, limits.max_seconds, _remaining_seconds(delegator, now))
        self._check_token_limit(account, limits, now)
        key = _key_name(name)
        if dry_run:
            return AccountToken(account, key, seconds, requested, now)
        created = await self._keys.create(self._build_key(key, account, seconds, delegator), "", server_write_options())
        value = get_path(orjson.loads(created), "spec.key")
        return AccountToken(
            account=account, key=key, seconds=seconds, requested_seconds=requested, issued_at=now, value=value
        )

    def _validate_request(self, name: str, request: Object, spec: Object) -> None:
        reference = spec.get("boundObjectRef")
        if reference:
            version = str(reference.get("apiVersion") or "")
            kind = f"{version if '/' in version else f'/{version}'}, Kind={reference.get('kind') or ''}"
            raise BadRequest(
                f"cannot bind token to object of type {kind}: tokens of this server are bound to their service account "
                "only; leave out spec.boundObjectRef"
            )
        sent = metadata(request).get("name")
        problems = list(token_problems(spec))
        if sent and sent != name:
            why = "must match the service account name if specified"
            problems.append(Problem.invalid("metadata.name", sent, why))
        problems += self._audience_problems(spec.get("audiences") or ())
        if problems:
            raise Invalid.of(TOKEN_REQUEST.name, TOKEN_REQUEST.group, name if sent else "", problems)

    def _audience_problems(self, audiences: Sequence[str]) -> list[Problem]:
        return [
            Problem.invalid(
                f"spec.audiences[{index}]",
                each,
                f'the only audience of tokens of this server is "{self.audience}"; leave out spec.audiences',
            )
            for index, each in enumerate(audiences)
            if each != self.audience
        ]

    def _check_token_limit(self, account: Object, limits: TokenLimits, now: datetime) -> None:
        """Limits the number of active tokens, since each is an object. Concurrent requests may exceed it by a few."""
        meta = metadata(account)
        ends = [end for end in self._token_expiries(meta["uid"]) if end > now]
        if len(ends) >= limits.max_tokens:
            left = int((min(ends) - now).total_seconds()) + 1
            why = (
                f"it has {len(ends)} active tokens, and the limit is {limits.max_tokens}; use tokens for longer, "
                "delete the "
                f"access keys of those that are not needed, or wait: the next one expires in {left} seconds"
            )
            kind = SERVICE_ACCOUNT
            message = f'{kind.plural} "{meta["name"]}" is forbidden: {why}'
            raise Forbidden(message, Details(meta["name"], kind.group, kind.plural))

    def _token_expiries(self, uid: str) -> list[datetime]:
        wanted = (IndexQuery("labels", UID_LABEL, frozenset({uid})),)
        entries = self._keys.view.index_scan(self._keys.kind.stored_resource, "", wanted)
        # Other keys may have the label from before clients were prevented from setting it.
        keys = (key for entry in entries if is_account_key(key := decode(entry)) and account_uid(key) == uid)
        return [end for key in keys if (end := expires_at(key)) is not None]

    def _build_key(self, key: str, account: Object, seconds: int, delegator: Delegator) -> Object:
        kind, meta = self._keys.kind, metadata(account)
        spec: Object = {
            "displayName": f"Service account {meta['namespace']}/{meta['name']}",
            "subject": account_username(meta["namespace"], meta["name"]),
            "type": "Other",
            "ttl": seconds,
        }
        scope = get_path(delegator.key or {}, "spec.scope")
        if scope is not None:
            spec["scope"] = scope
        labels = {UID_LABEL: meta["uid"]}
        return kind.build({"name": key, "labels": labels}, spec=spec)


def _remaining_seconds(delegator: Delegator, now: datetime) -> int:
    """The remaining lifetime of the key in use: a token must not outlive it."""
    end = expires_at(delegator.key, now) if delegator.key is not None else None
    return 1 << 62 if end is None else max(1, int((end - now).total_seconds()))


def _key_name(account: str) -> str:
    return f"serviceaccount-{account[:MAX_NAME_PREFIX].rstrip('-.')}-{secrets.token_hex(ID_BYTES)}"
