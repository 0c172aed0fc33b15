"""`devpodworkspaceinstances/<name>/credentials`: the secrets that a runner needs to bring up a workspace.

Only the runner that the workspace is scheduled to gets them, with its own key, as long as the project allows it. They
are what the rendered template refers to with `valueFrom`, values that contain password parameters, and credentials for
the host of the repository. That host is the runner's to name: only the runner knows a source that came with an `up`.
Project secrets are those of the same project. `authz/secret_access.py` decides which secrets a workspace gets.

With `gitUse=session`, the response has nothing but the credentials for one repository, which a `git` in the workspace
has just asked for: each use is one request, so what is revoked here is revoked there. `git_secrets.py` finds them.
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.admission.allow_lists import RUNNERS as ALLOWED_RUNNERS
from fairlead.admission.allow_lists import allowed_names, is_allowed
from fairlead.authz.component_access import ComponentResolver
from fairlead.authz.secret_access import ReferenceCheck, SecretAccess
from fairlead.core.call import RequestInfo
from fairlead.core.errors import BadRequest, Conflict, Forbidden
from fairlead.core.objects import Object, deep_copy, get_path, metadata
from fairlead.core.user import User
from fairlead.domain.password_parameters import redact_instance
from fairlead.domain.secret_references import PROJECT_SECRETS, SHARED_SECRETS, SecretReference
from fairlead.domain.user_settings import find_dotfiles
from fairlead.domain.workspace_trust import find_trust_problems
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.instances.templates import TRUSTED
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.codec import decode
from fairlead.registry.conditions import is_true
from fairlead.registry.registry import Registry
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.git_secrets import (
    GIT_KEYS,
    REQUIRED_GIT_KEYS,
    GitSecrets,
    Repository,
    describe_identity,
    find_owner,
    parse_repository,
)
from fairlead.subresources.workspaces.project_secrets import ProjectSecrets
from fairlead.subresources.workspaces.registry_secrets import (
    MAX_REGISTRIES,
    PASSWORD_KEY,
    USER_KEY,
    list_registry_secrets,
)

VALUE_FIELDS = {"provider.options": "providerOptions", "workspaceEnv": "workspaceEnv"}
"""Maps of a template whose values may be secret, and the fields of the response."""
SECRETS_ANNOTATION = "service.sh/secrets"
"""In the audit log: the secrets whose values were returned."""
GIT_USE_ANNOTATION = "service.sh/git-use"
"""In the audit log: the repository for which a `git` in the workspace asked for credentials."""
MAX_TRIED = 4
"""Secrets for a repository that the owner may use, but whose values are no text: each is parsed, and may be large."""
SESSION = "session"
"""The value of the parameter `gitUse` for requests of sessions."""


@dataclass(slots=True)
class _Found:
    """What was resolved for one workspace. Every secret is read at most once."""

    values: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)
    secrets: dict[str, Mapping[str, str] | None] = field(default_factory=dict, repr=False)
    errors: list[str] = field(default_factory=list)


class CredentialsHandler:
    def __init__(
        self, api_group: str, registry: Registry, runners: ComponentResolver, access: SecretAccess, prefix: str
    ) -> None:
        """`prefix` is the one of the namespaces of projects."""
        self._group = api_group
        self._registry = registry
        self._runners = runners
        self._access = access
        self._prefix = prefix
        self._secrets = ProjectSecrets(registry.view, api_group)

    async def __call__(self, request: ActionRequest) -> Object:
        entry = await self._registry.resource(self._group, WORKSPACE.plural).get(request.namespace, request.name)
        workspace = decode(entry)
        self._check_runner(request, workspace)
        found = _Found()
        owner = self._access.find_owner(workspace)
        repository = _read_repository(request)
        is_session = request.call.parameter("gitUse") == SESSION
        if is_session:
            self._note(request, GIT_USE_ANNOTATION, str(repository) if repository is not None else "")
        else:
            self._resolve_values(workspace, owner, found)
        secrets = GitSecrets.collect(self._secrets, workspace, is_session=is_session)
        git = self._read_git_credentials(secrets, repository, owner, found)
        registries = {} if is_session else self._read_registries(workspace, owner, found)
        if used := sorted(name for name, data in found.secrets.items() if data is not None):
            self._note(request, SECRETS_ANNOTATION, ", ".join(used))
        described = {} if is_session else self._describe_owner(workspace, secrets)
        return request.build_response(
            **found.values,
            gitCredentials=git,
            **described,
            **registries,
            errors=[{"message": each} for each in found.errors],
        )

    def _note(self, request: ActionRequest, annotation: str, value: str) -> None:
        request.call.annotations = {**request.call.annotations, annotation: value}

    def _check_runner(self, request: ActionRequest, workspace: Object) -> None:
        """A workspace may name a runner that its project does not allow: then it is not scheduled. One that is stays on
        its runner when the project does not allow it any more, but its secrets do not go there. The name of the user
        alone is not enough: administrators may impersonate it."""
        runner = self._runners.component_of(request.user) if request.user.impersonator is None else None
        if runner is None or runner != get_path(workspace, "spec.runnerRef.runner"):
            reason = "only the runner of a workspace may read its credentials"
            raise Forbidden.of(WORKSPACE.plural, self._group, request.name, reason)
        if not is_true(workspace.get("status"), "Scheduled") or "deletionTimestamp" in metadata(workspace):
            raise Conflict(f'workspace "{request.name}" is not scheduled to a runner, or is being deleted')
        if not self._is_allowed(runner, request.namespace):
            project = request.namespace.removeprefix(self._prefix)
            raise Conflict(f'project "{project}" does not allow runner "{runner}"; add it to its spec.allowedRunners')

    def _is_allowed(self, runner: str, namespace: str) -> bool:
        """Whether the namespace is that of a project that allows the runner."""
        if not namespace.startswith(self._prefix):
            return False
        entry = self._registry.view.get((self._group, PROJECT.plural, "", namespace.removeprefix(self._prefix)))
        return entry is not None and is_allowed(allowed_names(decode(entry), ALLOWED_RUNNERS), runner)

    # --- values of the template -----------------------------------------------------------------------------------

    def _resolve_values(self, workspace: Object, owner: User | None, found: _Found) -> None:
        served = deep_copy(workspace)
        check = self._reference_check(workspace)
        redact_instance(served)
        is_trusted = get_path(workspace, "status.templateTrust") == TRUSTED
        refused = find_trust_problems(get_path(workspace, "status.instance"), None, is_trusted=is_trusted)
        for path, name in VALUE_FIELDS.items():
            values, shown = (get_path(each, f"status.instance.{path}") or {} for each in (workspace, served))
            for variable, value in values.items():
                if why := refused.get(f"{path}[{variable}]"):  # stored before templates of workspaces had trust
                    found.errors.append(f"{path}.{variable} of the template {why}")
                    continue
                place = _Value(f"{path}.{variable}", value, shown.get(variable))
                resolved = self._resolve_value(check, owner, place, found)
                if isinstance(resolved, str):
                    found.values.setdefault(name, {})[variable] = resolved
                elif resolved is not None:
                    found.errors.append(f"{path}.{variable} of the template: {resolved.message}")

    def _reference_check(self, workspace: Object) -> ReferenceCheck:
        name = get_path(workspace, "spec.templateRef.name") or ""
        entry = self._registry.resource(self._group, TEMPLATE_INSTANCES[WORKSPACE.plural].templates).get_cached(
            "", name
        )
        return ReferenceCheck(self._access, self._group, workspace, decode(entry) if entry is not None else None)

    def _resolve_value(
        self, check: ReferenceCheck, owner: User | None, place: "_Value", found: _Found
    ) -> "str | _Problem | None":
        """None if the value is not secret: the runner reads it in the object."""
        value, field = place.value, place.field
        namespace = str(metadata(check.workspace)["namespace"])
        if project := get_path(value, "valueFrom.projectSecretRef"):
            if (project.get("project") or namespace.removeprefix(self._prefix)) != namespace.removeprefix(self._prefix):
                return _Problem("a project secret of another project cannot be used")
            reference = SecretReference(field, PROJECT_SECRETS, "", project.get("name") or "", project.get("key") or "")
            return self._read_reference(check, reference, namespace, owner, found)
        if shared := get_path(value, "valueFrom.sharedSecretRef"):
            names = (str(shared.get(each) or "") for each in ("namespace", "name", "key"))
            reference = SecretReference(field, SHARED_SECRETS, *names)
            return self._read_reference(check, reference, reference.namespace, owner, found)
        return str(value.get("value") or "") if value != place.shown else None

    def _read_reference(
        self, check: ReferenceCheck, reference: SecretReference, namespace: str, owner: User | None, found: _Found
    ) -> "str | _Problem":
        target = self._use_target(reference.plural, namespace, reference.name)
        why = check.denial_reason(reference, target) if owner is not None else None
        if why is not None:
            return _Problem(f'{_describe_secret(reference.plural, namespace)} "{reference.name}" is not used: {why}')
        return self._read_key(reference.plural, namespace, reference.name, reference.key, owner, found)

    def _read_key(
        self, plural: str, namespace: str, name: str, key: str, owner: User | None, found: _Found
    ) -> "str | _Problem":
        """Whether a secret does not exist, has no such key or may not be used is not said: the owner reads it."""
        data = self._read_secret(plural, namespace, name, owner, found)
        if data is None or key not in data:
            what = _describe_secret(plural, namespace)
            whom = (
                "that the owner of the workspace may use" if owner is not None else "for a workspace without an owner"
            )
            return _Problem(f'there is no {what} "{name}" with a key "{key}" {whom}')
        try:
            return b64decode(data[key]).decode()
        except (binascii.Error, UnicodeDecodeError):
            return _Problem(f'the key "{key}" of secret "{name}" is not text')

    def _read_secret(
        self, plural: str, namespace: str, name: str, owner: User | None, found: _Found
    ) -> Mapping[str, str] | None:
        """The data of a secret; None if there is none that the owner may use."""
        identity = f"{plural}/{namespace}/{name}"
        if identity not in found.secrets:
            target = self._use_target(plural, namespace, name)
            entry = self._registry.view.get((self._group, plural, namespace, name)) if namespace and name else None
            is_usable = entry is not None and owner is not None and self._access.owner_may_use(owner, target)
            found.secrets[identity] = (get_path(decode(entry), "spec.data") or {}) if entry and is_usable else None
        return found.secrets[identity]

    def _use_target(self, plural: str, namespace: str, name: str) -> RequestInfo:
        return RequestInfo(verb="use", group=self._group, version="v1", resource=plural, namespace=namespace, name=name)

    # --- git --------------------------------------------------------------------------------------------------------

    def _read_git_credentials(
        self, secrets: GitSecrets, repository: Repository | None, owner: User | None, found: _Found
    ) -> dict[str, str]:
        """Those of the first secret for this repository that the owner of the workspace may use."""
        if repository is None:
            return {}
        keys = GIT_KEYS[repository.protocol]
        readable = 0
        for name in secrets.find(repository):
            if self._read_secret(PROJECT_SECRETS, secrets.namespace, name, owner, found) is None:
                continue
            if (readable := readable + 1) > MAX_TRIED:
                break
            fields: dict[str, str] = {}
            for key, field_name in keys.items():
                value = self._read_key(PROJECT_SECRETS, secrets.namespace, name, key, owner, found)
                if isinstance(value, str):
                    fields[field_name] = value
            if keys[REQUIRED_GIT_KEYS[repository.protocol]] in fields:
                return fields
        return {}

    def _read_registries(self, workspace: Object, owner: User | None, found: _Found) -> Object:
        """User and password for each registry of which the owner of the workspace may use a secret."""
        namespace = str(metadata(workspace)["namespace"])
        read: dict[str, Object] = {}
        for secret in list_registry_secrets(self._secrets.list(namespace), get_path(workspace, "spec.owner")):
            if secret.place in read or len(read) == MAX_REGISTRIES:
                continue
            values = [
                self._read_key(PROJECT_SECRETS, namespace, secret.name, key, owner, found)
                for key in (USER_KEY, PASSWORD_KEY)
            ]
            user, password = (each if isinstance(each, str) else "" for each in values)
            if password:
                read[secret.place] = {"registry": secret.place, "username": user, "password": password}
        return {"registryCredentials": list(read.values())} if read else {}

    def _describe_owner(self, workspace: Object, secrets: GitSecrets) -> Object:
        """What an `up` needs to know of the owner: the dotfiles, as whom `git` commits, and for which hosts it has to
        name the repository when it asks for credentials."""
        owner = find_owner(self._registry.view, self._group, workspace)
        return {
            "gitIdentity": describe_identity(owner) if owner else {},
            "dotfiles": find_dotfiles(owner) if owner else "",
            "gitPathHosts": secrets.list_hosts_with_paths(),
        }


def _read_repository(request: ActionRequest) -> Repository | None:
    call = request.call
    host = call.parameter("gitHost")
    path = call.parameter("gitPath")
    try:
        return parse_repository(call.parameter("gitProtocol"), host, path)
    except ValueError as error:
        raise BadRequest(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Problem:
    message: str


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of the rendered template, and how responses show it."""

    field: str
    value: Object
    shown: Object | None


def _describe_secret(plural: str, namespace: str) -> str:
    return "project secret" if plural == PROJECT_SECRETS else f'shared secret in namespace "{namespace}"'
