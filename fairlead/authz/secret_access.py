"""Which secrets a workspace gets: what its owner may use, and the writer of the reference as well.

Both are decided when a runner asks, so they follow all later changes: of permissions, members, owners and templates.

- The owner must have `use` on the secret. For shared secrets, to be an administrator is not enough: others may be able
  to change an administrator's workspace, and so what it refers to, and must not get the secrets of all namespaces that
  way. They also need an owner who has accepted the workspace, and who may work in its project: project administrators
  can open a session in it.
- The user who wrote the reference must have `use`, too, in the workspace and in its template. Workspaces and templates
  of earlier versions do not record that: their shared secrets are resolved once the owner, or for a template a user
  who may use them, has updated them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fairlead.core.call import Decision, RequestInfo
from fairlead.core.objects import Object
from fairlead.core.user import (
    ADMIN_GROUPS,
    AUTHENTICATED,
    SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNTS_GROUP,
    TEAM_GROUP_PREFIX,
    User,
)
from fairlead.domain.secret_references import (
    ADMINISTRATORS,
    SHARED_SECRETS,
    SecretReference,
    find_references,
    owner_principal,
    read_consent,
    template_definitions,
)
from fairlead.kinds.instances.workspace import WORKSPACE


def find_principal(name: str, find_user: Callable[[str], User | None]) -> User | None:
    """The user or service account with this user name; None for users who are disabled or do not exist."""
    if name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace = name.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0]
        return User(name, (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED))
    return find_user(name)


@dataclass(frozen=True, slots=True)
class SecretAccess:
    """Finds the owner of a workspace, and decides what that user or team may use."""

    find_user: Callable[[str], User | None]
    authorize: Callable[[User, RequestInfo], Decision]
    is_member: Callable[[User, str], bool]
    """Whether a user or team has a role in the project of a namespace."""

    def find_owner(self, workspace: Object) -> User | None:
        principal = owner_principal(workspace)
        return self.find_principal(principal) if principal else None

    def find_principal(self, name: str) -> User | None:
        """The user, team or service account with this user name; None for users who are disabled or do not exist."""
        if name.startswith(TEAM_GROUP_PREFIX):
            return User(name, (name,))
        return find_principal(name, self.find_user)

    def owner_may_use(self, owner: User, target: RequestInfo) -> bool:
        if target.resource == SHARED_SECRETS:
            owner = replace(owner, groups=tuple(each for each in owner.groups if each not in ADMIN_GROUPS))
        return self.authorize(owner, target).allowed

    def writer_may_use(self, writer: str, target: RequestInfo) -> bool:
        user = self.find_principal(writer) if writer != ADMINISTRATORS else None
        return writer == ADMINISTRATORS or (user is not None and self.authorize(user, target).allowed)

    def may_own(self, principal: str, api_group: str, namespace: str, plural: str = WORKSPACE.plural) -> bool:
        """Whether a user or team may work in the project of a namespace: as a member, or by a role there."""
        user = self.find_principal(principal)
        if user is None:
            return False
        target = RequestInfo(verb="create", group=api_group, version="v1", resource=plural, namespace=namespace)
        return self.is_member(user, namespace) or self.authorize(user, target).allowed


@dataclass(frozen=True, slots=True)
class ReferenceCheck:
    """Decides which references of one workspace may be resolved. `template` is what its `templateRef` names."""

    access: SecretAccess
    api_group: str
    workspace: Object
    template: Object | None

    def denial_reason(self, reference: SecretReference, target: RequestInfo) -> str | None:
        """Why the reference is not resolved, whether the secret exists or not; None if it may be."""
        is_shared = reference.plural == SHARED_SECRETS
        consent = read_consent(self.workspace)
        namespace = str(self.workspace["metadata"]["namespace"])
        if is_shared and consent.owner != owner_principal(self.workspace):
            return "the owner of the workspace has not accepted it; the owner has to start or update it once"
        if is_shared and not self.access.may_own(consent.owner, self.api_group, namespace):
            return "the owner of the workspace is not a member of the project any more; have a member take it over"
        in_template = self._is_in_template(reference)
        if in_template and is_shared and not self._is_approved(read_consent(self.template).writers, reference, target):
            return "the user who wrote it in the template may not use the secret; a user who may has to update that"
        writer = consent.writers.get(reference.digest)
        is_by_owner = writer is not None and writer == owner_principal(self.workspace)  # who has to have `use` anyway
        if writer is not None and not is_by_owner and not self._is_approved(consent.writers, reference, target):
            return (
                "the user who wrote the reference, here or in the template, may not use the secret; the owner has to "
                "update this, or an administrator the template"
            )
        if is_shared and writer is None and not in_template:
            return "it is not known who wrote the reference; the owner has to update the workspace once"
        return None

    def _is_in_template(self, reference: SecretReference) -> bool:
        return any(each == reference for part in template_definitions(self.template) for each in find_references(part))

    def _is_approved(self, writers: Mapping[str, str], reference: SecretReference, target: RequestInfo) -> bool:
        writer = writers.get(reference.digest)
        return writer is not None and self.access.writer_may_use(writer, target)
