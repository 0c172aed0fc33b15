"""Issues the tokens by which the server authenticates to runners that listen, with the keys of direct tokens."""

from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.core.clock import Clock
from fairlead.core.crypto.link_tokens import LIFETIME_SECONDS, issue_link_token


class LinkTokenIssuer:
    def __init__(self, keys: SigningKeyStore, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    async def issue(self, runner_uid: str, fingerprint: str) -> str:
        """A token for the runner with this certificate. Raises ApiError."""
        keys = await self._keys.active_key(LIFETIME_SECONDS)
        return issue_link_token(keys.active, runner_uid, fingerprint, self._clock.now())
