"""What stands below a runner's path: its key, a new one, and what it needs to know of this server.

`server/api/actions.py` calls these; `authn/component_keys.py` has the keys.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWK

from fairlead.authn.component_keys import ComponentKeys
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import Asked, Handler, Place

RUNNERS = "runners"


def runner_handlers(
    api_group: str,
    registry: Registry,
    keys: ComponentKeys,
    token_keys: Callable[[], Awaitable[Sequence[Object]]],
    facts: Mapping[str, str],
) -> dict[Place, Handler]:
    """`token_keys` are the public keys of direct tokens as a JWKS lists them, `facts` the rest of a RunnerConfig."""
    runners = registry.resource(api_group, RUNNERS)

    async def access_key(asked: Asked) -> Object:
        return _answer(asked, accessKey=await keys.of(asked.name))

    async def rotate(asked: Asked) -> Object:
        if asked.dry_run:
            raise BadRequest("a rotation cannot be rehearsed: it would show a key that does not work; leave out dryRun")
        sent = {"spec": asked.body["spec"]} if "spec" in asked.body else {}
        return _answer(asked, **sent, accessKey=await keys.rotated(asked.name, asked.body))

    async def configuration(asked: Asked) -> Object:
        await runners.get("", asked.name)  # no such runner is another answer
        return _answer(asked, tokenCaCert=_as_pem(await token_keys()), **facts)

    return {
        (api_group, RUNNERS, "accesskey"): access_key,
        (api_group, RUNNERS, "config"): configuration,
        (api_group, RUNNERS, "rotatekey"): rotate,
    }


def _answer(asked: Asked, **fields: object) -> Object:
    kind = asked.kind
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"creationTimestamp": None}, **fields}


def _as_pem(keys: Sequence[Object]) -> str:
    """Public keys in the form that is read everywhere, one after the other; empty while there are none."""

    def pem(key: Object) -> str:
        public: Any = PyJWK(key).key
        return str(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())

    return "".join(map(pem, keys))
