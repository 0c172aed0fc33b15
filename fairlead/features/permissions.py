"""Users and teams, what they may do, and which permissions they may give to others."""

from fairlead.admission import Phase
from fairlead.admission.escalation import GrantChecks, ResourceNaming, check_grants, prevent_escalation
from fairlead.admission.users import check_users_and_teams
from fairlead.authz.name_index import owns
from fairlead.controllers.access.team_membership import TeamMembershipController
from fairlead.controllers.core.role_aggregation import RoleAggregationController
from fairlead.features.contract import Feature, Services
from fairlead.subresources.access_reviews import ResourceAccess, ReviewSources, review_handlers
from fairlead.subresources.resource_counts import ResourceCounter
from fairlead.subresources.whoami import InstallationInfo, TokenReviewer, WhoAmI, whoami_handlers


def build_users_feature(services: Services) -> Feature:
    auth = services.auth
    group = services.api_group
    return Feature(
        name="users",
        admission={Phase.COMPLETE: (check_users_and_teams(auth.authorize, auth.is_admin_user, group),)},
        controllers=lambda leader: (TeamMembershipController(leader.registry, group),),
    )


def build_permissions_feature(services: Services) -> Feature:
    auth = services.auth
    registry = services.registry
    group = services.api_group
    prefix = services.settings.namespace_prefix
    installation = InstallationInfo(services.installation_id, prefix)
    whoami = WhoAmI(registry, group, auth.access_keys.user_of_key, installation)
    reviews = ReviewSources(
        catalog=registry.catalog,
        authorizer=auth.authorizer,
        list_rules=auth.rbac.list_rules,
        find_user=auth.principals.find_user,
        has_user=auth.principals.has_user,
        user_for_key=auth.access_keys.user_of_key,
        check_key_visible=whoami.get_visible_key,
        matching_entry=auth.matching_entry,
        is_project_member=auth.project_members.is_member,
    )
    grants = GrantChecks(auth.authorize, auth.is_within_scope, owns, auth.project_members.is_member)
    return Feature(
        name="permissions",
        handlers={
            **whoami_handlers(group, whoami, TokenReviewer(auth.authenticators)),
            **review_handlers(group, reviews),
            **ResourceCounter(registry, auth.authorizer).handlers(group),
            **ResourceAccess(registry, auth.authorizer, auth.principals).handlers(group),
        },
        admission={
            Phase.AUTHORIZE: (
                prevent_escalation(auth.authorize, auth.rbac),
                check_grants(grants, ResourceNaming(group, prefix)),
            ),
        },
        controllers=lambda leader: (RoleAggregationController(leader.registry),),
        tasks=(auth.ownership.run,),
    )
