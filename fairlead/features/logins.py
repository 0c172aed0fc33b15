"""Logins with a password or an access key, and of the command line. `single_sign_on.py` has those with a provider."""

from fairlead.admission import Phase
from fairlead.admission.users import protect_password_secret
from fairlead.features.contract import Feature, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.settings.values import ON
from fairlead.signin.cli_logins import CliLogins, Lifetimes
from fairlead.signin.device_requests import DeviceRequests
from fairlead.signin.key_login import KeyLoginHandlers
from fairlead.signin.login import LoginHandlers
from fairlead.signin.oauth_cli import CliLoginHandlers
from fairlead.signin.oauth_device import DeviceLoginHandlers
from fairlead.signin.passwords import PasswordStore
from fairlead.signin.profile import ProfileHandler


def build_passwords_feature(services: Services) -> Feature:
    settings = services.settings
    auth = services.auth
    group = services.api_group
    passwords = PasswordStore(services.registry, group, services.password_hasher, services.logins)
    login = LoginHandlers(
        passwords=passwords,
        sessions=services.logins,
        throttle=services.throttle,
        is_enabled=auth.dynamic_config.is_password_login_enabled,
        public_url=settings.public_url,
        cli_login=settings.console == ON,
        sign_on=services.sign_on,
    )
    key_login = KeyLoginHandlers(
        keys=auth.access_keys,
        sessions=services.logins,
        passwords=passwords,
        throttle=services.throttle,
        is_password_enabled=auth.dynamic_config.is_password_login_enabled,
        public_url=settings.public_url,
    )
    profiles = ProfileHandler(
        registry=services.registry,
        api_group=group,
        passwords=passwords,
        throttle=services.throttle,
        authorize=auth.authorize,
        is_admin_user=auth.is_admin_user,
    )
    return Feature(
        name="passwords",
        handlers={(group, "users", "profile"): profiles},
        endpoints=login.endpoints(),
        public_endpoints={**login.public_endpoints(), **key_login.public_endpoints()},
        admission={
            Phase.AUTHORIZE: (protect_password_secret(auth.authorize, auth.is_admin_user, SYSTEM_NAMESPACE),),
        },
    )


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
        public_endpoints={**browser.public_endpoints(), **device.public_endpoints()},
        grants={**browser.grants(), **device.grants()},
    )
