"""Moves a virtual cluster to another project: `POST projects/<target>/migratevirtualclusterinstance`.

`registry/namespace_move.py` moves it in one commit, with the objects that it owns and those of
`migration_companions.py`. Permissions are checked first, so that an error does not reveal which objects exist:

| object | source project | target project |
|---|---|---|
| the virtual cluster | update, delete | create |
| an app instance of the same owner | | create |
| the Secret that `spec.config` names | get, delete | create; get, if it does not exist in the source |
| what the server has created itself | | |
| any other object | update, delete | create |

So the owner of a virtual cluster who is a member of both projects can move it, and an access key with a scope needs
both projects. The response lists what moves and what changes. Audit events of all attempts have both projects as
annotations, and both namespaces get a Kubernetes Event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from fairlead.core.call import RequestInfo
from fairlead.core.errors import ApiError, BadRequest, Forbidden, Invalid, Problem, qualified_resource
from fairlead.core.objects import Object, metadata
from fairlead.domain.sleep_decisions import carry_sleep_over
from fairlead.domain.typed_objects import TypedObject
from fairlead.kinds.core.server_objects import is_managed
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.kinds.projects.project import MAX_LISTED_MOVES, PROJECT
from fairlead.registry.conditions import record_event
from fairlead.registry.kind import Kind
from fairlead.registry.namespace_move import MovedObject, MoveRequest, MoveResult, combine_errors, move
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.server.api import query_options
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest
from fairlead.subresources.migration_companions import (
    SECRETS,
    MigrationCompanions,
    adapt_app,
    config_secret,
    is_config_secret,
)

MIGRATE_SUBRESOURCE = "migratevirtualclusterinstance"
SOURCE_FIELD = "sourceVirtualClusterInstance"

SOURCE_PROJECT_ANNOTATION, TARGET_PROJECT_ANNOTATION = "service.sh/source-project", "service.sh/target-project"
"""Audit annotations."""

PROJECT_LABEL = "service.sh/project"
PROJECT_CONDITIONS = frozenset({"ProjectSecretsSynced"})
"""Conditions that depend on the project of an object. They are removed when it moves."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The instance, its source project and its target project."""

    instance: str
    source_project: str
    target_project: str
    prefix: str

    @property
    def source_namespace(self) -> str:
        """The namespace of the source project."""
        return f"{self.prefix}{self.source_project}"

    @property
    def target_namespace(self) -> str:
        return f"{self.prefix}{self.target_project}"


class MigrationHandler:
    """The handler. `prefix` is the prefix of project namespaces."""

    def __init__(self, registry: Registry, api_group: str, prefix: str) -> None:
        self._registry = registry
        self._projects = registry.resource(api_group, PROJECT.plural)
        self._namespaces = registry.resource("", "namespaces")
        self._instances = registry.resource(api_group, VIRTUAL_CLUSTER.plural)
        self._companions = MigrationCompanions(registry, api_group)
        self._prefix = prefix

    async def __call__(self, request: ActionRequest) -> Object:
        plan = self._parse_plan(request)
        request.call.annotations.update(
            {SOURCE_PROJECT_ANNOTATION: plan.source_project, TARGET_PROJECT_ANNOTATION: plan.target_project}
        )
        if plan.source_project == plan.target_project:
            raise BadRequest(
                f'"{plan.instance}" is already in project "{plan.target_project}"; post to the project to move it to'
            )
        rights = MigrationRights(request, plan)
        rights.require(self._instances.kind, plan.instance)
        moved = await move(
            self._registry, self._build_move(plan, rights), query_options.write_options(request.call, request.user)
        )
        if not request.dry_run:
            await self._record_events(moved, plan, request)
        metadata(request.body)["creationTimestamp"] = None
        return {**request.body, "result": _describe_result(moved, plan)}

    def _parse_plan(self, request: ActionRequest) -> MigrationPlan:
        source = request.body[SOURCE_FIELD]
        namespace = source["namespace"]
        if not namespace.startswith(self._prefix) or namespace == self._prefix:
            reason = f"must be the namespace of a project: {self._prefix}<project>"
            problem = Problem.invalid(f"{SOURCE_FIELD}.namespace", namespace, reason)
            raise Invalid.of(request.kind.name, request.kind.group, request.name, [problem])
        return MigrationPlan(source["name"], namespace.removeprefix(self._prefix), request.name, self._prefix)

    def _build_move(self, plan: MigrationPlan, rights: "MigrationRights") -> MoveRequest:
        must_be_active: tuple[tuple[Resource, str], ...] = (
            (self._projects, plan.target_project),
            (self._projects, plan.source_project),
            (self._namespaces, plan.source_namespace),
        )

        def adapt(obj: Object, uids: Mapping[str, str]) -> None:
            _adapt_to_project(obj, plan)
            if obj["kind"] == APP_INSTANCE.name:
                adapt_app(obj, uids)

        return MoveRequest(
            resource=self._instances,
            name=plan.instance,
            source=plan.source_namespace,
            target=plan.target_namespace,
            required_active=must_be_active,
            check_access=rights.require_all,
            adapt=adapt,
            find_companions=self._companions.find,
            find_obstacles=lambda objects: self._companions.find_obstacles(objects, rights.may_get),
        )

    async def _record_events(self, moved: MoveResult, plan: MigrationPlan, request: ActionRequest) -> None:
        """Records Events in both namespaces. The move is already committed, so errors are only logged."""
        along = f" with {len(moved.others)} other objects" if moved.others else ""
        by = f"by {request.user.name}"
        try:
            await record_event(
                self._registry, moved.old, "MigratedAway", f"moved to project {plan.target_project}{along} {by}"
            )
            await record_event(
                self._registry, moved.new, "Migrated", f"moved here from project {plan.source_project}{along} {by}"
            )
        except ApiError as error:
            log.warning("could not record the events of a migration", instance=plan.instance, reason=error.message)


