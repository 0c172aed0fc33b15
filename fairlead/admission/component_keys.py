"""The value of a component's key is kept, sealed, in a Secret that comes with the key in one commit.

Of all keys only the digest is stored. The key of a runner or an agent must come back when it is asked for, so these are
the one exception. Comes after minting, which makes the value; `authn/component_keys.py` makes the keys and reads the
Secrets.
"""

from base64 import b64encode
from collections.abc import Sequence

from fairlead.admission.chain import Rule, concerning, is_one_of
from fairlead.core.objects import Object, dig, metadata
from fairlead.core.user import CONTROLLER
from fairlead.kinds.accesskey import OWNED_ACCESS_KEY
from fairlead.kinds.components import KEY_ANNOTATION, Component
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.registry.writing import by_the_server

VALUE = "spec.key"


def component_keys(api_group: str, namespace: str, components: Sequence[Component]) -> Rule:
    """The rule. `namespace` is where the Secrets are."""

    @concerning(lambda kind, verb: verb == "create" and is_one_of(kind, api_group, OWNED_ACCESS_KEY.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.user != CONTROLLER or change.dry_run:
            return
        for sort in components:
            subject = dig(change.obj, "spec.subject") or ""
            if sort.label in (metadata(change.obj).get("labels") or {}) and subject.startswith(sort.subject_prefix):
                secret = _secret(change, sort, subject.removeprefix(sort.subject_prefix), namespace)
                change.also.append(await registry.resource("", "secrets").draft(secret, by_the_server()))

    return rule


def _secret(change: Change, sort: Component, name: str, namespace: str) -> Object:
    meta = metadata(change.obj)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": sort.key_secret(name),
            "namespace": namespace,
            "labels": {sort.label: sort.label_value(name)},
            "annotations": {KEY_ANNOTATION: meta["name"]},
            "ownerReferences": meta.get("ownerReferences") or [],
        },
        "type": sort.secret_type,
        "data": {"accessKey": b64encode(change.once[VALUE].encode()).decode()},
    }
