"""A new value for an access key: `POST ownedaccesskeys/<name>/rotate`. `actions.py` calls it, and it the rotation."""

from fairlead.authn.accesskeys import ACCESS_KEYS
from fairlead.authn.rotation import Rotation
from fairlead.core.errors import BadRequest
from fairlead.server.actions import Asked, Handler, Place

ROTATE = "rotate"


def rotation_handlers(api_group: str, rotation: Rotation) -> dict[Place, Handler]:
    async def rotate(asked: Asked) -> bytes:
        if asked.dry_run:
            raise BadRequest("a rotation cannot be rehearsed: it would show a key that does not work; leave out dryRun")
        return await rotation.rotated(asked.user, asked.name, asked.body)

    return {(api_group, ACCESS_KEYS, ROTATE): rotate}
