"""The subresources of a runner: `accesskey`, `rotatekey`, and `config`, which describes this server to the runner.

`authn/component_keys.py` stores the keys.
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
    """`token_keys` returns the public keys of direct tokens as JWKs; `config_fields` is the rest of a RunnerConfig."""
    runners = registry.resource(api_group, RUNNERS)

    async def access_key(request: Asked) -> Object:
        return _answer(request, accessKey=await keys.of(request.name))

    async def rotate(request: Asked) -> Object:
        if request.dry_run:
            raise BadRequest("dryRun is not supported: it would return a key that does not work; omit it")
        sent = {"spec": request.body["spec"]} if "spec" in request.body else {}
        return _answer(request, **sent, accessKey=await keys.rotated(request.name, request.body))

    async def configuration(request: Asked) -> Object:
        await runners.get("", request.name)  # raises NotFound
        return _answer(request, tokenCaCert=_as_pem(await token_keys()), **facts)

    return {
        (api_group, RUNNERS, "accesskey"): access_key,
        (api_group, RUNNERS, "config"): configuration,
        (api_group, RUNNERS, "rotatekey"): rotate,
    }


def _answer(asked: Asked, **fields: object) -> Object:
    kind = asked.kind
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {"creationTimestamp": None}, **fields}


def _as_pem(keys: Sequence[Object]) -> str:
    """The public keys as concatenated PEM blocks; empty if there are none."""

    def pem(key: Object) -> str:
        public: Any = PyJWK(key).key
        return str(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())

    return "".join(map(pem, keys))
