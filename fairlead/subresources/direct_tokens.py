"""Direct tokens over HTTP: `POST directclusterendpointtokens` makes one, `POST tokenkeyrotations` changes the key.

`server/api/actions.py` calls these handlers; `authn/token_issuer.py` decides what a token says. Each token made is logged by its
id, and the request is in the audit log like every one that hands out a credential. The token is in neither.
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
    """The handlers."""

    def __init__(self, minting: DirectMinting, keys: SigningKeyStore) -> None:
        self._minting = minting
        self._keys = keys

    def handlers(self, api_group: str) -> dict[Place, Handler]:
        return {(api_group, TOKENS, ""): self.create, (api_group, ROTATIONS, ""): self.rotate}

    async def create(self, asked: Asked) -> Object:
        """A token. With dryRun, whether there would be one."""
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
            raise BadRequest("a rotation cannot be rehearsed: it would name a key that there is not; leave out dryRun")
        keys = await self._keys.rotate(self._minting.longest)
        status = {"keyID": keys.active.id}
        if keys.retired:
            status["retiredUntil"] = timestamp(datetime.fromtimestamp(keys.retired[0].until, UTC))
        return {**asked.body, "status": status}
