"""Moves a virtual cluster to another project: `POST projects/<target>/migratevirtualclusterinstance`.

`registry/namespace_move.py` moves it in one commit. Permissions are checked first, so that an error does not reveal
which objects exist: update and delete in the source namespace, and create in the target namespace, for every object
that moves. So an access key with a scope needs both projects. Audit events of all attempts have both projects as
annotations, and both namespaces get a Kubernetes Event.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from fairlead.core.call import RequestInfo
from fairlead.core.errors import ApiError, BadRequest, Forbidden, Invalid, Problem, qualified_resource
from fairlead.core.objects import Object, metadata
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.conditions import record_event
from fairlead.registry.kind import Kind
from fairlead.registry.namespace_move import MovedObject, MoveRequest, MoveResult, move
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.server.api import query_options
from fairlead.server.api.actions import ActionHandler, ActionPath, ActionRequest

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
        rights.require(MovedObject(self._instances.kind, plan.instance))
        moved = await move(
            self._registry, self._build_move(plan, rights), query_options.write_options(request.call, request.user)
        )
        if not request.dry_run:
            await self._record_events(moved, plan, request)
        metadata(request.body)["creationTimestamp"] = None
        return request.body

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

        def adapt(obj: Object) -> None:
            _adapt_to_project(obj, plan)

        return MoveRequest(
            resource=self._instances,
            name=plan.instance,
            source=plan.source_namespace,
            target=plan.target_namespace,
            required_active=must_be_active,
            check_access=rights.require_all,
            adapt=adapt,
        )

    async def _record_events(self, moved: MoveResult, plan: MigrationPlan, request: ActionRequest) -> None:
        """Records Events in both namespaces. The move is already committed, so errors are only logged."""
        along = f" with {moved.dependents} dependent objects" if moved.dependents else ""
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
    """The permissions to move an object: update and delete in the source namespace, create in the target namespace."""

    request: ActionRequest
    plan: MigrationPlan

    def require_all(self, objects: Sequence[MovedObject]) -> None:
        leading, *others = objects
        self.require(leading)
        for part in others:
            try:
                self.require(part)
            except Forbidden:
                raise self._dependent_forbidden(part.kind) from None

    def require(self, moved: MovedObject) -> None:
        for verb in ("update", "delete"):
            self.request.call.require(self._target(verb, moved.kind, self.plan.source_namespace, moved.name))
        self.request.call.require(self._target("create", moved.kind, self.plan.target_namespace, ""))

    def _target(self, verb: str, kind: Kind, namespace: str, name: str) -> RequestInfo:
        return replace(
            self.request.call.target,
            verb=verb,
            path="",
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            subresource="",
            namespace=namespace,
            name=name,
        )

    def _dependent_forbidden(self, kind: Kind) -> Forbidden:
        """The error for a dependent object. Without its name: the requester may not be allowed to read it."""
        resource, plan = qualified_resource(kind.plural, kind.group), self.plan
        reason = (
            f'{resource} depend on it and would move as well: User "{self.request.user.name}" needs update and delete '
            "on "
            f'them in the namespace "{plan.source_namespace}" and create in the namespace "{plan.target_namespace}"'
        )
        return Forbidden.of(VIRTUAL_CLUSTER.plural, self.request.kind.group, plan.instance, reason)


def _adapt_to_project(obj: Object, plan: MigrationPlan) -> None:
    """Updates the project label of a moved object, and removes conditions that depend on the project."""
    labels = metadata(obj).get("labels") or {}
    status = obj.get("status")
    if labels.get(PROJECT_LABEL) == plan.source_project:
        labels[PROJECT_LABEL] = plan.target_project
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        remaining = [each for each in status["conditions"] if each.get("type") not in PROJECT_CONDITIONS]
        status["conditions"] = remaining


def migration_handlers(api_group: str, registry: Registry, prefix: str) -> dict[ActionPath, ActionHandler]:
    return {(api_group, PROJECT.plural, MIGRATE_SUBRESOURCE): MigrationHandler(registry, api_group, prefix)}
