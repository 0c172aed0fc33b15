"""Names of users that objects refer to, though no user has them: of a former user, or of one who is still to come.

Users often choose their name at a provider themselves. A new user must not get the rights that wait for a name, so such
names count as taken.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson

from fairlead.core.user import USER_GROUP_PREFIX
from fairlead.kinds.access.users import USER
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry

RBAC_GROUP = "rbac.authorization.k8s.io"
STEP = 2_000
"""Objects that are searched before other work gets its turn."""


async def is_reserved(registry: Registry, api_group: str, name: str) -> bool:
    """Whether a binding, a team, a project or another object refers to a user of this name."""
    texts = {name, f"{USER_GROUP_PREFIX}{name}"}
    encoded = [orjson.dumps(text) for text in texts]
    for kind in registry.catalog.kinds:
        if kind.group not in (api_group, RBAC_GROUP) or kind.plural == USER.plural:
            continue
        for position, entry in enumerate(registry.view.entries(kind.group, kind.plural), start=1):
            if any(text in entry.body for text in encoded):
                content = {field: value for field, value in decode(entry).items() if field != "metadata"}
                if not texts.isdisjoint(_strings(content)):
                    return True
            if position % STEP == 0:
                await asyncio.sleep(0)
    return False


def _strings(value: Any) -> Iterator[str]:
    """All texts in a value. Objects in the store are not nested deeply."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
