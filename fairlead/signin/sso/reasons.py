"""Why a sign-on is refused or a session ends, and the counters of both for the metrics.

`authn/sign_on_policy.py` has the reasons of refusals. The labels of the metrics are ids of connectors and fixed
reasons, never names of users.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from fairlead.authn.sign_on_policy import SignOnReason
from fairlead.server.metrics.exposition import COUNTER, Family, MetricFamily


class EndReason(StrEnum):
    """Why a session has ended before its time."""

    GRANT_REVOKED = "grant_revoked"
    PROVIDER_LOGOUT = "provider_logout"
    CONNECTOR_REMOVED = "connector_removed"
    NOT_ALLOWED = "not_allowed"
    STALE_TOO_LONG = "stale_too_long"
    IDENTITY_CHANGED = "identity_changed"
    TOKEN_UNREADABLE = "token_unreadable"
    USER_REMOVED = "user_removed"


class SignOnRefused(Exception):
    """A sign-on that is refused. `detail` is for the server's log and the audit log, and has no text of a provider.

    `sent_code` says that it failed after the code was sent to the provider, or would have been.
    """

    def __init__(self, reason: SignOnReason, detail: str = "") -> None:
        super().__init__(reason.value, detail)
        self.reason = reason
        self.detail = detail
        self.sent_code = False


Labels = tuple[str, str]
"""Id of the connector, and the result or reason, which is out of a fixed list."""


@dataclass(frozen=True, slots=True)
class SignOnCounters:
    sign_ons: Counter[Labels] = field(default_factory=Counter)
    refreshes: Counter[Labels] = field(default_factory=Counter)
    ended_sessions: Counter[Labels] = field(default_factory=Counter)


def sign_on_families(counters: SignOnCounters) -> Iterator[MetricFamily]:
    yield Family(
        "fairlead_sign_ons_total",
        COUNTER,
        "Sign-ons by connector and result.",
        ("connector", "result"),
        list(counters.sign_ons.items()),
    )
    yield Family(
        "fairlead_sign_on_refreshes_total",
        COUNTER,
        "Checks of sessions with their provider, by connector and result.",
        ("connector", "result"),
        list(counters.refreshes.items()),
    )
    yield Family(
        "fairlead_sign_on_sessions_ended_total",
        COUNTER,
        "Sessions that ended before their time, by connector and reason.",
        ("connector", "reason"),
        list(counters.ended_sessions.items()),
    )
