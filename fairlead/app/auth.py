"""Builds the authenticators and the authorizers, in order, on top of the view."""

import os
from collections.abc import Sequence
from pathlib import Path

from fairlead.app.host_cluster import HostAuthentication
from fairlead.app.tls_ports import request_header_config
from fairlead.authn import Authenticator
from fairlead.authn.access_keys import ACCESS_KEYS, AccessKeyAuthenticator, Pepper
from fairlead.authn.bootstrap import PEPPER_FINGERPRINT, PEPPER_VARIABLE, OtherAdminAccess, load_pepper
from fairlead.authn.client_certificates import ClientCertificateAuthenticator
from fairlead.authn.credentials import CookieAuthenticator
from fairlead.authn.last_used import LastUsedTracker
from fairlead.authn.principals import TEAMS, USERS, AdminUserCheck, PrincipalDirectory
from fairlead.authn.request_headers import RequestHeaderAuthenticator
from fairlead.authn.sign_on_policy import SignOnPolicy
from fairlead.authz.authorizer import AuthorizerChain, administrators, gateway_authorizer
from fairlead.authz.component_access import AgentAuthorizer, RunnerAuthorizer
from fairlead.authz.ownership import OwnerAuthorizer
from fairlead.authz.port_access import PortAccess, PortAccessAuthorizer
from fairlead.authz.project_members import PROJECTS, ProjectMemberAuthorizer
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.authz.scope import ScopeNaming, build_scope_checks, matching_entry
from fairlead.authz.secret_access import find_principal
from fairlead.authz.self_access import SelfAuthorizer
from fairlead.core.call import Decision, RequestInfo
from fairlead.core.clock import Clock
from fairlead.core.user import User
from fairlead.domain.cluster_identity import ClusterIdentityMapper
from fairlead.features.auth import Auth
from fairlead.features.dynamic_config import DynamicConfig
from fairlead.kinds.core.service_account import SERVICE_ACCOUNT
from fairlead.registry.informer import Derived, Informer
from fairlead.registry.kind import Catalog
from fairlead.server.auth.impersonation import Impersonation, new_impersonation_cache
from fairlead.server.auth.stages import build_identify
from fairlead.settings import Settings
from fairlead.storage import fingerprints
from fairlead.storage.view.view import View

PEPPER_FILE = "pepper.key"


def build_auth(
    settings: Settings, catalog: Catalog, view: View, clock: Clock, host: HostAuthentication | None = None
) -> Auth:
    """`host` says how front proxies name users, if that comes from a kube-apiserver."""
    group = settings.api_group

    def informer(plural: str) -> Informer:
        return Informer(view, group, plural)

    pepper = _load_pepper(settings.data / PEPPER_FILE, view, group)
    accounts = Informer(view, SERVICE_ACCOUNT.group, SERVICE_ACCOUNT.plural)
    sign_on = SignOnPolicy(view, group)
    last_used = LastUsedTracker(clock)
    principals = PrincipalDirectory(informer(USERS), informer(TEAMS), accounts, sign_on)
    keys = AccessKeyAuthenticator(informer(ACCESS_KEYS), principals, pepper, clock, last_used.last_use)
    rbac = RbacAuthorizer.from_view(view)
    projects = informer(PROJECTS)
    members = ProjectMemberAuthorizer(projects, group, settings.namespace_prefix, rbac.role_allows)
    names = ScopeNaming.from_catalog(catalog, group, settings.namespace_prefix)

    def authorize(user: User, target: RequestInfo) -> Decision:
        return authorizer.authorize(user, target)

    ownership = OwnerAuthorizer(catalog, view)
    ports = PortAccess(
        api_group=group,
        view=view,
        clock=clock,
        authorize=authorize,
        is_member=members.is_member,
        find_principal=lambda name: find_principal(name, principals.find_user),
    )
    authorizer = AuthorizerChain(
        general=(gateway_authorizer(authorize), administrators, rbac),
        object_authorizers=(
            members,
            SelfAuthorizer(group, view),
            RunnerAuthorizer(group, view),
            AgentAuthorizer(group, view),
            ownership,
            PortAccessAuthorizer(ports),
        ),
        scope_checks=build_scope_checks(names),
        generations=(rbac.generation, principals.generation, projects.refresh),
    )
    authorizer.generation()  # builds the RBAC state now rather than in the first request
    certificates = _build_certificate_authenticators(settings, principals, clock, host)
    authenticators: Sequence[Authenticator] = (*certificates, keys, CookieAuthenticator(keys, settings.public_url))
    entry = matching_entry(names)
    admin_users = AdminUserCheck(group, view, sign_on)
    dynamic_config = DynamicConfig(settings, view)
    impersonated = Derived(view, (authorizer.generation,), new_impersonation_cache)
    impersonation = Impersonation(authorizer.authorize, principals.find_user, admin_users, impersonated.get)
    return Auth(
        pepper=pepper,
        principals=principals,
        access_keys=keys,
        last_used=last_used,
        rbac=rbac,
        project_members=members,
        authorizer=authorizer,
        is_admin_user=admin_users,
        matching_entry=entry,
        authenticators=authenticators,
        dynamic_config=dynamic_config,
        ownership=ownership,
        port_access=ports,
        sign_on=sign_on,
        other_admin_access=OtherAdminAccess(view, group, principals, dynamic_config.is_password_login_enabled),
        identify=build_identify(authenticators, impersonation, ClusterIdentityMapper(settings.identity_prefix)),
    )


def _build_certificate_authenticators(
    settings: Settings, principals: PrincipalDirectory, clock: Clock, host: HostAuthentication | None
) -> list[Authenticator]:
    """Those for the ports with client certificates. They come first: there, access keys and cookies do not count."""
    config = request_header_config(settings)
    url = settings.public_url
    found = list[Authenticator]()
    if config is not None or host is not None:
        source = host.config if host is not None else lambda: config
        found.append(RequestHeaderAuthenticator(source, principals, clock, url))
    if settings.client_ca is not None:
        found.append(ClientCertificateAuthenticator(principals, clock, url))
    return found


def _load_pepper(path: Path, view: View, group: str) -> Pepper:
    is_required = (
        bool(view.count(group, ACCESS_KEYS)) or view.get(fingerprints.fingerprint_key(PEPPER_FINGERPRINT)) is not None
    )
    return load_pepper(path, keys_exist=is_required, variable=os.environ.get(PEPPER_VARIABLE, ""))
