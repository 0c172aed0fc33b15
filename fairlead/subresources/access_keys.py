"""The access keys of one user or team: `users/<name>/accesskeys` and `teams/<name>/accesskeys`.

A list like any other, with selectors and pages; `server/api/actions.py` calls it. The objects are those of `ownedaccesskeys`, so
no key's value is in them.
"""

from dataclasses import replace

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.key_rotation import Rotation
from fairlead.authn.principals import TEAMS, USERS
from fairlead.core.errors import BadRequest
from fairlead.registry.list import list_body, list_entries
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import Requirement
from fairlead.server.api import query_options
from fairlead.server.api.actions import Asked, Handler, Place

SUBRESOURCE = "accesskeys"
OWNERS = {USERS: "spec.user", TEAMS: "spec.team"}
"""Whose keys can be listed, and the field of a key that names them."""


def key_list_handlers(api_group: str, registry: Registry) -> dict[Place, Handler]:
    return {(api_group, plural, SUBRESOURCE): _keys_of(registry, api_group, plural) for plural in OWNERS}


def _keys_of(registry: Registry, api_group: str, plural: str) -> Handler:
    owners, keys = registry.resource(api_group, plural), registry.resource(api_group, ACCESS_KEYS)

    async def listed(asked: Asked) -> bytes:
        await owners.get("", asked.name)  # no such owner is another answer than no keys
        query = query_options.list_query(asked.call, keys.kind)
        theirs = Requirement(OWNERS[plural], "in", frozenset({asked.name}))
        selection = replace(query.selection, fields=(*query.selection.fields, theirs))
        found = await list_entries(keys.view, keys.kind, "", replace(query, selection=selection))
        return await list_body(keys.kind, found)

    return listed


# DOC-MERGED server/key_rotation
# A new value for an access key: `POST ownedaccesskeys/<name>/rotate`. `server/api/actions.py` calls it, and it the rotation.


ROTATE = "rotate"


def rotation_handlers(api_group: str, rotation: Rotation) -> dict[Place, Handler]:
    async def rotate(asked: Asked) -> bytes:
        if asked.dry_run:
            raise BadRequest("a rotation cannot be rehearsed: it would show a key that does not work; leave out dryRun")
        return await rotation.rotated(asked.user, asked.name, asked.body)

    return {(api_group, ACCESS_KEYS, ROTATE): rotate}