@dataclass(frozen=True, slots=True)
class MigrationRights:
    """The permissions to move the objects of a migration; see the table above."""

    request: ActionRequest
    plan: MigrationPlan

    def require_all(self, objects: Sequence[MovedObject]) -> None:
        """Raises Forbidden with everything that is missing."""
        leading, *others = objects
        self.require(leading.kind, leading.name)
        refusals: dict[str, Forbidden] = {}
        for part in others:
            try:
                self._require_part(part, leading)
            except Forbidden as error:
                refusals.setdefault(error.message, error)
        if why := self._find_missing_secret(objects):
            refusals[why] = self._forbidden(why)
        if refusals:
            raise combine_errors(list(refusals.values()))

    def _find_missing_secret(self, objects: Sequence[MovedObject]) -> str:
        """Why it cannot move with a reference to a Secret that does not exist: the new project may have one of that
        name, and the requester would get the use of it."""
        leading, *others = objects
        secret = config_secret(leading.obj)
        target = self.plan.target_namespace
        if not secret or any(is_config_secret(each, leading) for each in others):
            return ""
        if self._may("get", "", SECRETS, target, secret):
            return ""
        return (
            f'spec.config names the secret "{secret}", which does not exist in the namespace '
            f'"{self.plan.source_namespace}", and User "{self.request.user.name}" may not get a secret of that name in '
            f'the namespace "{target}"; create it, or correct spec.config'
        )

    def require(self, kind: Kind, name: str) -> None:
        """Requires what the move of an object needs."""
        for verb in ("update", "delete"):
            source = self._target(verb, kind.group, kind.plural, self.plan.source_namespace, name)
            self.request.call.require(source)
        target = self._target("create", kind.group, kind.plural, self.plan.target_namespace, "")
        self.request.call.require(target)

    def may_get(self, kind: Kind, namespace: str, name: str) -> bool:
        return self._may("get", kind.group, kind.plural, namespace, name)

    def _require_part(self, part: MovedObject, leading: MovedObject) -> None:
        if is_managed(part.obj):
            return
        plan = self.plan
        kind = part.kind
        needed = [
            ("update", plan.source_namespace, part.name),
            ("delete", plan.source_namespace, part.name),
            ("create", plan.target_namespace, ""),
        ]
        if is_config_secret(part, leading):
            needed[0] = ("get", plan.source_namespace, part.name)
        elif kind.plural == APP_INSTANCE.plural and _has_same_owner(part.obj, leading.obj):
            needed = needed[2:]
        if all(self._may(verb, kind.group, kind.plural, namespace, name) for verb, namespace, name in needed):
            return
        in_source = " and ".join(verb for verb, namespace, _ in needed if namespace == plan.source_namespace)
        rights = [f'{in_source} on them in the namespace "{plan.source_namespace}"'] if in_source else []
        rights.append(f'create in the namespace "{plan.target_namespace}"')
        known = f' ("{part.name}")' if self.may_get(kind, plan.source_namespace, part.name) else ""
        raise self._forbidden(
            f"{qualified_resource(kind.plural, kind.group)}{known} depend on it and would move as well: User "
            f'"{self.request.user.name}" needs {" and ".join(rights)}'
        )

    def _may(self, verb: str, group: str, plural: str, namespace: str, name: str) -> bool:
        try:
            self.request.call.require(self._target(verb, group, plural, namespace, name))
        except Forbidden:
            return False
        return True

    def _target(self, verb: str, group: str, plural: str, namespace: str, name: str) -> RequestInfo:
        return replace(
            self.request.call.target,
            verb=verb,
            path="",
            group=group,
            resource=plural,
            subresource="",
            namespace=namespace,
            name=name,
        )

    def _forbidden(self, reason: str) -> Forbidden:
        return Forbidden.of(VIRTUAL_CLUSTER.plural, self.request.kind.group, self.plan.instance, reason)


def _has_same_owner(part: Object, leading: Object) -> bool:
    owner = TypedObject(part).owner
    return bool(owner) and owner == TypedObject(leading).owner


def _describe_result(moved: MoveResult, plan: MigrationPlan) -> Object:
    """What moves, and what is different afterwards."""
    moves = [{"kind": moved.new["kind"], "name": plan.instance}]
    moves += [{"kind": each.kind.name, "name": each.name} for each in moved.others[: MAX_LISTED_MOVES - 1]]
    changes = [
        f'members of the project "{plan.source_project}" lose what that gives them in it, and members of the project '
        f'"{plan.target_project}" get what that gives them',
        f'its address is that of the project "{plan.target_project}": kubeconfigs with the old one no longer work, and '
        f'neither do access keys that are limited to the project "{plan.source_project}"',
        f'it counts towards the quotas of the project "{plan.target_project}"',
    ]
    return {"moves": moves, "count": len(moved.others) + 1, "changes": changes}


def _adapt_to_project(obj: Object, plan: MigrationPlan) -> None:
    """Updates the project label of a moved object, and removes conditions that depend on the project. What sleeps goes
    on to sleep."""
    carry_sleep_over(obj)
    labels = metadata(obj).get("labels") or {}
    status = obj.get("status")
    if labels.get(PROJECT_LABEL) == plan.source_project:
        labels[PROJECT_LABEL] = plan.target_project
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        remaining = [each for each in status["conditions"] if each.get("type") not in PROJECT_CONDITIONS]
        status["conditions"] = remaining


def migration_handlers(api_group: str, registry: Registry, prefix: str) -> dict[ActionPath, ActionHandler]:
    return {(api_group, PROJECT.plural, MIGRATE_SUBRESOURCE): MigrationHandler(registry, api_group, prefix)}
