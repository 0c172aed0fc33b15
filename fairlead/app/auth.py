"""Builds the authenticators and the authorizers, in order, on top of the view."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.app.dynamic_config import RunTime
from fairlead.authn import Authenticator
from fairlead.authn.access_keys import ACCESS_KEYS, AccessKeys, Pepper
from fairlead.authn.bootstrap import PEPPER, PEPPER_VARIABLE, load_pepper
from fairlead.authn.credentials import CookieKeys
from fairlead.authn.last_used import Activity
from fairlead.authn.principals import TEAMS, USERS, AdminNames, People
from fairlead.authz import Decision, administrators
from fairlead.authz.authorizer import Permissions
from fairlead.authz.component_access import Agents, Runners
from fairlead.authz.gateway_access import entrances
from fairlead.authz.ownership import Sharing
from fairlead.authz.project_members import PROJECTS, Members
from fairlead.authz.rbac import Rbac
from fairlead.authz.scope import ScopeNames, allowing_entry, scoping
from fairlead.authz.self_access import Oneself
from fairlead.core.call import MANAGEMENT, Target
from fairlead.core.clock import Clock
from fairlead.core.user import User
from fairlead.kinds.core.service_account import SERVICE_ACCOUNT
from fairlead.registry.catalog import Catalog
from fairlead.registry.informer import Following
from fairlead.settings import Settings
from fairlead.storage import fingerprints
from fairlead.storage.view.view import View

PEPPER_FILE = "pepper.key"


@dataclass(frozen=True, slots=True)
class Identity:
    """Authentication and authorization. Built before the registry, because admission rules depend on it."""

    pepper: Pepper
    people: People
    keys: AccessKeys
    activity: Activity
    rbac: Rbac
    members: Members
    permissions: Permissions
    is_administrator: AdminNames
    allowing_entry: Callable[[User, Target], str]
    authenticators: Sequence[Authenticator]
    run_time: RunTime
    sharing: Sharing

    def may(self, user: User, target: Target) -> Decision:
        """For admission rules: decides as if the user had sent this request to the management API."""
        return self.permissions.decide(user, replace(target, root=MANAGEMENT))

    def inside(self, user: User, target: Target) -> bool:
        """Whether the scope of the user's access key covers such a request, regardless of the user's permissions."""
        return self.permissions.is_inside(user, replace(target, root=MANAGEMENT))


def identity(settings: Settings, catalog: Catalog, view: View, clock: Clock) -> Identity:
    group = settings.api_group

    def informer(plural: str) -> Following:
        return Following(view, group, plural)

    pepper = _pepper(settings.data / PEPPER_FILE, view, group)
    accounts = Following(view, SERVICE_ACCOUNT.group, SERVICE_ACCOUNT.plural)
    principals, last_used = People(informer(USERS), informer(TEAMS), accounts), Activity(clock)
    keys = AccessKeys(informer(ACCESS_KEYS), principals, pepper, clock, last_used.last_use)
    rbac = Rbac.over(view)
    projects = informer(PROJECTS)
    members = Members(projects, group, settings.namespace_prefix, rbac.role_allows)
    names = ScopeNames.of(catalog, group, settings.namespace_prefix)

    def authorize(user: User, target: Target) -> Decision:
        return authorizer.decide(user, target)

    ownership = Sharing(catalog, view)
    authorizer = Permissions(
        general=(entrances(authorize), administrators, rbac),
        personal=(members, Oneself(group, view), Runners(group, view), Agents(group, view), ownership),
        scoping=scoping(names),
        generations=(rbac.generation, principals.generation, projects.refresh),
    )
    authorizer.generation()  # builds the RBAC state now rather than in the first request
    authenticators = (keys, CookieKeys(keys, settings.public_url))
    entry = allowing_entry(names)
    admin_users = AdminNames(group, view)
    dynamic_config = RunTime(settings, view)
    return Identity(
        *(pepper, principals, keys, last_used, rbac, members, authorizer, admin_users, entry, authenticators),
        *(dynamic_config, ownership),
    )


def _pepper(path: Path, view: View, group: str) -> Pepper:
    is_required = bool(view.count(group, ACCESS_KEYS)) or view.get(fingerprints.key_of(PEPPER)) is not None
    return load_pepper(path, keys_exist=is_required, variable=os.environ.get(PEPPER_VARIABLE, ""))
