"""Passwords: login and logout, the list of login methods, and the profile in which users change their password."""

from fairlead.admission import Phase
from fairlead.admission.users import protect_password_secret
from fairlead.authn.password_store import PasswordStore
from fairlead.features.contract import Feature, Services
from fairlead.kinds.core.namespace import SYSTEM_NAMESPACE
from fairlead.server.auth.login import LoginHandlers
from fairlead.settings.values import ON
from fairlead.subresources.profile import ProfileHandler


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
        admission={
            Phase.AUTHORIZE: (protect_password_secret(auth.authorize, auth.is_admin_user, SYSTEM_NAMESPACE),),
        },
    )
