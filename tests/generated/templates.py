"""Request templates: generated from a seed and a number, and sent by each identity with its own key.

They are the requests of `tests/requests`, some of them redirected to the project, the vault or gateways, or enlarged.
"""

from dataclasses import dataclass, replace
from random import Random

from tests.generated.identities import ADMIN_NAMESPACES, KEY, PROJECT, PROJECT_NAMESPACE, VAULT, Identity
from tests.requests import generator, headers
from tests.requests.api_resources import ApiCatalog
from tests.requests.large_bodies import LARGE_REQUESTS
from tests.requests.raw_http import RawRequest

generator.NAME_COUNT = 30  # so that a million requests do not create a million objects

READ_METHODS = ("GET", "HEAD", "OPTIONS")
ORDINARY_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_GATEWAYS = (
    *("/kubernetes/cluster/a", "/kubernetes/cluster/gen-component", "/kubernetes/cluster/nowhere"),
    *(f"/kubernetes/project/{PROJECT}/{part}/a" for part in ("space", "virtualcluster")),
    f"/kubernetes/project/{VAULT}/space/{VAULT}",
)
_GATEWAY_PATHS = (
    *("", "/", "/api", "/apis", "/version", "/api/v1/pods", "/api/v1/namespaces/x/secrets", "/..", "/%2e%2e/secrets"),
    *("/api/v1/namespaces/x/pods/y/exec?command=sh", "/api/v1/namespaces/x/services/y/proxy/"),
)
_OTHER_PATHS = ("/auth/methods", "/auth/password/login", "/auth/logout", "/openid/v1/jwks", "/healthz", "/metrics")
LARGE = 2_500_000


@dataclass(frozen=True, slots=True)
class Template:
    number: int
    request: RawRequest
    at_vault: bool

    @property
    def can_use_http2(self) -> bool:
        """Whether an ordinary client can send it over HTTP/2."""
        request = self.request
        texts = (request.path, *request.query, *(text for field in request.headers for text in field))
        is_plain = all(text.isascii() and text.isprintable() for text in texts)
        return is_plain and request.method in ORDINARY_METHODS and request.path.startswith("/") and not request.chunked

    @property
    def _changes_permissions(self) -> bool:
        return self.at_vault or "rbac.authorization" in self.request.path

    def build_request(self, identity: Identity) -> RawRequest | None:
        """The request of one identity. The administrator changes neither the vault nor permissions."""
        request = self.request
        if identity.name == "admin" and request.method not in READ_METHODS and self._changes_permissions:
            return None
        if identity.key:
            fields = tuple((name, value.replace(KEY, identity.key)) for name, value in request.headers)
        else:
            fields = tuple((name, value) for name, value in request.headers if KEY not in value)
        return replace(request, headers=fields)


def build_template(seed: str, number: int, catalog: ApiCatalog) -> Template:
    random = Random(f"generated/{seed}/{number}")
    chance = random.random()
    if chance < 0.08:
        return Template(number, _build_other_request(random), False)
    request = generator.build_request(seed, number, catalog)
    if chance < 0.35:
        return Template(number, _move_to_namespace(request, PROJECT_NAMESPACE), False)
    if chance < 0.55:
        return Template(number, _move_to_vault(request), True)
    if chance < 0.5502:
        return Template(number, _build_large_request(random), False)
    if chance < 0.5505:
        request = replace(request, body=request.body + b" " * LARGE, chunked=random.random() < 0.5)
    return Template(number, request, VAULT in request.path)


def _build_large_request(random: Random) -> RawRequest:
    """A body of nearly the largest size. Most are rejected, at different stages."""
    large = LARGE_REQUESTS[random.choice(sorted(LARGE_REQUESTS))]()
    path, _, query = large.target.partition("?")
    fields = (headers.build_bearer_header(KEY), ("Content-Type", large.media_type))
    return RawRequest(large.method, path, (query,) if query else (), fields, large.body)


def _build_other_request(random: Random) -> RawRequest:
    """A request through a gateway, or to a login page."""
    path = random.choice((*(random.choice(_GATEWAYS) + gateway_path for gateway_path in _GATEWAY_PATHS), *_OTHER_PATHS))
    path, _, query = path.partition("?")
    body = random.choice((b"", b"{}", b'{"username":"gen-unprivileged","password":"x"}', b"x" * 1_000))
    fields = (headers.build_bearer_header(KEY), ("Content-Type", "application/json"))
    return RawRequest(random.choice(generator.METHODS), path, (query,) if query else (), fields, body)


def _move_to_namespace(request: RawRequest, namespace: str) -> RawRequest:
    path, body = request.path, request.body
    for admin_namespace in ADMIN_NAMESPACES:
        path, body = (
            path.replace(admin_namespace, namespace),
            body.replace(admin_namespace.encode(), namespace.encode()),
        )
    return replace(request, path=path, body=body)


def _move_to_vault(request: RawRequest) -> RawRequest:
    request_in_vault = _move_to_namespace(request, VAULT)
    segments = [VAULT if segment in ("a", "b", "fuzz-1") else segment for segment in request_in_vault.path.split("/")]
    return replace(request_in_vault, path="/".join(segments))
