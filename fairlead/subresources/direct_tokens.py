"""Direct tokens: `POST directclusterendpointtokens` issues one, `POST tokenkeyrotations` rotates the signing key.

`authn/token_issuer.py` issues the token. Each token is logged with its id, and the request is audited like every
request that returns a credential. Neither log contains the token.
"""

from datetime import UTC, datetime

import structlog

from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import DirectTokenIssuer
from fairlead.core.clock import timestamp
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object, metadata
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest

TOKENS, ROTATIONS = "directclusterendpointtokens", "tokenkeyrotations"

log = structlog.get_logger(__name__)


class DirectTokenHandlers:
    """The handlers of both resources."""

    def __init__(self, issuer: DirectTokenIssuer, keys: SigningKeyStore) -> None:
        self._issuer = issuer
        self._keys = keys

    def handlers(self, api_group: str) -> dict[ActionPath, ActionHandler]:
        return {(api_group, TOKENS, ""): self.create, (api_group, ROTATIONS, ""): self.rotate}

    async def create(self, request: ActionRequest) -> Object:
        """Issues a token. With dryRun, only checks whether it would be issued."""
        spec = request.body.get("spec") or {}
        issued = await self._issuer.issue(request.user, spec, dry_run=request.dry_run)
        if issued is None:
            return request.body
        metadata(request.body)["creationTimestamp"] = timestamp(issued.issued_at)
        log.info(
            "a direct token was made",
            id=issued.id,
            user=request.user.name,
            access_key=(request.user.impersonator or request.user).key,
            ttl=issued.ttl,
            audit_id=request.call.audit_id,
        )
        return {**request.body, "spec": {**spec, "ttl": issued.ttl}, "status": {"token": issued.value}}

    async def rotate(self, request: ActionRequest) -> Object:
        if request.dry_run:
            raise BadRequest("dryRun is not supported: it would return the id of a key that does not exist; omit it")
        keys = await self._keys.rotate(self._issuer.max_ttl)
        status = {"keyID": keys.active.id}
        if keys.retired:
            status["retiredUntil"] = timestamp(datetime.fromtimestamp(keys.retired[0].until, UTC))
        return {**request.body, "status": status}
