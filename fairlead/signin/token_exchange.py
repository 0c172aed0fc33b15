"""The grant type for token exchange (RFC 8693): an access key in exchange for a token of another system.

Optional fields that would change the meaning of a request (`actor_token`, `scope`, `resource`) are rejected, not
ignored. The field `cluster` names the connected cluster that issued the token of a service account.

A token is used once: before a key is created, a Lease with the digest of the token's id is created in the system
namespace, which fails if there is one already, also with several replicas. It stays until the token has expired. The
key acts as the principal of the rule, has exactly the scope of the rule, and never outlives the token.
"""

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import orjson
import structlog

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.principals import PrincipalDirectory
from fairlead.core.call import Call, Reply
from fairlead.core.clock import Clock, micro_timestamp, parse_rfc3339
from fairlead.core.errors import AlreadyExists, ApiError
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.scope import Scope
from fairlead.core.user import User
from fairlead.domain.key_lifetime import expires_at
from fairlead.kinds.access.access_key import EXCHANGED_TYPE, RULE_LABEL, is_exchanged_key
from fairlead.kinds.core.server_objects import EXCHANGED_LEASE_PREFIX
from fairlead.kinds.core.service_account import SERVICE_ACCOUNT, UID_LABEL, account_username
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.signin.oauth import Form, OAuthError, json_reply, require_field
from fairlead.signin.oidc.errors import ProviderError, TokenRejected
from fairlead.signin.oidc.tokens import MAX_SKEW_SECONDS, MAX_TOKEN_BYTES, Reason
from fairlead.signin.workload_identity import (
    ExchangeReason,
    ExchangeRejected,
    ReviewUnavailable,
    TrustRule,
    VerifiedWorkload,
    WorkloadIdentity,
)

