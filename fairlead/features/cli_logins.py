"""Logins of the command line: OAuth with a browser, or with a code that is entered on another device."""

from fairlead.authn.cli_grants import CliLogins, Lifetimes
from fairlead.authn.cli_grants_device import DeviceRequests
from fairlead.features.contract import Feature, Services
from fairlead.server.auth.oauth_cli import CliLoginHandlers
from fairlead.server.auth.oauth_device import DeviceLoginHandlers


def build_cli_logins_feature(services: Services) -> Feature:
    auth = services.auth
    registry = services.registry
    group = services.api_group
    logins = CliLogins(
        registry=registry,
        sessions=services.logins,
        pepper=auth.pepper,
        lifetimes=Lifetimes(auth.dynamic_config.login_key_ttl, services.settings.cli_key_ttl),
        user_of_key=auth.access_keys.user_of_key,
        api_group=group,
    )
    browser = CliLoginHandlers(logins, auth.access_keys)
    requests = DeviceRequests(services.store, registry.view, group, logins.values, registry.clock)
    device = DeviceLoginHandlers(logins, requests, services.throttle, registry.clock, services.base_url)
    return Feature(
        name="logins of the command line",
        endpoints={**browser.endpoints(), **device.endpoints()},
        grants={**browser.grants(), **device.grants()},
    )
