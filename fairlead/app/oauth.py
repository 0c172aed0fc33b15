"""Builds the OAuth endpoints below `/auth`: logins of the command line, and tokens of workloads."""

from collections.abc import Mapping

from fairlead.app.auth import Auth
from fairlead.authn.cli_grants import CliLogins, Lifetimes
from fairlead.authn.cli_grants_device import DeviceRequests
from fairlead.core.call import Handler
from fairlead.registry.registry import Registry
from fairlead.server.auth.login import LoginHandlers
from fairlead.server.auth.oauth import TOKEN_ENDPOINT, Grant, TokenEndpoint
from fairlead.server.auth.oauth_cli import CliLoginHandlers
from fairlead.server.auth.oauth_device import DeviceLoginHandlers
from fairlead.settings import Settings
from fairlead.storage.contract import Store


class OAuthServices:
    """The endpoints and their grant types. `login` has the login sessions, and the throttle that wrong codes share."""

    def __init__(
        self, settings: Settings, registry: Registry, auth: Auth, login: LoginHandlers, store: Store, base_url: str
    ) -> None:
        group, clock = settings.api_group, registry.clock
        lifetimes = Lifetimes(auth.dynamic_config.login_key_ttl, settings.cli_key_ttl)
        users = auth.access_keys.user_of_key
        self.logins = CliLogins(registry, login.sessions, auth.pepper, lifetimes, users, group)
        self._handlers = CliLoginHandlers(self.logins, auth.access_keys)
        requests = DeviceRequests(store, registry.view, group, self.logins.values, clock)
        self._devices = DeviceLoginHandlers(self.logins, requests, login.throttle, clock, base_url)
        self.grants: dict[str, Grant] = {**self._handlers.grants(), **self._devices.grants()}

    def endpoints(self) -> Mapping[tuple[str, str], Handler]:
        """Handlers by verb and path below the platform root."""
        token = {TOKEN_ENDPOINT: TokenEndpoint(self.grants)}
        return {**token, **self._handlers.endpoints(), **self._devices.endpoints()}
