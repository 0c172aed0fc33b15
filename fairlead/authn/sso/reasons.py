"""Why a sign-on is refused, or a session ends: a fixed list.

The audit log, metrics and the address of the console's error page contain these values, and never a text of the
provider.
"""

from enum import StrEnum


class SignOnReason(StrEnum):
    """Each value is shown to users by the console with a text of its own."""

    UNKNOWN_CONNECTOR = "unknown_connector"
    INVALID_RETURN_PATH = "invalid_return_path"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_MISCONFIGURED = "provider_misconfigured"
    CLIENT_SECRET_MISSING = "client_secret_missing"
    STATE_MISSING = "state_missing"
    STATE_MISMATCH = "state_mismatch"
    STATE_EXPIRED = "state_expired"
    STATE_REUSED = "state_reused"
    ISSUER_MISMATCH = "issuer_mismatch"
    ACCESS_DENIED = "access_denied"
    PROVIDER_ERROR = "provider_error"
    CODE_REJECTED = "code_rejected"
    TOKEN_REJECTED = "token_rejected"
    USERINFO_REJECTED = "userinfo_rejected"
    CLAIMS_INVALID = "claims_invalid"
    GROUPS_INVALID = "groups_invalid"
    GROUPS_OVERAGE = "groups_overage"
    EMAIL_MISSING = "email_missing"
    EMAIL_UNVERIFIED = "email_unverified"
    DOMAIN_NOT_ALLOWED = "domain_not_allowed"
    GROUP_NOT_ALLOWED = "group_not_allowed"
    NO_RULE_MATCHED = "no_rule_matched"
    USER_NOT_FOUND = "user_not_found"
    USER_DISABLED = "user_disabled"
    USER_AMBIGUOUS = "user_ambiguous"


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
