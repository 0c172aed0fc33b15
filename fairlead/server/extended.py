"""`extended=true` on get and list: what the asker may do with each object, filled into its status.

Clients show instances with it that somebody may see, and leave out those that he may not use. Nothing of it is stored:
it is another answer for everybody who asks.
"""

from collections.abc import Callable
from dataclasses import replace

import orjson

from fairlead.core.call import Call, Target, Verdict
from fairlead.core.objects import Object, metadata
from fairlead.core.user import User
from fairlead.registry.kind import Kind
from fairlead.server.route import truthy

Decide = Callable[[User, Target], Verdict]

VERBS = {"canUse": "use", "canUpdate": "update"}
"""The fields of the status, and the verb that each is about."""


def nobody_asks(user: User, target: Target) -> Verdict:
    """For servers without permissions to ask."""
    raise RuntimeError("extended answers need to know who may do what")


def is_extended(call: Call, kind: Kind) -> bool:
    """Whether the answer is to say what the asker may do, and the kind has a place for that."""
    if not truthy(call.parameter("extended"), present="extended" in call.query):
        return False
    return all(field in kind.fields.get("status", {}).get("properties", {}) for field in VERBS)


def extended(body: bytes, call: Call, user: User, decide: Decide) -> bytes:
    """The object of an answer with what the user may do with it."""
    obj: Object = orjson.loads(body)
    return orjson.dumps(with_rights(obj, call.target, user, decide))


def with_rights(obj: Object, asked: Target, user: User, decide: Decide) -> Object:
    meta, status = metadata(obj), obj.get("status") or {}
    one = replace(asked, path="", subresource="", namespace=meta.get("namespace", ""), name=meta["name"])
    rights = {field: decide(user, replace(one, verb=verb)).allowed for field, verb in VERBS.items()}
    return {**obj, "status": {**status, **rights}}
