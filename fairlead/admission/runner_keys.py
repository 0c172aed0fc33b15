"""The value of a runner's key is kept, sealed, in a Secret that comes with the key in one commit.

Of all keys only the digest is stored. A runner's key must come back when it is asked for, so it is the one exception.
Comes after minting, which makes the value; `authn/runner_keys.py` makes the keys and reads the Secrets.
"""

from base64 import b64encode

from fairlead.admission.chain import Rule
from fairlead.core.objects import metadata
from fairlead.core.user import CONTROLLER
from fairlead.kinds.accesskey import OWNED_ACCESS_KEY
from fairlead.kinds.runner import KEY_ANNOTATION, RUNNER_LABEL, key_secret
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry
from fairlead.registry.writing import by_the_server

VALUE = "spec.key"
SECRET_TYPE = "service.sh/runner-key"


def runner_keys(api_group: str, namespace: str) -> Rule:
    """The rule. `namespace` is where the Secrets are."""

    async def rule(change: Change, registry: Registry) -> None:
        if (change.kind.group, change.kind.plural) != (api_group, OWNED_ACCESS_KEY.plural):
            return
        if change.verb != "create" or change.user != CONTROLLER or change.dry_run:
            return
        meta = metadata(change.obj)
        runner = (meta.get("labels") or {}).get(RUNNER_LABEL)
        if not runner:
            return
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": key_secret(runner),
                "namespace": namespace,
                "labels": {RUNNER_LABEL: runner},
                "annotations": {KEY_ANNOTATION: meta["name"]},
                "ownerReferences": meta.get("ownerReferences") or [],
            },
            "type": SECRET_TYPE,
            "data": {"accessKey": b64encode(change.once[VALUE].encode()).decode()},
        }
        change.also.append(await registry.resource("", "secrets").draft(secret, by_the_server()))

    return rule
