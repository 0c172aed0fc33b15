"""Deploys the `charts` and `apps` of the templates of spaces and virtual clusters.

For `controllers/instances/spaces.py` and `controllers/instances/virtual_clusters.py`. Each entry is a Helm release.
What is deployed is recorded in the status of the instance, so that releases are upgraded when an entry or its App
changes, and uninstalled when the entry is gone. One entry that fails does not affect the others; the condition names
each that has failed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fairlead.controllers.apps.chart_logins import ChartLogins
from fairlead.controllers.apps.charts import build_annotations, build_chart, check_owner_use, check_repository
from fairlead.controllers.helm.attempts import Attempt, RunReason, read_attempt
from fairlead.controllers.helm.chart import Chart, Release, check_timeout, is_allowed_repository, parse_repository_chart
from fairlead.controllers.helm.deploy import ReleaseRunner, ReleaseTarget
from fairlead.controllers.helm.deployments import Deployment, Deployments
from fairlead.controllers.instances.confinement import template_trust
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler
from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, url_segment
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.objects import Object, get_path
from fairlead.domain.app_resolution import resolve_app
from fairlead.domain.release_names import release_name, release_name_problems
from fairlead.domain.template_resolution import ResolutionError
from fairlead.domain.typed_objects import RELEASE_PARTS, App, RemoteInstance
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.instances.templates import UNMARKED
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition
from fairlead.registry.names import dns_label_errors
from fairlead.registry.registry import Registry
from fairlead.upstream.kube_client import get_or_none

DEPLOYED, FAILED, DEPLOYING = "Deployed", "Failed", "Deploying"
MAX_LISTED_FAILURES = 5

R = TypeVar("R", bound=RemoteInstance)


@dataclass(frozen=True, slots=True)
class ReleasePlace:
    """Where the releases of a template are deployed. `namespace` is the only one, or the default one if others are
    allowed, which are created then. `is_confined`: the template is not an administrator's."""

    target: ReleaseTarget
    namespace: str
    impersonate_user: str = ""
    allows_other_namespaces: bool = False
    is_confined: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseSet:
    """The charts and apps of a template, and the field and the condition of the status that report about them."""

    template: Object
    field: str
    condition: str
    place: Callable[[], ReleasePlace]
    """Raises InstanceError if they may not be deployed there."""
    object_count: int = 0
    object_error: InstanceError | None = None
    """How many objects of the template were applied there, which the same condition reports, and why one was not."""

    def recorded(self, instance: RemoteInstance) -> Object:
        """What is deployed already."""
        return instance.status.get(self.field) or {}


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a template: its part, its name, and the release, or why there is none."""

    part: str
    name: str
    release: Release | None
    error: InstanceError | None = None


@dataclass(slots=True)
class _Progress(Generic[R]):
    """The releases of a template while they are deployed: what the status records of each, by part, and the errors by
    title."""

    reconciler: InstanceReconciler[R]
    instance: R
    wanted: ReleaseSet
    place: ReleasePlace
    recorded: Object
    states: dict[str, list[Object]] = field(init=False)
    errors: dict[str, InstanceError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = {part: list(self.recorded.get(part) or ()) for part in RELEASE_PARTS}

    def find(self, part: str, release: Release) -> Object | None:
        key = _key_of(release)
        return next((each for each in self.states[part] if (each.get("namespace"), each.get("release")) == key), None)

    def put(self, entry: _Entry, state: Object) -> None:
        """Replaces the state of an entry that has a release, or adds it."""
        if entry.release is None:
            return
        known = self.find(entry.part, entry.release)
        names = {"name": entry.name, "release": entry.release.name, "namespace": entry.release.namespace}
        states = self.states[entry.part]
        if known is None:
            states.append({**names, **state})
        else:
            states[states.index(known)] = {**names, **state}

    def fields(self) -> Object:
        """The fields of the status."""
        return {self.wanted.field: {**self.recorded, **{part: list(found) for part, found in self.states.items()}}}


@dataclass(frozen=True, slots=True)
class ReleaseStates:
    """What is deployed, as the status records it by part, and the errors by title."""

    states: Mapping[str, Sequence[Object]]
    errors: Mapping[str, InstanceError]
    object_count: int = 0

    def as_condition(self, type: str) -> Object:
        """The condition; its message names each entry that has failed."""
        count = sum(map(len, self.states.values()))
        if not self.errors:
            objects = f" and {self.object_count} objects" if self.object_count else ""
            return condition(type, TRUE, "Synced", f"{count} releases{objects} of the template are deployed")
        worst = next(
            (each for each in self.errors.values() if each.severity == ERROR), next(iter(self.errors.values()))
        )
        listed = [f"{title}: {error.message}" for title, error in self.errors.items()][:MAX_LISTED_FAILURES]
        more = len(self.errors) - len(listed)
        message = f"not deployed: {'; '.join(listed)}" + (f"; and {more} more" if more else "")
        return condition(type, FALSE, worst.reason, message, worst.severity)


def has_releases(template: Object, recorded: Object) -> bool:
    """Whether there is anything to deploy or to uninstall."""
    return any(template.get(part) or recorded.get(part) for part in RELEASE_PARTS)


class TemplateReleases:
    def __init__(
        self, registry: Registry, config: InstanceConfig, runner: ReleaseRunner, repositories: Sequence[str]
    ) -> None:
        self._registry = registry
        self._group = config.api_group
        self._apps = registry.resource(config.api_group, "apps")
        self._logins = ChartLogins(registry, config)
        self._runner = runner
        self._deployments = Deployments(runner)
        self._repositories = repositories

    def subscribe(self, resource: tuple[str, str], requeue: Requeue) -> Callable[[], None]:
        """Instances of this resource whose releases wait for a slot of helm are queued when it is their turn."""
        return self._runner.subscribe(resource, requeue)

    def find_pending(self, instance: RemoteInstance, wanted: ReleaseSet) -> Sequence[Object]:
        """The condition while the releases are not deployed yet, so that the instance is not ready before. One that is
        False already stays until the result is known: it would be written twice in each pass, and trigger the next."""
        recorded = wanted.recorded(instance)
        has_failed = instance.condition(wanted.condition).get("status") == FALSE
        if has_failed or template_trust(instance) == UNMARKED:
            return ()
        if wanted.object_error is not None:
            return (wanted.object_error.as_condition(wanted.condition),)
        if not has_releases(wanted.template, recorded):
            return ()
        try:
            if self._is_synced(instance, wanted.template, recorded, wanted.place()):
                return ()
        except InstanceError as error:
            return (error.as_condition(wanted.condition),)
        message = "the charts and apps of the template are being deployed"
        return (condition(wanted.condition, FALSE, DEPLOYING, message, INFO),)

    async def deploy(
        self, reconciler: InstanceReconciler[R], instance: R, wanted: ReleaseSet
    ) -> Sequence[InstanceError]:
        """Deploys and uninstalls what has changed, and writes the result to the status. Returns the errors, which do
        not affect other releases."""
        recorded = wanted.recorded(instance)
        is_known = bool(instance.condition(wanted.condition))
        has_objects = wanted.object_count > 0 or wanted.object_error is not None
        has_any = has_releases(wanted.template, recorded) or is_known or has_objects
        if not has_any or template_trust(instance) == UNMARKED or instance.is_ignored:
            return ()
        try:
            place = wanted.place()
        except InstanceError as error:
            await reconciler.write_status(instance, (error.as_condition(wanted.condition),))
            return (error,)
        progress = _Progress(reconciler, instance, wanted, place, recorded)
        await self._sync(progress)
        failed = {"objects": wanted.object_error} if wanted.object_error is not None else {}
        result = ReleaseStates(progress.states, {**failed, **progress.errors}, wanted.object_count)
        await reconciler.write_status(instance, (result.as_condition(wanted.condition),), **progress.fields())
        return tuple(result.errors.values())

    def _is_synced(self, instance: RemoteInstance, template: Object, recorded: Object, place: ReleasePlace) -> bool:
        """Whether everything is deployed as the template says."""
        entries = list(self._entries(instance, template, place))
        wanted = {
            (each.part, *_key_of(each.release)): each.release.hash for each in entries if each.release is not None
        }
        known = {
            (part, state.get("namespace"), state.get("release")): state.get("hash")
            for part in RELEASE_PARTS
            for state in recorded.get(part) or ()
        }
        return wanted == known and all(each.error is None for each in entries)

    async def _sync(self, progress: "_Progress[R]") -> None:
        """Deploys and uninstalls releases. Errors are in `progress`."""
        entries = list(self._entries(progress.instance, progress.wanted.template, progress.place))
        wanted = {_key_of(each.release) for each in entries if each.release is not None}
        failed = {(each.part, each.name) for each in entries if each.release is None}
        for part in RELEASE_PARTS:
            for state in tuple(progress.states[part]):
                is_wanted = (state.get("namespace"), state.get("release")) in wanted
                if not is_wanted and (part, state.get("name")) not in failed:
                    await self._remove(progress, part, state)
        for entry in entries:
            await self._deploy(progress, entry)

    async def _deploy(self, progress: "_Progress[R]", entry: _Entry) -> None:
        title = f'{entry.part[:-1]} "{entry.name}"'
        release = entry.release
        if release is None:
            progress.errors[title] = entry.error or InstanceError("InvalidChart", "it cannot be deployed", ERROR)
            return
        known = progress.find(entry.part, release) or {}
        instance = progress.instance
        place = progress.place
        reconciler = progress.reconciler

        async def begin(attempt: Attempt) -> None:
            progress.put(entry, {"hash": "", "status": DEPLOYING, "attempt": attempt.as_fields()})
            await reconciler.record(instance, **progress.fields())

        async def report(why: RunReason) -> None:
            if not why.is_foreign:
                return  # the failure is reported already
            message = f"{title}: {why.message}"
            reported = condition(progress.wanted.condition, FALSE, why.reason, message, WARNING)
            await reconciler.write_status(instance, (reported,))

        attempt = read_attempt(known.get("attempt"))
        author = self._find_author(instance, reconciler.key_of(instance)[1], entry)
        wanted = Deployment(
            key=reconciler.key_of(instance),
            uid=instance.uid,
            project=instance.namespace,
            generation=instance.generation,
            target=place.target,
            release=release,
            attempt=attempt,
            deploy_hash=str(known.get("hash") or ""),
            digest=attempt.digest if attempt is not None else "",
            begin=begin,
            report=report,
            before_run=lambda: _ensure_namespace(place, release),
            complete_chart=lambda chart: self._logins.complete(chart, author, instance.namespace),
        )
        try:
            record = await self._deployments.ensure(wanted)
        except InstanceError as error:
            progress.errors[title] = error
            # If helm did not run, what was deployed before still is.
            if wanted.attempt is not attempt and wanted.attempt is not None:
                failed = {"status": FAILED, "reason": error.reason, "attempt": wanted.attempt.as_fields()}
                progress.put(entry, {"hash": "", **failed})
            return
        if record is not None and wanted.attempt is not None:
            progress.put(entry, {"hash": release.hash, "status": DEPLOYED, "attempt": wanted.attempt.as_fields()})

    def _find_author(self, instance: RemoteInstance, plural: str, entry: _Entry) -> Object | None:
        """What has the chart of an entry, and so records who wrote its references to secrets: the App, the template, or
        the instance with a template of its own."""
        template = str(get_path(instance.raw, "spec.templateRef.name") or "")
        if entry.part == "apps":
            found = self._apps.get_cached("", entry.name)
        elif template:
            templates = self._registry.resource(self._group, TEMPLATE_INSTANCES[plural].templates)
            found = templates.get_cached("", template)
        else:
            return instance.raw
        return decode(found) if found is not None else None

    async def _remove(self, progress: "_Progress[R]", part: str, state: Object) -> None:
        """Uninstalls a release whose entry is gone."""
        error = await self._uninstall(progress.instance, state, progress.place)
        if error is None:
            progress.states[part].remove(state)
        else:
            progress.errors[f'release "{state.get("release")}"'] = error

    async def _uninstall(self, instance: RemoteInstance, state: Object, place: ReleasePlace) -> InstanceError | None:
        """Returns the error if that is not possible."""
        release = Release(
            str(state.get("release")), str(state.get("namespace")), Chart("", ""), "", place.impersonate_user
        )
        try:
            with translate_errors(place.target.name, "uninstall a release"):
                await self._runner.uninstall(instance.namespace, place.target, release)
        except InstanceError as error:
            return error
        return None

    async def uninstall_all(self, instance: RemoteInstance, recorded: Object, place: ReleasePlace) -> None:
        """Uninstalls all releases; nothing without a helm program, as for virtual clusters. Raises InstanceError."""
        try:
            self._runner.require_program()
        except InstanceError:
            return
        errors = [
            await self._uninstall(instance, state, place)
            for part in RELEASE_PARTS
            for state in recorded.get(part) or ()
        ]
        for error in errors:
            if error is not None:
                raise error

    def forget(self, instance: RemoteInstance) -> None:
        """The instance is gone: drops what is remembered about its releases."""
        self._deployments.forget(instance.uid)

    def _entries(self, instance: RemoteInstance, template: Object, place: ReleasePlace) -> Iterator[_Entry]:
        seen: set[tuple[str, str]] = set()
        for part in RELEASE_PARTS:
            for requested in template.get(part) or ():
                name = str(requested.get("name") or "")
                try:
                    build = self._build_chart_release if part == "charts" else self._build_app_release
                    release = build(instance, requested, place)
                    if _key_of(release) in seen:
                        raise _bad_entry(f'another entry has the release name "{release.name}"')
                    seen.add(_key_of(release))
                    yield _Entry(part, name, release)
                except InstanceError as error:
                    yield _Entry(part, name, None, error)

    def _build_chart_release(self, instance: RemoteInstance, requested: Object, place: ReleasePlace) -> Release:
        chart = parse_repository_chart(requested, "charts[]", "fix the template")
        if place.is_confined and not is_allowed_repository(chart.repo, self._repositories):
            message = (
                "the template is not an administrator's, and the repository is not in the setting chart_repositories"
            )
            raise InstanceError("RepositoryNotAllowed", f"{message}; ask an administrator to add it", ERROR)
        location = _locate(requested.get("releaseName") or chart.name, requested.get("releaseNamespace"), place)
        values = str(requested.get("values") or "")
        waits = bool(requested.get("wait"))
        timeout = check_timeout(str(requested.get("timeout") or ""), "charts[]", "fix the template")
        return Release(*location, chart, values, place.impersonate_user, waits, timeout)

    def _build_app_release(self, instance: RemoteInstance, requested: Object, place: ReleasePlace) -> Release:
        name = str(requested.get("name") or "")
        entry = self._apps.get_cached("", name) if name else None
        app = App(decode(entry)) if entry is not None else App({})
        reference = {"name": name, "version": requested.get("version") or ""}
        try:
            resolved = resolve_app(
                {"spec": {"appRef": reference, "parameters": requested.get("parameters") or ""}}, app.raw or None
            )
        except ResolutionError as error:
            raise InstanceError(error.reason, error.message, ERROR) from None
        if place.is_confined:
            check_owner_use(app, instance.owner)
        chart = build_chart(resolved.config)
        check_repository(app, chart, self._repositories)
        default = app.default_namespace if place.allows_other_namespaces else ""
        location = _locate(requested.get("releaseName") or name, requested.get("namespace") or default, place)
        values = str(resolved.config.get("values") or "")
        timeout = check_timeout(app.timeout, "spec", "fix the app")
        annotations = build_annotations(resolved.config)
        return Release(*location, chart, values, place.impersonate_user, app.waits, timeout, annotations)


def _locate(name: Any, namespace: Any, place: ReleasePlace) -> tuple[str, str]:
    """The name and namespace of a release. Raises InstanceError."""
    release = release_name(str(name))
    wanted = str(namespace or place.namespace)
    for problem in release_name_problems("releaseName", release):
        raise _bad_entry(str(problem))
    for fault in dns_label_errors(wanted):
        raise _bad_entry(f"its namespace {fault}")
    if wanted != place.namespace and not place.allows_other_namespaces:
        raise _bad_entry(f'it can only be deployed to namespace "{place.namespace}", not to "{wanted}"')
    return release, wanted


def _bad_entry(reason: str) -> InstanceError:
    return InstanceError("InvalidChart", f"{reason}; fix the template", ERROR)


def _key_of(release: Release) -> tuple[str, str]:
    return release.namespace, release.name


async def _ensure_namespace(place: ReleasePlace, release: Release) -> None:
    """Creates the namespace of a release, if it may be another one than that of the place."""
    if not place.allows_other_namespaces:
        return
    path = f"{NAMESPACES_PATH}/{url_segment(release.namespace)}"
    with translate_errors(place.target.name, f'create namespace "{release.namespace}"'):
        if await get_or_none(place.target.api(""), path) is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}
            await place.target.api("").create(NAMESPACES_PATH, body)
