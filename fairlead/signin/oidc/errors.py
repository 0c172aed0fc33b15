"""Why a token or a provider was rejected."""

from enum import StrEnum


class Reason(StrEnum):
    """A fixed set: nothing of a token or of a provider's response is part of a reason."""

    # the provider
    ISSUER_URL = "issuer_url"
    """The issuer URL, or a URL in its metadata, is not an https URL that can be fetched."""
    ADDRESS_BLOCKED = "address_blocked"
    PROVIDER_UNREACHABLE = "provider_unreachable"
    PROVIDER_TIMEOUT = "provider_timeout"
    PROVIDER_TLS = "provider_tls"
    PROVIDER_REDIRECT = "provider_redirect"
    PROVIDER_STATUS = "provider_status"
    """The provider responded with an error. `ProviderError.oauth_error` is its OAuth error code, if it sent one."""
    RESPONSE_TOO_LARGE = "response_too_large"
    RESPONSE_INVALID = "response_invalid"
    ISSUER_MISMATCH = "issuer_mismatch"
    """The issuer in the metadata is not exactly the configured one."""
    JWKS_INVALID = "jwks_invalid"

    # the token
    TOKEN_TOO_LARGE = "token_too_large"
    TOKEN_MALFORMED = "token_malformed"
    TOKEN_TOO_DEEP = "token_too_deep"
    TOKEN_TYPE = "token_type"
    ALGORITHM = "algorithm"
    KEY_IN_HEADER = "key_in_header"
    CRITICAL_HEADER = "critical_header"
    UNKNOWN_KEY = "unknown_key"
    UNUSABLE_KEY = "unusable_key"
    SIGNATURE = "signature"
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_PARTY = "wrong_party"
    """`azp` is missing although there are several audiences, or it is not this client."""
    INVALID_TIME = "invalid_time"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    ISSUED_IN_FUTURE = "issued_in_future"
    INVALID_SUBJECT = "invalid_subject"
    WRONG_NONCE = "wrong_nonce"
    WRONG_ACCESS_TOKEN = "wrong_access_token"
    """`at_hash` is not that of the access token."""
    NOT_A_LOGOUT = "not_a_logout"
    """A logout token without the event, without `jti`, with a `nonce`, or without `sub` and `sid`."""


class TokenRejected(Exception):
    """The token is not acceptable. The message contains nothing of the token."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ProviderError(Exception):
    """A request to the provider failed. The message contains nothing of the response."""

    def __init__(self, reason: Reason, message: str, *, status: int = 0, oauth_error: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        """The HTTP status, or 0 if there was no response."""
        self.oauth_error = oauth_error
        """The `error` of an OAuth error response, such as `invalid_grant`; else empty."""
