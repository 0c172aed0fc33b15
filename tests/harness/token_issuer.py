"""A registry with users and an issuer of direct tokens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fairlead.authn.direct_tokens import AUDIENCE, SCOPED_AUDIENCE, Claims, verify
from fairlead.authn.signing_keys import SigningKeyStore
from fairlead.authn.token_issuer import (
    DelegationChecks,
    DirectTokenIssuer,
    IssuedToken,
    IssuerConfig,
    Lifetimes,
)
from fairlead.authz.scope import is_superset
from fairlead.core.user import User
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from tests.harness.auth import AuthFixture, open_auth
from tests.harness.registry import NAMESPACE as SYSTEM

ISSUER = "https://fairlead.example.com"


@dataclass
class TokenIssuerFixture:
    auth: AuthFixture
    keys: SigningKeyStore
    issuer: DirectTokenIssuer
    lifetimes: Lifetimes = field(default_factory=Lifetimes)

    async def issue(self, user: User, **spec: Any) -> IssuedToken:
        token = await self.issuer.issue(user, spec)
        assert token is not None
        return token

    async def claims(self, user: User, **spec: Any) -> Claims:
        """The claims of a new token for the user, as read by a verifier that enforces scopes."""
        token = await self.issue(user, **spec)
        jwks = {"keys": await self.keys.jwks()}
        audience = (AUDIENCE, SCOPED_AUDIENCE)
        return verify(token.value, jwks, issuer=ISSUER, audience=audience, now=self.auth.api.clock.now())


@asynccontextmanager
async def open_token_issuer() -> AsyncIterator[TokenIssuerFixture]:
    async with open_auth() as auth:
        keys = SigningKeyStore(auth.registry, SYSTEM)
        config = IssuerConfig(ISSUER, lambda: fixture.lifetimes)
        issuer = DirectTokenIssuer(auth.registry, GROUP, keys, config, DelegationChecks(is_superset, auth.permissions))
        fixture = TokenIssuerFixture(auth, keys, issuer)
        yield fixture
