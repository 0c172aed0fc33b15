"""Reconciles AppInstances: deploys an App with Helm, upgrades it, repairs changes by others, and uninstalls it.

An instance is deployed again when its spec or its App changes, and when its release in the cluster differs from what
was deployed, which is checked every minute. Rolling back is a change of the spec to a former version and parameters,
which `status.history` has. A finalizer delays its deletion until the release is uninstalled; if its target is gone, or
is being deleted, there is nothing to uninstall.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from fairlead.controllers.apps.charts import build_chart, check_repository
from fairlead.controllers.apps.release_records import read_deployed_release
from fairlead.controllers.apps.status import (
    APP_RESOLVED,
    DEPLOYED,
    SYNCED,
    TARGET_READY,
    deployed_fields,
    derive_status,
    find_drift,
)
from fairlead.controllers.apps.targets import (
    AppTarget,
    AppTargets,
    deploying_user,
    is_same_target,
    prepare_namespace,
    remove_binding,
    target_field,
)
from fairlead.controllers.helm.chart import Chart, Release
from fairlead.controllers.helm.deploy import ReleaseRunner
from fairlead.controllers.helm.slots import WAITING_FOR_HELM_SLOT
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.prerequisites import NO_PROJECT, InstanceConfig, InstanceContext
from fairlead.controllers.instances.remote_errors import ERROR, INFO, WARNING, InstanceError, translate_errors
from fairlead.controllers.instances.remote_instance import ABANDON_ANNOTATION, HELM_SLOT_RETRY_SECONDS, is_abandoned
from fairlead.controllers.instances.remote_namespace import get_or_none
from fairlead.controllers.instances.status import record_transition
from fairlead.controllers.runtime.backoff import REQUEUE_SECONDS, InstanceBackoff
from fairlead.core.backoff import add_jitter
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, add_finalizer, get_path, has_finalizer, metadata, name_of, remove_finalizer
from fairlead.domain.app_resolution import ResolvedApp, find_app_definition, resolve_app
from fairlead.domain.password_parameters import hidden_values, hide_passwords, redact_conditions
from fairlead.domain.template_resolution import ResolutionError
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.app_instance import APP_INSTANCE, TARGETS
from fairlead.kinds.instances.fields import READY
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, is_true, record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

FINALIZER = "service.sh/app-release"
CHECK_SECONDS = 60.0
"""How often the release in the cluster is compared with what was deployed."""


class AppInstanceController:
    name, workers = "app-instances", 16

    def __init__(
        self,
        registry: Registry,
        config: InstanceConfig,
        clusters: ClusterAccess,
        runner: ReleaseRunner,
        repositories: Sequence[str] = (),
    ) -> None:
        group = config.api_group
        plurals = (APP_INSTANCE.plural, APP.plural, *(plural for plural, _ in TARGETS.values()))
        self.watches = tuple((group, plural) for plural in plurals)
        self._registry = registry
        self._group = group
        self._config = config
        self._context = InstanceContext(registry, config)
        self._targets = AppTargets(registry, group, clusters)
        self._runner = runner
        self._repositories = repositories
        self._resource = registry.resource(group, APP_INSTANCE.plural)
        self._backoff = InstanceBackoff(registry.clock)
        self._observed: dict[Key, object] = {}
        """The relevant state of each possible target, as last observed."""

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The instance itself; for an App or a target, the instances that name it, if a relevant part has changed."""
        if key[1] == APP_INSTANCE.plural:
            return (key,)
        if key[1] != APP.plural and not self._has_changed(key, entry):
            return ()
        field = next((f"spec.target.{field}.name" for field, (plural, _) in TARGETS.items() if plural == key[1]), "")
        entries = self._registry.view.entries(self._group, APP_INSTANCE.plural, key[2])
        return [each.key for each in entries if each.fields.get(field or "spec.appRef.name") == key[3]]

    def _has_changed(self, key: Key, entry: Entry | None) -> bool:
        state = _relevant_state(decode(entry)) if entry is not None else None
        if state == self._observed.get(key):
            return False
        if state is None:
            del self._observed[key]
        else:
            self._observed[key] = state
        return True

    async def reconcile(self, key: Key) -> float | None:
        entry = self._resource.get_cached(key[2], key[3])
        if entry is None:
            self._backoff.forget((key[2], key[3]))
            return None
        instance = decode(entry)
        try:
            if "deletionTimestamp" in metadata(instance):
                return await self._remove(instance) if has_finalizer(instance, FINALIZER) else None
            if await self._hide_passwords(instance):
                return None  # that write triggers the next reconcile
            wait = self._backoff.remaining_seconds((key[2], key[3]), self._attempt_inputs(instance))
            return wait or await self._ensure(instance)
        except NotFound:  # it was deleted meanwhile
            return None

    def _attempt_inputs(self, instance: Object) -> object:
        """All inputs that the outcome of a try depends on."""
        app = self._find_app(instance)
        target = self._targets.find_object(instance)
        meta = metadata(instance)
        known = metadata(app).get("resourceVersion") if app is not None else None
        return meta["uid"], meta.get("generation"), known, _relevant_state(target) if target is not None else None

    def _find_app(self, instance: Object) -> Object | None:
        entry = self._registry.resource(self._group, APP.plural).get_cached(
            "", get_path(instance, "spec.appRef.name") or ""
        )
        return decode(entry) if entry is not None else None

    async def _ensure(self, instance: Object) -> float | None:
        """Runs the steps in order, up to the first that fails."""
        key = (metadata(instance)["namespace"], name_of(instance))
        done = list[Object]()
        stage = APP_RESOLVED
        try:
            app, resolved = self._resolve_app(instance)
            done.append(condition(APP_RESOLVED, TRUE, "Resolved", _describe_version(resolved)))
            stage = TARGET_READY
            target = self._targets.resolve(instance)
            _check_clusters(app, target)
            stage = DEPLOYED
            release = self._build_release(instance, app, resolved, target)
            instance = await self._claim(instance, target, release)
            stage = TARGET_READY
            await prepare_namespace(target, instance, release.impersonate_user, self._config.confinement.chart_role)
            done.append(condition(TARGET_READY, TRUE, "Usable", f'the namespace is "{target.namespace}"'))
            stage = DEPLOYED
            fields = await self._deploy(instance, target, release, resolved)
        except InstanceError as error:
            await self._write_status(instance, (*done, error.as_condition(stage)))
            if error.reason == WAITING_FOR_HELM_SLOT:
                return add_jitter(HELM_SLOT_RETRY_SECONDS)
            return self._backoff.record_failure(key, self._attempt_inputs(instance), error)
        self._backoff.forget(key)
        done.append(condition(DEPLOYED, TRUE, "Deployed", f'release "{release.name}" is deployed'))
        done.append(condition(SYNCED, TRUE, "Synced", "the release is as it was deployed"))
        await self._write_status(instance, done, **fields)
        return add_jitter(CHECK_SECONDS)

    def _resolve_app(self, instance: Object) -> tuple[Object, ResolvedApp]:
        if self._context.project(instance) is None:
            message = f'namespace "{metadata(instance)["namespace"]}" belongs to no project; create it in one'
            raise InstanceError(NO_PROJECT, message, ERROR)
        app = self._find_app(instance)
        try:
            return app or {}, resolve_app(instance, app)
        except ResolutionError as error:
            raise InstanceError(error.reason, error.message, ERROR) from None

    def _build_release(self, instance: Object, app: Object, resolved: ResolvedApp, target: AppTarget) -> Release:
        self._runner.require_program()
        chart = build_chart(resolved.config)
        check_repository(app, chart, self._repositories)
        user = deploying_user(instance, app, target)
        name = get_path(instance, "spec.releaseName")
        values = resolved.config.get("values") or ""
        return Release(
            name=name,
            namespace=target.namespace,
            chart=chart,
            values=values,
            impersonate_user=user,
            waits=bool(get_path(app, "spec.wait")),
        )

    async def _claim(self, instance: Object, target: AppTarget, release: Release) -> Object:
        """Adds the finalizer and records the release before anything is created. Returns the updated instance."""
        if (other := self._find_other_owner(instance)) is not None:
            message = (
                f'release "{release.name}" belongs to "{other}"; delete one of the two, or use another releaseName'
            )
            raise InstanceError("ReleaseConflict", message, ERROR)
        key = metadata(instance)["namespace"], name_of(instance)
        if not has_finalizer(instance, FINALIZER):
            await self._resource.modify(*key, lambda current: add_finalizer(current, FINALIZER), server_write_options())
        known = instance.get("status") or {}
        is_confined = bool(known.get("deployedConfined")) or bool(release.impersonate_user)
        if (known.get("targetUID"), bool(known.get("deployedConfined"))) != (target.uid, is_confined):
            await self._write_status(instance, (), targetUID=target.uid, deployedConfined=is_confined)
        return decode(await self._resource.get(*key))

    def _find_other_owner(self, instance: Object) -> str | None:
        """An older instance with the same release, if there is one."""
        place = _release_place(instance)
        meta = metadata(instance)
        namespace = "" if target_field(instance) == "cluster" else meta["namespace"]
        for entry in self._registry.view.entries(self._group, APP_INSTANCE.plural, namespace):
            if entry.key[2:] == (meta["namespace"], meta["name"]):
                continue
            other = decode(entry)
            age, own_age = ((metadata(each)["creationTimestamp"], metadata(each)["uid"]) for each in (other, instance))
            if _release_place(other) == place and age < own_age:
                return f"{entry.key[2]}/{entry.key[3]}"
        return None

    async def _deploy(self, instance: Object, target: AppTarget, release: Release, resolved: ResolvedApp) -> Object:
        """Runs helm if the release is not deployed as wanted. Returns the new status fields."""
        meta = metadata(instance)
        role = self._config.confinement.chart_role
        now = timestamp(self._registry.clock.now())
        record = await read_deployed_release(target, release, role)
        if record is not None and not get_path(instance, "status.release.name"):
            message = (
                f'a release "{release.name}" exists in namespace "{release.namespace}", and was not deployed by this; '
                "uninstall it, or delete this and create it with another releaseName"
            )
            raise InstanceError("ReleaseConflict", message, ERROR)
        drift = find_drift(instance, record)
        if drift is not None:
            await self._report_drift(instance, *drift, now)
        elif record is not None and get_path(instance, "status.deployHash") == release.hash:
            return {}
        if not get_path(instance, "status.release.name"):
            await self._write_status(instance, (), release={"name": release.name, "namespace": release.namespace})
        await self._runner.install(meta["uid"], meta["namespace"], target.release_target, release)
        record = await read_deployed_release(target, release, role)
        if record is None:
            message = "helm has deployed the release, but the cluster has no record of it; this is retried"
            raise InstanceError("ReleaseMissing", message, WARNING)
        return {**deployed_fields(instance, target, record, resolved, now), "deployHash": release.hash}

    async def _report_drift(self, instance: Object, reason: str, message: str, now: str) -> None:
        known = get_path(instance, "status.drift") or {}
        if (find_condition(instance.get("status"), SYNCED) or {}).get("message") == message:
            return  # it is reported already, and deploying it again has failed
        drift = {"time": now, "reason": reason, "message": message, "count": int(known.get("count") or 0) + 1}
        await self._write_status(instance, (condition(SYNCED, FALSE, reason, message, WARNING),), drift=drift)
        await record_event(self._registry, instance, reason, message, type="Warning")

    async def _remove(self, instance: Object) -> float | None:
        found = self._targets.find_object(instance)
        left_behind = ""
        if found is None or "deletionTimestamp" in metadata(found) or not is_same_target(instance, found):
            left_behind = ""  # what was deployed is deleted with the target
        elif is_abandoned(instance):
            left_behind = f'release "{get_path(instance, "spec.releaseName")}" was not uninstalled'
        elif get_path(instance, "status.release.name"):
            try:
                if is_true(instance.get("status"), READY):  # it must not say Ready while parts are missing
                    message = "the release is being uninstalled"
                    await self._write_status(instance, (condition(DEPLOYED, FALSE, "Uninstalling", message, INFO),))
                await self._uninstall(instance, self._targets.locate(instance, found))
            except InstanceError as error:
                message = (
                    f"the release cannot be uninstalled: {error.message}; to delete this and leave the release behind, "
                    f"annotate it with {ABANDON_ANNOTATION}=true"
                )
                blocked = InstanceError(error.reason, message, error.severity)
                await self._write_status(instance, (blocked.as_condition(DEPLOYED),))
                waits_for_slot = error.reason == WAITING_FOR_HELM_SLOT
                return add_jitter(HELM_SLOT_RETRY_SECONDS if waits_for_slot else REQUEUE_SECONDS)
        self._runner.forget(metadata(instance)["uid"])
        if left_behind:
            await record_event(self._registry, instance, "Abandoned", left_behind, type="Warning")
        with suppress(NotFound):
            await self._resource.modify(
                metadata(instance)["namespace"],
                name_of(instance),
                lambda current: remove_finalizer(current, FINALIZER),
                server_write_options(),
            )
        return None

    async def _uninstall(self, instance: Object, target: AppTarget) -> None:
        """Uninstalls the release and checks that it is gone: without its RoleBinding, helm may not even see it."""
        user, role = deploying_user(instance, None, target), self._config.confinement.chart_role
        release = Release(get_path(instance, "spec.releaseName"), target.namespace, Chart("", ""), "", user)
        with translate_errors(target.release_target.name, "uninstall the release"):
            if await get_or_none(target.api(), target.namespace_path) is None:
                return
            await prepare_namespace(target, instance, user, role)
            await self._runner.uninstall(metadata(instance)["namespace"], target.release_target, release)
            if await read_deployed_release(target, release, role) is not None:
                raise InstanceError(
                    "ReleaseNotRemoved", "helm has not uninstalled the release; this is retried", WARNING
                )
            if user:
                await remove_binding(target, instance)

    async def _hide_passwords(self, instance: Object) -> bool:
        """Hides password parameters that were stored before their App existed. Returns whether it wrote."""

        def edit(current: Object) -> Object:
            try:
                definition = find_app_definition(current, self._find_app(current))
            except ResolutionError:
                return current
            spec = hide_passwords(current.get("spec") or {}, definition.parameters or (), hidden_values(current))
            return current if spec is None else {**current, "spec": spec}

        if edit(instance) == instance:
            return False
        key = metadata(instance)["namespace"], name_of(instance)
        await self._resource.modify(*key, edit, server_write_options())
        return True

    async def _write_status(self, instance: Object, conditions: Sequence[Object], **fields: object) -> None:
        """Writes conditions, which were determined for `instance` as passed, and other fields; None removes a field."""
        now, before = timestamp(self._registry.clock.now()), instance

        def edit(current: Object) -> Object:
            nonlocal before
            before, meta = current, metadata(current)
            if meta["uid"] != metadata(instance)["uid"]:
                return current
            known = {**(current.get("status") or {}), **fields}
            status = {name: value for name, value in known.items() if value is not None}
            is_same = meta.get("generation") == metadata(instance).get("generation")
            shown = redact_conditions(instance, conditions) if is_same else ()
            return {**current, "status": derive_status(current, status, shown, now)}

        namespace = metadata(instance)["namespace"]
        name = name_of(instance)
        entry = self._resource.get_cached(namespace, name)
        if entry is None or edit(current := decode(entry)) == current:
            return
        await self._resource.modify(namespace, name, edit, server_write_options("status"))
        await record_transition(self._registry, before, edit(before)["status"])


def _relevant_state(target: Object) -> object:
    """The parts of a target that matter for what is deployed into it."""
    meta = metadata(target)
    known = tuple(get_path(target, f"status.{field}") for field in ("phase", "online"))
    return meta["uid"], meta.get("generation"), meta.get("deletionTimestamp"), *known


def _release_place(instance: Object) -> object:
    return get_path(instance, "spec.target"), get_path(instance, "spec.releaseName")


def _describe_version(resolved: ResolvedApp) -> str:
    if not resolved.version:
        return "the App is resolved"
    newer = resolved.newest_version
    hint = f"; {newer} is available" if newer and newer != resolved.version else ""
    return f"version {resolved.version} of the App is resolved{hint}"


def _check_clusters(app: Object, target: AppTarget) -> None:
    allowed = get_path(app, "spec.clusters") or ()
    if allowed and target.cluster not in allowed:
        message = f'the app is only for the clusters {", ".join(allowed)}, and the target is in "{target.cluster}"'
        raise InstanceError("ClusterNotAllowed", f"{message}; change spec.clusters of the app, or delete this", ERROR)
