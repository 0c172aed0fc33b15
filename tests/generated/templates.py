"""Requests without an asker: a seed and a number make one, and each identity sends it with its own key.

What `tests/security` generates, aimed at the project, at the vault or at gateways now and then, and large sometimes.
"""

from dataclasses import dataclass, replace
from random import Random

from tests.generated.identities import KEY, PROJECT, PROJECT_NAMESPACE, STORM, VAULT, Identity
from tests.security import fuzz_requests, headers
from tests.security.api_resources import World
from tests.security.raw_http import Ask

fuzz_requests.FRESH = 30  # so that a million requests do not make a million objects

READING = ("GET", "HEAD", "OPTIONS")
POLITE = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_ENTRANCES = (
    *("/kubernetes/cluster/a", "/kubernetes/cluster/gen-component", "/kubernetes/cluster/nowhere"),
    *(f"/kubernetes/project/{PROJECT}/{part}/a" for part in ("space", "virtualcluster")),
    f"/kubernetes/project/{VAULT}/space/{VAULT}",
)
_BEHIND = (
    *("", "/", "/api", "/apis", "/version", "/api/v1/pods", "/api/v1/namespaces/x/secrets", "/..", "/%2e%2e/secrets"),
    *("/api/v1/namespaces/x/pods/y/exec?command=sh", "/api/v1/namespaces/x/services/y/proxy/"),
)
_PLACES = ("/auth/methods", "/auth/password/login", "/auth/logout", "/openid/v1/jwks", "/healthz", "/metrics")
LARGE = 2_500_000


@dataclass(frozen=True, slots=True)
class Template:
    number: int
    ask: Ask
    at_vault: bool

    @property
    def is_polite(self) -> bool:
        """Whether an ordinary client can send it, so that it can go over HTTP/2."""
        ask = self.ask
        texts = (ask.path, *ask.query, *(text for field in ask.headers for text in field))
        plain = all(text.isascii() and text.isprintable() for text in texts)
        return plain and ask.method in POLITE and ask.path.startswith("/") and not ask.chunked

    @property
    def _is_about_rights(self) -> bool:
        return self.at_vault or "rbac.authorization" in self.ask.path

    def sent_by(self, identity: Identity) -> Ask | None:
        """The request of one identity. The administrator changes neither the vault nor anybody's rights."""
        ask = self.ask
        if identity.name == "admin" and ask.method not in READING and self._is_about_rights:
            return None
        if identity.key:
            fields = tuple((name, value.replace(KEY, identity.key)) for name, value in ask.headers)
        else:
            fields = tuple((name, value) for name, value in ask.headers if KEY not in value)
        return replace(ask, headers=fields)


def template(seed: str, number: int, world: World) -> Template:
    random = Random(f"generated/{seed}/{number}")
    chance = random.random()
    if chance < 0.08:
        return Template(number, _elsewhere(random), False)
    made = fuzz_requests.ask(seed, number, world)
    if chance < 0.35:
        return Template(number, _moved(made, PROJECT_NAMESPACE), False)
    if chance < 0.55:
        return Template(number, _at_vault(made), True)
    if chance < 0.5505:
        made = replace(made, body=made.body + b" " * LARGE, chunked=random.random() < 0.5)
    return Template(number, made, VAULT in made.path)


def _elsewhere(random: Random) -> Ask:
    """Through a gateway, or where people sign in."""
    path = random.choice((*(random.choice(_ENTRANCES) + behind for behind in _BEHIND), *_PLACES))
    path, _, query = path.partition("?")
    body = random.choice((b"", b"{}", b'{"username":"gen-nobody","password":"x"}', b"x" * 1_000))
    fields = (headers.bearer(KEY), ("Content-Type", "application/json"))
    return Ask(random.choice(fuzz_requests.METHODS), path, (query,) if query else (), fields, body)


def _moved(ask: Ask, namespace: str) -> Ask:
    path, body = ask.path, ask.body
    for storm in STORM:
        path, body = path.replace(storm, namespace), body.replace(storm.encode(), namespace.encode())
    return replace(ask, path=path, body=body)


def _at_vault(ask: Ask) -> Ask:
    moved = _moved(ask, VAULT)
    steps = [VAULT if step in ("a", "b", "storm-1") else step for step in moved.path.split("/")]
    return replace(moved, path="/".join(steps))
