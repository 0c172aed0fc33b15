"""Who people are and what they may do, put together from what the view shows: authenticators, authorizers in order."""

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
    """Everything that knows about people. Made before the registry stands, because its rules ask here."""

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
        """What admission rules ask: the same as if the user had sent such a request."""
        return self.permissions.decide(user, replace(target, root=MANAGEMENT))

    def inside(self, user: User, target: Target) -> bool:
        """Of this, what the scope of the user's key says: whether it leaves such a request to the user's rights."""
        return self.permissions.is_inside(user, replace(target, root=MANAGEMENT))


def identity(settings: Settings, catalog: Catalog, view: View, clock: Clock) -> Identity:
    group = settings.api_group

    def following(plural: str) -> Following:
        return Following(view, group, plural)

    pepper = _pepper(settings.data / PEPPER_FILE, view, group)
    accounts = Following(view, SERVICE_ACCOUNT.group, SERVICE_ACCOUNT.plural)
    people, activity = People(following(USERS), following(TEAMS), accounts), Activity(clock)
    keys = AccessKeys(following(ACCESS_KEYS), people, pepper, clock, activity.last_use)
    rbac = Rbac.over(view)
    projects = following(PROJECTS)
    members = Members(projects, group, settings.namespace_prefix, rbac.role_allows)
    names = ScopeNames.of(catalog, group, settings.namespace_prefix)

    def decide(user: User, target: Target) -> Decision:
        return permissions.decide(user, target)

    sharing = Sharing(catalog, view)
    permissions = Permissions(
        general=(entrances(decide), administrators, rbac),
        personal=(members, Oneself(group, view), Runners(group, view), Agents(group, view), sharing),
        scoping=scoping(names),
        generations=(rbac.generation, people.generation, projects.refresh),
    )
    permissions.generation()  # reads all there is of it now, so that nobody's first request has to wait for that
    authenticators = (keys, CookieKeys(keys, settings.public_url))
    entry = allowing_entry(names)
    names_of_admins = AdminNames(group, view)
    run_time = RunTime(settings, view)
    return Identity(
        *(pepper, people, keys, activity, rbac, members, permissions, names_of_admins, entry, authenticators),
        *(run_time, sharing),
    )


def _pepper(path: Path, view: View, group: str) -> Pepper:
    needed = bool(view.count(group, ACCESS_KEYS)) or view.get(fingerprints.key_of(PEPPER)) is not None
    return load_pepper(path, keys_exist=needed, variable=os.environ.get(PEPPER_VARIABLE, ""))
