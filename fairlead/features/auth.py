"""Authentication and authorization, as features and admission rules use them. `app/auth.py` builds them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fairlead.authn import Authenticator
from fairlead.authn.access_keys import AccessKeyAuthenticator, Pepper
from fairlead.authn.bootstrap import OtherAdminAccess
from fairlead.authn.last_used import LastUsedTracker
from fairlead.authn.principals import AdminUserCheck, PrincipalDirectory
from fairlead.authn.sign_on_policy import SignOnPolicy
from fairlead.authz.authorizer import AuthorizerChain
from fairlead.authz.ownership import OwnerAuthorizer
from fairlead.authz.port_access import PortAccess
from fairlead.authz.project_members import ProjectMemberAuthorizer
from fairlead.authz.rbac import RbacAuthorizer
from fairlead.authz.secret_access import SecretAccess
from fairlead.core.call import MANAGEMENT, Decision, RequestInfo
from fairlead.core.user import User
from fairlead.features.dynamic_config import DynamicConfig
from fairlead.server.auth.stages import Identify


@dataclass(frozen=True, slots=True)
class Auth:
    """Authentication and authorization. Built before the registry, because admission rules depend on it."""

    pepper: Pepper
    principals: PrincipalDirectory
    access_keys: AccessKeyAuthenticator
    last_used: LastUsedTracker
    rbac: RbacAuthorizer
    project_members: ProjectMemberAuthorizer
    authorizer: AuthorizerChain
    is_admin_user: AdminUserCheck
    matching_entry: Callable[[User, RequestInfo], str]
    authenticators: Sequence[Authenticator]
    dynamic_config: DynamicConfig
    ownership: OwnerAuthorizer
    port_access: PortAccess
    sign_on: SignOnPolicy
    other_admin_access: OtherAdminAccess
    identify: Identify
    """Says who has sent a request, with impersonation."""

    @property
    def secret_access(self) -> SecretAccess:
        return SecretAccess(self.principals.find_user, self.authorize, self.project_members.is_member)

    def authorize(self, user: User, target: RequestInfo) -> Decision:
        """For admission rules: decides as if the user had sent this request to the management API."""
        return self.authorizer.authorize(user, replace(target, root=MANAGEMENT))

    def is_within_scope(self, user: User, target: RequestInfo) -> bool:
        """Whether the scope of the user's access key covers such a request, regardless of the user's permissions."""
        return self.authorizer.is_within_scope(user, replace(target, root=MANAGEMENT))
