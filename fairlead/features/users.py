"""Users and teams."""

from fairlead.admission import Phase
from fairlead.admission.users import check_users_and_teams
from fairlead.controllers.access.team_membership import TeamMembershipController
from fairlead.features.contract import Feature, Services


def build_users_feature(services: Services) -> Feature:
    auth = services.auth
    group = services.api_group
    return Feature(
        name="users",
        admission={Phase.COMPLETE: (check_users_and_teams(auth.authorize, auth.is_admin_user, group),)},
        controllers=lambda leader: (TeamMembershipController(leader.registry, group),),
    )
