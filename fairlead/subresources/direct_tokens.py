"""Direct tokens: `POST directclusterendpointtokens` issues one, `POST tokenkeyrotations` rotates the signing key.

`authn/token_issuer.py` issues the token. Each token is logged with its id, and the request is audited like every
request that returns a credential. Neither log contains the token.
"""

from datetime import UTC, datetime

import structlog

from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import DirectMinting
from fairlead.core.clock import timestamp
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object, metadata
from fairlead.server.api.actions import Asked, Handler, Place

TOKENS, ROTATIONS = "directclusterendpointtokens", "tokenkeyrotations"

log = structlog.get_logger(__name__)


class DirectTokens:
    """The handlers of both resources."""

    def __init__(self, minting: DirectMinting, keys: SigningKeyStore) -> None:
        self._minting = minting
        self._keys = keys

    def handlers(self, api_group: str) -> dict[Place, Handler]:
        return {(api_group, TOKENS, ""): self.create, (api_group, ROTATIONS, ""): self.rotate}

    async def create(self, asked: Asked) -> Object:
        """Issues a token. With dryRun, only checks whether it would be issued."""
        spec = asked.body.get("spec") or {}
        minted = await self._minting.mint(asked.user, spec, rehearsing=asked.dry_run)
        if minted is None:
            return asked.body
        metadata(asked.body)["creationTimestamp"] = timestamp(minted.issued)
        log.info(
            "a direct token was made",
            id=minted.id,
            user=asked.user.name,
            access_key=(asked.user.impersonator or asked.user).key,
            ttl=minted.ttl,
            audit_id=asked.call.audit_id,
        )
        return {**asked.body, "spec": {**spec, "ttl": minted.ttl}, "status": {"token": minted.value}}

    async def rotate(self, asked: Asked) -> Object:
        if asked.dry_run:
            raise BadRequest("dryRun is not supported: it would return the id of a key that does not exist; omit it")
        keys = await self._keys.rotate(self._minting.longest)
        status = {"keyID": keys.active.id}
        if keys.retired:
            status["retiredUntil"] = timestamp(datetime.fromtimestamp(keys.retired[0].until, UTC))
        return {**asked.body, "status": status}
