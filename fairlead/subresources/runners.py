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
from fairlead.kinds.clusters.runner import RUNNER
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest


def runner_handlers(
    api_group: str,
    registry: Registry,
    keys: ComponentKeys,
    token_keys: Callable[[], Awaitable[Sequence[Object]]],
    config_fields: Callable[[], Mapping[str, str]],
) -> dict[ActionPath, ActionHandler]:
    """`token_keys` returns the public keys of direct tokens as JWKs; `config_fields` the rest of a RunnerConfig."""
    runners = registry.resource(api_group, RUNNER.plural)

    async def access_key(request: ActionRequest) -> Object:
        return request.build_response(accessKey=await keys.get_or_create(request.name))

    async def rotate(request: ActionRequest) -> Object:
        if request.dry_run:
            raise BadRequest("dryRun is not supported: it would return a key that does not work; omit it")
        sent = {"spec": request.body["spec"]} if "spec" in request.body else {}
        return request.build_response(**sent, accessKey=await keys.rotate(request.name, request.body))

    async def configuration(request: ActionRequest) -> Object:
        await runners.get("", request.name)  # raises NotFound
        return request.build_response(tokenCaCert=_encode_pem(await token_keys()), **config_fields())

    return {
        (api_group, RUNNER.plural, "accesskey"): access_key,
        (api_group, RUNNER.plural, "config"): configuration,
        (api_group, RUNNER.plural, "rotatekey"): rotate,
    }


def _encode_pem(keys: Sequence[Object]) -> str:
    """The public keys as concatenated PEM blocks; empty if there are none."""

    def pem(key: Object) -> str:
        public: Any = PyJWK(key).key
        return str(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())

    return "".join(map(pem, keys))
