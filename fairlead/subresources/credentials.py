"""Credentials: access keys of users and teams, service account tokens, direct tokens, and OpenID Connect discovery.

`users|teams/<name>/accesskeys` lists the keys of one owner; `ownedaccesskeys/<name>/rotate` replaces the value of one.
Lists support selectors and paging, and never contain the values of keys.

`serviceaccounts/<name>/token`, which `kubectl create token` uses, issues a service account token
(`authn/service_accounts.py`). `POST directclusterendpointtokens` issues a direct token (`authn/token_issuer.py`), `POST
tokenkeyrotations` rotates the key that signs these. Each token is logged with its id or the name of its access key, and
the request is audited like every request that returns a credential. Neither log contains the token.

OpenID Connect discovery is for the issuer of direct tokens: the configuration document and the JWKS. Both are public
and below the platform root; `server/api/routing.py` calls the handlers by verb and path. A kube-apiserver with the base
URL as its `--oidc-issuer-url` finds everything else here.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import orjson
import structlog

from fairlead.authn.access_keys import ACCESS_KEYS
from fairlead.authn.key_rotation import KeyRotator
from fairlead.authn.principals import TEAMS, USERS
from fairlead.authn.service_accounts import ServiceAccountTokenIssuer
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import DirectTokenIssuer
from fairlead.core.call import Call, Handler, Reply
from fairlead.core.clock import timestamp
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object, metadata
from fairlead.registry.list import encode_list, list_entries
from fairlead.registry.registry import Registry
from fairlead.registry.selectors import Requirement
from fairlead.server.api import query_options
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest

SUBRESOURCE = "accesskeys"
ROTATE = "rotate"
OWNER_FIELDS = {USERS: "spec.user", TEAMS: "spec.team"}
"""The resources that own keys, and the field of a key with the owner's name."""
TOKEN_PATH: ActionPath = ("", "serviceaccounts", "token")
TOKENS = "directclusterendpointtokens"
ROTATIONS = "tokenkeyrotations"
CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"
CACHE_CONTROL = "public, max-age=60"
"""Short: verifiers fetch the keys again when they see an unknown key, and must not get a stale response for long."""

log = structlog.get_logger(__name__)


def key_list_handlers(api_group: str, registry: Registry) -> dict[ActionPath, ActionHandler]:
    return {
        (api_group, plural, SUBRESOURCE): _list_keys_handler(registry, api_group, plural) for plural in OWNER_FIELDS
    }


def _list_keys_handler(registry: Registry, api_group: str, plural: str) -> ActionHandler:
    owners = registry.resource(api_group, plural)
    keys = registry.resource(api_group, ACCESS_KEYS)

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


def service_account_handlers(tokens: ServiceAccountTokenIssuer) -> dict[ActionPath, ActionHandler]:
    async def create(request: ActionRequest) -> Object:
        """Issues a token. With dryRun, the response has everything but the token."""
        issued = await tokens.issue(
            request.user, request.namespace, request.name, request.body, dry_run=request.dry_run
        )
        if issued.seconds < issued.requested_seconds:
            request.call.warnings.append(
                f"requested expiration of {issued.requested_seconds} seconds shortened to {issued.seconds} seconds"
            )
        status: Object = {"expirationTimestamp": timestamp(issued.expires_at)}
        if issued.value:
            status = {"token": issued.value, **status}
            log.info(
                "a service account token was issued",
                namespace=request.namespace,
                name=request.name,
                access_key=issued.key,
                user=request.user.name,
                seconds=issued.seconds,
                audit_id=request.call.audit_id,
            )
        account = metadata(issued.account)
        account_meta = {name: account[name] for name in ("name", "namespace", "uid")}
        spec = {"audiences": [tokens.audience], "expirationSeconds": issued.seconds, "boundObjectRef": None}
        return {
            **request.body,
            "metadata": {**metadata(request.body), **account_meta, "creationTimestamp": timestamp(issued.issued_at)},
            "spec": spec,
            "status": status,
        }

    return {TOKEN_PATH: create}


class DirectTokenHandlers:
    """The handlers of both resources."""

    def __init__(self, issuer: DirectTokenIssuer, keys: SigningKeyStore) -> None:
        self._issuer = issuer
        self._keys = keys

    def handlers(self, api_group: str) -> dict[ActionPath, ActionHandler]:
        return {(api_group, TOKENS, ""): self.create, (api_group, ROTATIONS, ""): self.rotate}

    async def create(self, request: ActionRequest) -> Object:
        """Issues a token. With dryRun, only checks whether it would be issued."""
        spec = request.body.get("spec") or {}
        issued = await self._issuer.issue(request.user, spec, dry_run=request.dry_run)
        if issued is None:
            return request.body
        metadata(request.body)["creationTimestamp"] = timestamp(issued.issued_at)
        log.info(
            "a direct token was issued",
            id=issued.id,
            user=request.user.name,
            access_key=(request.user.impersonator or request.user).key,
            ttl=issued.ttl,
            audit_id=request.call.audit_id,
        )
        return {**request.body, "spec": {**spec, "ttl": issued.ttl}, "status": {"token": issued.value}}

    async def rotate(self, request: ActionRequest) -> Object:
        if request.dry_run:
            raise BadRequest("dryRun is not supported: it would return the id of a key that does not exist; omit it")
        keys = await self._keys.rotate(self._issuer.max_ttl)
        status = {"keyID": keys.active.id}
        if keys.retired:
            status["retiredUntil"] = timestamp(datetime.fromtimestamp(keys.retired[0].until, UTC))
        return {**request.body, "status": status}


@dataclass(frozen=True, slots=True)
class OidcDiscovery:
    """The handlers. `url` is the base URL, `keys` returns the public keys as JWKs."""

    issuer_url: str
    public_keys: Callable[[], Awaitable[list[Object]]]

    def public_endpoints(self) -> Mapping[tuple[str, str], Handler]:
        """Handlers by verb and path below the platform root."""
        return {("get", CONFIGURATION_PATH): self.get_configuration, ("get", KEYS_PATH): self.get_jwks}

    async def get_configuration(self, call: Call) -> Reply:
        return _json_reply(
            {
                "issuer": self.issuer_url,
                "jwks_uri": self.issuer_url + KEYS_PATH,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            },
            "application/json",
        )

    async def get_jwks(self, call: Call) -> Reply:
        return _json_reply({"keys": await self.public_keys()}, "application/jwk-set+json")


def _json_reply(value: Object, content_type: str) -> Reply:
    return Reply(200, orjson.dumps(value), content_type, [("cache-control", CACHE_CONTROL)], cacheable=True)