USE_PREFIX = EXCHANGED_LEASE_PREFIX
LEASES = ("coordination.k8s.io", "leases")
SCAN_SECONDS = 60.0
MAX_TOKEN_SECONDS = 24 * 3600 + MAX_SKEW_SECONDS
"""How long a token may be valid: its use is recorded for that long."""
MAX_CLEANED = 5
"""Records that one exchange deletes, at most."""
ID_BYTES = 8
MAX_LIVE_KEYS = 1_000
"""Keys of one rule that have not expired. A trusted system that issues any number of tokens must not fill the store."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExchangedKey:
    """A new key. The value is returned once, and never logged."""

    user: User
    seconds: int
    value: str = field(repr=False)


class WorkloadKeys:
    """Records the use of tokens, and creates keys, as the server itself."""

    def __init__(self, registry: Registry, api_group: str, namespace: str, principals: PrincipalDirectory) -> None:
        self._keys = registry.resource(api_group, ACCESS_KEYS)
        self._group = api_group
        self._leases = registry.resource(*LEASES)
        self._accounts = registry.resource(SERVICE_ACCOUNT.group, SERVICE_ACCOUNT.plural)
        self._view = registry.view
        self._clock = registry.clock
        self._namespace = namespace
        self._principals = principals
        self._scanned_at = float("-inf")
        self._ended: list[str] = []

    async def issue(self, workload: VerifiedWorkload) -> ExchangedKey:
        """Creates the key of a workload. Raises ExchangeRejected or TokenRejected."""
        now = self._clock.now()
        self._lifetime(workload)
        if workload.expires_at - now.timestamp() > MAX_TOKEN_SECONDS:
            raise TokenRejected(Reason.INVALID_TIME, "the token is valid for too long; request one for a day at most")
        user, owner, labels = self._find_principal(workload.rule)
        self._check_count(workload.rule.name, now)
        await self._record_use(workload, now)
        # Again: the store may have been slow, and the key must not outlive the token.
        seconds = self._lifetime(workload)
        spec: Object = {
            "displayName": f"Workload identity, rule {workload.rule.name}",
            **owner,
            "type": EXCHANGED_TYPE,
            "ttl": seconds,
            "scope": workload.rule.scope,
        }
        meta = {
            "name": f"exchanged-{workload.rule.name}-{secrets.token_hex(ID_BYTES)}",
            "labels": {RULE_LABEL: workload.rule.name, **labels},
        }
        body = self._keys.kind.build(meta, spec=spec)
        created: Object = orjson.loads(await self._keys.create(body, "", server_write_options()))
        user = replace(user, key=name_of(created), scope=Scope.parse(workload.rule.scope))
        try:
            await self._clean_up(now)
        except ApiError as error:  # the key is issued, and a later exchange cleans up
            log.warning("records of exchanged tokens were not deleted", reason=error.reason)
        return ExchangedKey(user, seconds, created["spec"]["key"])

    def _find_principal(self, rule: TrustRule) -> tuple[User, Object, Object]:
        """The user of the key, the field of the spec that names it, and labels of the key."""
        self._principals.generation()
        labels: Object = {}
        user: User | None = None
        if rule.user or rule.team:
            kind, name = ("User", rule.user) if rule.user else ("Team", rule.team)
            found = self._principals.find_active(kind, name)
            build = self._principals.build_user if rule.user else self._principals.build_team
            user = None if found is None else build(found)
            owner = {kind.lower(): name}
        else:
            entry = self._accounts.get_cached(*rule.service_account)
            uid = str(metadata(decode(entry))["uid"]) if entry is not None else ""
            subject = account_username(*rule.service_account)
            user, owner, labels = self._principals.service_account(subject, uid), {"subject": subject}, {UID_LABEL: uid}
        if user is None or rule.principal_uid not in ("", user.uid):
            message = "the user, team or service account of the rule does not exist, or is disabled"
            raise ExchangeRejected(ExchangeReason.NO_PRINCIPAL, message)
        return user, owner, labels

    def _check_count(self, rule: str, now: datetime) -> None:
        """Raises ExchangeRejected if the rule has too many live keys. Exchanges at the same time may exceed it."""
        prefix = f"exchanged-{rule}-"
        length = len(prefix) + 2 * ID_BYTES
        entries = self._view.entries(self._group, ACCESS_KEYS)
        named = [each for each in entries if len(each.key[3]) == length and each.key[3].startswith(prefix)]
        if len(named) < MAX_LIVE_KEYS:  # only then, expired keys that are still there make a difference
            return
        if sum(_is_live_key(decode(each), now) for each in named) >= MAX_LIVE_KEYS:
            message = f"{MAX_LIVE_KEYS} keys of the rule have not expired; try again later, or lower its maxTTLSeconds"
            raise ExchangeRejected(ExchangeReason.TOO_MANY_KEYS, message)

    async def _record_use(self, workload: VerifiedWorkload, now: datetime) -> None:
        digest = hashlib.sha256(f"{workload.source}\0{workload.token_id}".encode()).hexdigest()
        lifetime = int(workload.expires_at - now.timestamp()) + 2 * MAX_SKEW_SECONDS
        spec = {
            "holderIdentity": workload.rule.name,
            "leaseDurationSeconds": min(lifetime, 2**31 - 1),
            "renewTime": micro_timestamp(now),
        }
        body = self._leases.kind.build({"name": f"{USE_PREFIX}{digest}", "namespace": self._namespace}, spec=spec)
        try:
            await self._leases.create(body, self._namespace, server_write_options())
        except AlreadyExists:
            raise ExchangeRejected(ExchangeReason.REPLAYED, "the token was used before; request a new one") from None

    def _lifetime(self, workload: VerifiedWorkload) -> int:
        """The lifetime of a key that is created now. Raises TokenRejected if the token is about to expire."""
        seconds = min(workload.rule.max_ttl, int(workload.expires_at - self._clock.now().timestamp()))
        if seconds < 1:
            raise TokenRejected(Reason.EXPIRED, "the token has expired, or is about to")
        return seconds

    async def _clean_up(self, now: datetime) -> None:
        """Deletes a few records of tokens that have expired: more than one exchange adds."""
        if self._clock.monotonic() - self._scanned_at >= SCAN_SECONDS:
            self._scanned_at = self._clock.monotonic()
            entries = self._view.entries(*LEASES, self._namespace)
            records = (decode(entry) for entry in entries if entry.key[3].startswith(USE_PREFIX))
            self._ended = [name for record in records if (name := _ended_record(record, now))]
        for _ in range(min(MAX_CLEANED, len(self._ended))):
            await self._leases.delete_if_exists(self._namespace, self._ended.pop())


def _is_live_key(key: Object, now: datetime) -> bool:
    end = expires_at(key, now)
    return is_exchanged_key(key) and (end is None or end > now)


def _ended_record(lease: Object, now: datetime) -> str:
    """The name of a record whose token has expired; else empty."""
    start = parse_rfc3339(get_path(lease, "spec.renewTime"))
    seconds = get_path(lease, "spec.leaseDurationSeconds") or 0
    is_over = start is None or start + timedelta(seconds=seconds) <= now
    return name_of(lease) if is_over else ""


TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"
SUBJECT_TOKEN_TYPES = frozenset({"urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"})
UNSUPPORTED_FIELDS = ("actor_token", "actor_token_type", "scope", "resource", "audience")
MAX_CLUSTER_NAME = 253
RULE_ANNOTATION, SUBJECT_ANNOTATION, RUN_ANNOTATION = (
    "service.sh/trust-rule",
    "service.sh/trust-subject",
    "service.sh/trust-run",
)
"""Annotations of audit events: the rule, the subject of the token, and the id of the CI run or the name of the pod."""


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """Serves the grant type."""

    identity: WorkloadIdentity
    keys: WorkloadKeys
    clock: Clock

    async def __call__(self, call: Call, form: Form) -> Reply:
        token, cluster = _read_request(form)
        try:
            workload = await self.identity.verify(token, cluster, self.clock.now())
            _annotate(call, workload)
            key = await self.keys.issue(workload)
        except TokenRejected as error:
            raise _rejection(error.reason, str(error)) from None
        except ExchangeRejected as error:
            if error.reason is ExchangeReason.TOO_MANY_KEYS:
                raise OAuthError("temporarily_unavailable", str(error), error.reason, status=429) from None
            raise _rejection(error.reason, str(error)) from None
        except ProviderError as error:
            log.warning("an issuer could not be reached for a token exchange", reason=error.reason, problem=str(error))
            raise _unavailable("the keys of the issuer cannot be fetched; try again later", error.reason) from None
        except ReviewUnavailable as error:
            raise _unavailable(str(error), ExchangeReason.CLUSTER_UNAVAILABLE) from None
        call.user = key.user
        return _reply(key)


def _read_request(form: Form) -> tuple[str, str]:
    """The token and the name of the cluster, which may be empty."""
    if require_field(form, "subject_token_type") not in SUBJECT_TOKEN_TYPES:
        types = ", ".join(sorted(SUBJECT_TOKEN_TYPES))
        raise OAuthError("invalid_request", f"subject_token_type must be one of: {types}")
    if form.get("requested_token_type", ACCESS_TOKEN_TYPE) != ACCESS_TOKEN_TYPE:
        raise OAuthError("invalid_request", f"requested_token_type must be {ACCESS_TOKEN_TYPE}")
    for name in UNSUPPORTED_FIELDS:
        if form.get(name):
            raise OAuthError("invalid_request", f"{name} is not supported: the rule decides what the key may do")
    token = require_field(form, "subject_token", MAX_TOKEN_BYTES)
    cluster = form.get("cluster", "")
    if len(cluster) > MAX_CLUSTER_NAME:
        raise OAuthError("invalid_request", "cluster is not the name of a cluster")
    return token, cluster


def _annotate(call: Call, workload: VerifiedWorkload) -> None:
    call.annotations[RULE_ANNOTATION] = workload.rule.name
    call.annotations[SUBJECT_ANNOTATION] = workload.subject
    if workload.run:
        call.annotations[RUN_ANNOTATION] = workload.run


def _rejection(reason: str, message: str) -> OAuthError:
    """RFC 8693 section 2.2.2: an unacceptable token is an invalid request."""
    return OAuthError("invalid_request", f"the subject token is rejected ({reason}): {message}", reason)


def _unavailable(message: str, reason: str) -> OAuthError:
    return OAuthError("temporarily_unavailable", message, reason, status=503)


def _reply(key: ExchangedKey) -> Reply:
    return json_reply(
        {
            "access_token": key.value,
            "issued_token_type": ACCESS_TOKEN_TYPE,
            "token_type": "Bearer",
            "expires_in": key.seconds,
        }
    )
