"""Moves a virtual cluster to another project: `POST projects/<target>/migratevirtualclusterinstance`.

`registry/namespace_move.py` moves it in one commit. Permissions are checked first, so that an error does not reveal
which objects exist: update and delete in the source namespace, and create in the target namespace, for every object
that moves. So an access key with a scope needs both projects. Audit events of all attempts have both projects as
annotations, and both namespaces get a Kubernetes Event.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from fairlead.core.call import Target
from fairlead.core.errors import ApiError, BadRequest, Forbidden, Invalid, Problem, qualified
from fairlead.core.objects import Object, metadata
from fairlead.registry.events import record
from fairlead.registry.kind import Kind
from fairlead.registry.namespace_move import Move, Moved, Part, move
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.server.api import query_options
from fairlead.server.api.actions import Asked, Handler, Place

PROJECTS = "projects"
INSTANCES = "virtualclusterinstances"
MIGRATION = "migratevirtualclusterinstance"
SOURCE = "sourceVirtualClusterInstance"

SOURCE_PROJECT, TARGET_PROJECT = "service.sh/source-project", "service.sh/target-project"
"""Audit annotations."""

PROJECT_LABEL = "service.sh/project"
OF_THE_PROJECT = frozenset({"ProjectSecretsSynced"})
"""Conditions that depend on the project of an object. They are removed when it moves."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """The instance, its source project and its target project."""

    name: str
    source: str
    target: str
    prefix: str

    @property
    def origin(self) -> str:
        """The namespace of the source project."""
        return f"{self.prefix}{self.source}"

    @property
    def destination(self) -> str:
        return f"{self.prefix}{self.target}"


class Migration:
    """The handler. `prefix` is the prefix of project namespaces."""

    def __init__(self, registry: Registry, api_group: str, prefix: str) -> None:
        self._registry = registry
        self._projects = registry.resource(api_group, PROJECTS)
        self._namespaces = registry.resource("", "namespaces")
        self._instances = registry.resource(api_group, INSTANCES)
        self._prefix = prefix

    async def __call__(self, asked: Asked) -> Object:
        plan = self._route(asked)
        asked.call.annotations.update({SOURCE_PROJECT: plan.source, TARGET_PROJECT: plan.target})
        if plan.source == plan.target:
            raise BadRequest(f'"{plan.name}" is already in project "{plan.target}"; post to the project to move it to')
        rights = Rights(asked, plan)
        rights.demand(Part(self._instances.kind, plan.name))
        moved = await move(self._registry, self._move(plan, rights), query_options.writing(asked.call, asked.user))
        if not asked.dry_run:
            await self._tell(moved, plan, asked)
        metadata(asked.body)["creationTimestamp"] = None
        return asked.body

    def _route(self, asked: Asked) -> Route:
        source = asked.body[SOURCE]
        namespace = source["namespace"]
        if not namespace.startswith(self._prefix) or namespace == self._prefix:
            reason = f"must be the namespace of a project: {self._prefix}<project>"
            problem = Problem.invalid(f"{SOURCE}.namespace", namespace, reason)
            raise Invalid.of(asked.kind.name, asked.kind.group, asked.name, [problem])
        return Route(source["name"], namespace.removeprefix(self._prefix), asked.name, self._prefix)

    def _move(self, route: Route, rights: "Rights") -> Move:
        must_be_active: tuple[tuple[Resource, str], ...] = (
            (self._projects, route.target),
            (self._projects, route.source),
            (self._namespaces, route.origin),
        )

        def adapt(obj: Object) -> None:
            _settle_in(obj, route)

        return Move(
            self._instances, route.name, route.origin, route.destination, must_be_active, rights.demand_all, adapt
        )

    async def _tell(self, moved: Moved, route: Route, asked: Asked) -> None:
        """Records Events in both namespaces. The move is already committed, so errors are only logged."""
        along = f" with {moved.dependants} dependent objects" if moved.dependants else ""
        by = f"by {asked.user.name}"
        try:
            await record(self._registry, moved.old, "MigratedAway", f"moved to project {route.target}{along} {by}")
            await record(self._registry, moved.new, "Migrated", f"moved here from project {route.source}{along} {by}")
        except ApiError as error:
            log.warning("could not record the events of a migration", instance=route.name, reason=error.message)


@dataclass(frozen=True, slots=True)
class Rights:
    """The permissions to move an object: update and delete in the source namespace, create in the target namespace."""

    asked: Asked
    route: Route

    def demand_all(self, parts: Sequence[Part]) -> None:
        leading, *others = parts
        self.demand(leading)
        for part in others:
            try:
                self.demand(part)
            except Forbidden:
                raise self._held_back(part.kind) from None

    def demand(self, part: Part) -> None:
        for verb in ("update", "delete"):
            self.asked.call.require(self._target(verb, part.kind, self.route.origin, part.name))
        self.asked.call.require(self._target("create", part.kind, self.route.destination, ""))

    def _target(self, verb: str, kind: Kind, namespace: str, name: str) -> Target:
        return replace(
            self.asked.call.target,
            verb=verb,
            path="",
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            subresource="",
            namespace=namespace,
            name=name,
        )

    def _held_back(self, kind: Kind) -> Forbidden:
        """The error for a dependent object. Without its name: the requester may not be allowed to read it."""
        resource, plan = qualified(kind.plural, kind.group), self.route
        reason = (
            f'{resource} depend on it and would move as well: User "{self.asked.user.name}" needs update and delete on '
            f'them in the namespace "{plan.origin}" and create in the namespace "{plan.destination}"'
        )
        return Forbidden.of(INSTANCES, self.asked.kind.group, plan.name, reason)


def _settle_in(obj: Object, route: Route) -> None:
    """Updates the project label of a moved object, and removes conditions that depend on the project."""
    labels, status = metadata(obj).get("labels") or {}, obj.get("status")
    if labels.get(PROJECT_LABEL) == route.source:
        labels[PROJECT_LABEL] = route.target
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        remaining = [each for each in status["conditions"] if each.get("type") not in OF_THE_PROJECT]
        status["conditions"] = remaining


def migration_handlers(api_group: str, registry: Registry, prefix: str) -> dict[Place, Handler]:
    return {(api_group, PROJECTS, MIGRATION): Migration(registry, api_group, prefix)}
