"""Access key subresources: `users/<name>/accesskeys`, `teams/<name>/accesskeys`, `ownedaccesskeys/<name>/rotate`.

The first two list the keys of one owner, with selectors and paging. The items are `ownedaccesskeys`, which do not
contain the values of keys. `rotate` gives a key a new value (`authn/key_rotation.py`).
"""

from dataclasses import replace

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authn.principals import TEAMS, USERS
from fairlead.core.errors import BadRequest
from fairlead.registry.list import encode_list, list_entries
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import Requirement
from fairlead.server.api import query_options
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest

SUBRESOURCE = "accesskeys"
ROTATE = "rotate"
OWNER_FIELDS = {USERS: "spec.user", TEAMS: "spec.team"}
"""The resources that own keys, and the field of a key with the owner's name."""


def key_list_handlers(api_group: str, registry: Registry) -> dict[ActionPath, ActionHandler]:
    return {
        (api_group, plural, SUBRESOURCE): _list_keys_handler(registry, api_group, plural) for plural in OWNER_FIELDS
    }


def _list_keys_handler(registry: Registry, api_group: str, plural: str) -> ActionHandler:
    owners, keys = registry.resource(api_group, plural), registry.resource(api_group, ACCESS_KEYS)

    async def list_keys(request: ActionRequest) -> bytes:
        await owners.get("", request.name)  # raises NotFound, instead of an empty list
        query = query_options.list_query(request.call, keys.kind)
        by_owner = Requirement(OWNER_FIELDS[plural], "in", frozenset({request.name}))
        selection = replace(query.selector, fields=(*query.selector.fields, by_owner))
        page = await list_entries(keys.view, keys.kind, "", replace(query, selector=selection))
        return await encode_list(keys.kind, page)

    return list_keys


def rotation_handlers(api_group: str, rotator: KeyRotator) -> dict[ActionPath, ActionHandler]:
    async def rotate(request: ActionRequest) -> bytes:
        if request.dry_run:
            raise BadRequest("dryRun is not supported: it would return a key that does not work; omit it")
        return await rotator.rotate(request.user, request.name, request.body)

    return {(api_group, ACCESS_KEYS, ROTATE): rotate}
