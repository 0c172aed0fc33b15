"""Why a session ends, and the error of a refused sign-on. `authn/sign_on_policy.py` has the reasons of that."""

from enum import StrEnum

from fairlead.authn.sign_on_policy import SignOnReason


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
