"""The grant type for token exchange (RFC 8693): an access key in exchange for a token of another system.

Optional fields that would change the meaning of a request (`actor_token`, `scope`, `resource`) are rejected, not
ignored. The field `cluster` names the connected cluster that issued the token of a service account.
"""

from dataclasses import dataclass

import structlog

from fairlead.core.call import Call, Reply
from fairlead.core.clock import Clock
from fairlead.signin.oauth import Form, OAuthError, json_reply, require_field
from fairlead.signin.oidc.reasons import ProviderError, TokenRejected
from fairlead.signin.oidc.tokens import MAX_TOKEN_BYTES
from fairlead.signin.workload_identity import (
    ExchangeReason,
    ExchangeRejected,
    Grant,
    ReviewUnavailable,
    WorkloadIdentity,
)
from fairlead.signin.workload_keys import ExchangedKey, WorkloadKeys

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

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """Serves the grant type."""

    identity: WorkloadIdentity
    keys: WorkloadKeys
    clock: Clock

    async def __call__(self, call: Call, form: Form) -> Reply:
        token, cluster = _read_request(form)
        try:
            grant = await self.identity.find_grant(token, cluster, self.clock.now())
            _annotate(call, grant)
            key = await self.keys.issue(grant)
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


def _annotate(call: Call, grant: Grant) -> None:
    call.annotations[RULE_ANNOTATION] = grant.rule.name
    call.annotations[SUBJECT_ANNOTATION] = grant.subject
    if grant.run:
        call.annotations[RUN_ANNOTATION] = grant.run


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
