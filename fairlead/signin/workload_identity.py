"""Workload identity: decides which access key a token of another system is exchanged for.

The rules are settings (`kinds/clusters/config.py`). The unverified issuer of a token, or the cluster that the
client names, only chooses the rules to try; nothing of a token counts before it is verified. Tokens of an issuer are
verified with its published keys. Tokens of a cluster's service accounts are verified by that cluster (TokenReview):
clusters often have the same issuer name, and only the cluster knows that a pod or an account is gone.

`signin/token_exchange.py` then records the use of the token, and creates the key.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fairlead.core.bounded_cache import BoundedCache
from fairlead.core.objects import Object, get_path
from fairlead.core.user import SERVICE_ACCOUNT_PREFIX
from fairlead.kinds.clusters.config import DEFAULT_TTL_SECONDS, MAX_TTL_SECONDS
from fairlead.signin.oidc.discovery import ProviderClient
from fairlead.signin.oidc.issuer import Issuer
from fairlead.signin.oidc.tokens import (
    Claims,
    Provider,
    TokenRejected,
    check_reviewed_token,
    read_unverified_issuer,
    verify_subject_token,
)

TOKEN_REVIEW_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
MAX_CONCURRENT_REVIEWS = 4
"""Per cluster. Anyone can send tokens; their reviews must not take the connections that controllers need."""
MAX_CLUSTERS = 4_096
MAX_RUN_LENGTH = 64

_PULL_REQUEST_CLAIMS = {
    "event_name": ("pull_request", "pull_request_target", "pull_request_review", "pull_request_review_comment"),
    "pipeline_source": ("merge_request_event", "external_pull_request_event"),
}
"""Claims of GitHub and GitLab that tell that a run may contain code of someone who cannot write to the repository."""
_PULL_REQUEST_REFS = ("refs/pull/", "refs/merge-requests/")
_RUN_CLAIMS = ("run_id", "job_id", "pipeline_id", "jti")

ReviewToken = Callable[[str, Object], Awaitable[Object]]
"""Posts a TokenReview to a connected cluster and returns the response. Raises ReviewUnavailable."""


class ExchangeReason(StrEnum):
    """Why no key was issued, if the token itself is valid. Reasons of tokens are in `oidc/fetch.py`."""

    NOT_CONFIGURED = "not_configured"
    UNTRUSTED_ISSUER = "untrusted_issuer"
    UNTRUSTED_CLUSTER = "untrusted_cluster"
    NO_RULE = "no_rule"
    PULL_REQUEST = "pull_request"
    NOT_AUTHENTICATED = "not_authenticated"
    CLUSTER_UNAVAILABLE = "cluster_unavailable"
    NO_PRINCIPAL = "no_principal"
    REPLAYED = "replayed"
    TOO_MANY_KEYS = "too_many_keys"


class ExchangeRejected(Exception):
    """The token is not exchanged. The message contains nothing of the token."""

    def __init__(self, reason: ExchangeReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ReviewUnavailable(Exception):
    """The cluster did not review the token. The message is for the client."""


@dataclass(frozen=True, slots=True)
class TrustRule:
    """A rule. Exactly one of `issuer` and `cluster` is set, and one of `user`, `team` and `service_account`."""

    name: str
    issuer: Issuer | None
    cluster: str
    cluster_uid: str
    claims: Mapping[str, str]
    account: tuple[str, str]
    """Namespace and name of the service account in the cluster."""
    account_uid: str
    allows_pull_requests: bool
    user: str
    team: str
    service_account: tuple[str, str]
    """Namespace and name of a service account of this server."""
    principal_uid: str
    scope: Object
    max_ttl: int

    @staticmethod
    def parse(rule: Object) -> "TrustRule":
        """Parses a rule that `trust_errors` has accepted."""
        url = rule.get("issuer") or ""
        namespace, _, name = str(rule.get("serviceAccount") or "").partition("/")
        ttl = rule.get("maxTTLSeconds") or DEFAULT_TTL_SECONDS
        return TrustRule(
            name=rule["name"],
            issuer=Issuer(url, rule.get("ca") or "", bool(rule.get("allowLoopback"))) if url else None,
            cluster=rule.get("cluster") or "",
            cluster_uid=rule.get("clusterUID") or "",
            claims=dict(rule.get("claims") or {}),
            account=(rule.get("namespace") or "", rule.get("serviceAccountName") or ""),
            account_uid=rule.get("serviceAccountUID") or "",
            allows_pull_requests=bool(rule.get("allowPullRequests")),
            user=rule.get("user") or "",
            team=rule.get("team") or "",
            service_account=(namespace, name),
            principal_uid=rule.get("uid") or "",
            scope=rule["scope"],
            max_ttl=min(ttl, MAX_TTL_SECONDS),
        )

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """Whether the token has all claims of the rule, as strings and with exactly these values."""
        return all(type(claims.get(name)) is str and claims[name] == value for name, value in self.claims.items())


@dataclass(frozen=True, slots=True)
class VerifiedWorkload:
    """A verified token, and the rule that accepts it."""

    rule: TrustRule
    source: str
    """The issuer, or the cluster: token ids are unique within it."""
    subject: str
    token_id: str
    expires_at: float
    run: str = ""


@dataclass(frozen=True, slots=True)
class _TrustSettings:
    audience: str = ""
    rules: Sequence[TrustRule] = ()


@dataclass(slots=True)
class WorkloadIdentity:
    """Evaluates the rules. `own_issuers` are the issuers of this server, whose tokens are never exchanged."""

    settings: Callable[[], Object]
    client: ProviderClient
    review_token: ReviewToken
    cluster_uid: Callable[[str], str]
    """Returns the UID of a connected cluster; empty if there is none."""
    own_issuers: frozenset[str] = frozenset()
    _parsed: tuple[Object, _TrustSettings] | None = None
    _reviews: BoundedCache[str, asyncio.Semaphore] = field(default_factory=lambda: BoundedCache(MAX_CLUSTERS))

    async def verify(self, token: str, cluster: str, now: datetime) -> VerifiedWorkload:
        """Verifies a token and returns the first rule that accepts it. `cluster` is empty for tokens of issuers.

        Raises ExchangeRejected, TokenRejected, ProviderError or ReviewUnavailable.
        """
        settings = self._read_settings()
        if not settings.audience or not settings.rules:
            raise ExchangeRejected(ExchangeReason.NOT_CONFIGURED, "this server trusts no tokens of other systems")
        if cluster:
            return await self._verify_cluster_token(settings, token, cluster, now)
        return await self._verify_issuer_token(settings, token, now)

    def _read_settings(self) -> _TrustSettings:
        current = self.settings()
        if self._parsed is None or self._parsed[0] is not current:
            rules = tuple(TrustRule.parse(each) for each in current.get("rules") or ())
            self._parsed = current, _TrustSettings(str(current.get("audience") or ""), rules)
        return self._parsed[1]

    async def _verify_issuer_token(self, settings: _TrustSettings, token: str, now: datetime) -> VerifiedWorkload:
        url = read_unverified_issuer(token)
        rules = [rule for rule in settings.rules if rule.issuer is not None and rule.issuer.url == url]
        if not rules or url in self.own_issuers:
            raise ExchangeRejected(ExchangeReason.UNTRUSTED_ISSUER, "no rule trusts the issuer of the token")
        verified: dict[Issuer, Claims] = {}
        failure: TokenRejected | None = None
        is_pull_request = False
        for rule in rules:
            assert rule.issuer is not None
            # Rules for the same issuer may differ in its CA, and then have keys of their own.
            if rule.issuer not in verified:
                try:
                    provider = Provider(self.client, rule.issuer)
                    verified[rule.issuer] = await verify_subject_token(provider, token, {settings.audience}, now)
                except TokenRejected as error:
                    failure = error
                    continue
            claims = verified[rule.issuer]
            if not rule.matches(claims):
                continue
            if rule.allows_pull_requests or not is_pull_request_run(claims):
                return VerifiedWorkload(
                    rule=rule,
                    source=url,
                    subject=claims.subject,
                    token_id=claims.token_id,
                    expires_at=claims.expires_at,
                    run=_run_id(claims),
                )
            is_pull_request = True
        if failure is not None and not verified:
            raise failure
        if is_pull_request:
            message = "runs for pull requests are not trusted, unless the rule allows them"
            raise ExchangeRejected(ExchangeReason.PULL_REQUEST, message)
        raise ExchangeRejected(ExchangeReason.NO_RULE, "no rule matches the claims of the token")

    async def _verify_cluster_token(
        self, settings: _TrustSettings, token: str, cluster: str, now: datetime
    ) -> VerifiedWorkload:
        uid = self.cluster_uid(cluster)
        rules = [rule for rule in settings.rules if rule.cluster == cluster and rule.cluster_uid in ("", uid)]
        if not rules or not uid:
            raise ExchangeRejected(ExchangeReason.UNTRUSTED_CLUSTER, "no rule trusts service accounts of that cluster")
        claims = check_reviewed_token(token, {settings.audience}, now)
        # The cluster is asked only about tokens that would match. It decides whether their claims are true.
        expected = [rule for rule in rules if claims.subject == _account_subject(*rule.account)]
        if not expected:
            raise ExchangeRejected(ExchangeReason.NO_RULE, "no rule matches the service account of the token")
        account_uid = await self._review(cluster, token, settings.audience, claims.subject)
        for rule in expected:
            if rule.account_uid in ("", account_uid):
                bound = claims.get("kubernetes.io")
                pod = get_path(bound, "pod.name") if isinstance(bound, dict) else ""
                source = f"cluster:{uid}"
                return VerifiedWorkload(
                    rule=rule,
                    source=source,
                    subject=claims.subject,
                    token_id=claims.token_id,
                    expires_at=claims.expires_at,
                    run=_clip(pod),
                )
        raise ExchangeRejected(ExchangeReason.NO_RULE, "the service account was recreated since it was trusted")

    async def _review(self, cluster: str, token: str, audience: str, subject: str) -> str:
        """Has the cluster review the token, and returns the UID of its service account."""
        limit = self._reviews.get(cluster)
        if limit is None:
            limit = self._reviews[cluster] = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)
        if limit.locked():
            raise ReviewUnavailable("too many tokens of this cluster are being reviewed; try again")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        async with limit:
            review = await self.review_token(cluster, body)
        status = review.get("status")
        user = status.get("user") if isinstance(status, dict) else None
        if not isinstance(status, dict) or status.get("authenticated") is not True or not isinstance(user, dict):
            raise ExchangeRejected(ExchangeReason.NOT_AUTHENTICATED, "the cluster does not accept the token")
        # An API server that does not check audiences leaves them out of the response.
        if status.get("error") or audience not in (status.get("audiences") or ()) or user.get("username") != subject:
            raise ExchangeRejected(ExchangeReason.NOT_AUTHENTICATED, "the cluster does not accept the token")
        return str(user.get("uid") or "")


def is_pull_request_run(claims: Mapping[str, Any]) -> bool:
    """Whether a CI run is for a pull request or a merge request, by the claims of GitHub and GitLab."""
    if any(str(claims.get(name)) in values for name, values in _PULL_REQUEST_CLAIMS.items()):
        return True
    # Refs of pull requests also occur with other events, for example a manual run of their workflow.
    return any(str(claims.get(name) or "").startswith(_PULL_REQUEST_REFS) for name in ("ref", "ref_path"))


def _account_subject(namespace: str, name: str) -> str:
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def _run_id(claims: Mapping[str, Any]) -> str:
    """The id of the CI run, for the audit log."""
    return next((_clip(claims[name]) for name in _RUN_CLAIMS if claims.get(name)), "")


def _clip(value: Any) -> str:
    return str(value or "")[:MAX_RUN_LENGTH]
