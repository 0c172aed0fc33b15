"""Reconciles AppInstances: deploys an App with Helm, upgrades it, repairs changes by others, and uninstalls it.

An instance is deployed again when its spec or its App changes, and when its release in the cluster differs from what
was deployed, which is checked every minute. Rolling back is a change of the spec to a former version and parameters,
which `status.history` has. A finalizer delays its deletion until the release is uninstalled. What is deployed in a
space or a virtual cluster is deleted with it; the deletion waits for that. What stays behind, as in a cluster that was
disconnected, is reported by the condition `Deployed` of its last state, and by an Event.
"""

from collections.abc import Callable, Iterable, Sequence

from fairlead.controllers.apps.chart_logins import ChartLogins
from fairlead.controllers.apps.charts import build_annotations, build_chart, check_repository
from fairlead.controllers.apps.left_behind import describe_abandoned, find_left_behind
from fairlead.controllers.apps.script_jobs import (
    SCRIPT_FAILED,
    START_SECONDS,
    ScriptJob,
    build_script,
    delete_script_objects,
)
from fairlead.controllers.apps.status import (
    APP_RESOLVED,
    DEPLOYED,
    NOT_COMPARED,
    SYNCED,
    TARGET_READY,
    deployed_fields,
    derive_status,
)
from fairlead.controllers.apps.targets import (
    TARGET_DELETING,
    AppTarget,
    AppTargets,
    deploying_user,
    is_same_target,
    prepare_namespace,
    remove_binding,
)
from fairlead.controllers.helm.attempts import Attempt, RunReason, read_attempt
from fairlead.controllers.helm.chart import Chart, Release, check_timeout
from fairlead.controllers.helm.deploy import HELM_MISSING_REMARK, ReleaseRunner
from fairlead.controllers.helm.deployments import CHECK_SECONDS, Deployment, Deployments, read_release_revisions
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.controllers.instances.instance_reconciler import InstanceReconciler, ReconcileAttempt, Removal
from fairlead.controllers.instances.prerequisites import (
    NO_PROJECT,
    InstanceConfig,
    InstanceContext,
    ObservedStates,
)
from fairlead.controllers.instances.remote_errors import (
    ERROR,
    INFO,
    WARNING,
    InstanceError,
    StillDeleting,
    translate_errors,
)
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.backoff import add_jitter
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object
from fairlead.domain.app_resolution import ResolvedApp, find_app_definition, resolve_app
from fairlead.domain.app_scripts import has_script
from fairlead.domain.password_parameters import hidden_values, hide_passwords
from fairlead.domain.template_resolution import ResolutionError
from fairlead.domain.typed_objects import ABANDON_ANNOTATION, App, AppInstance, TypedObject
from fairlead.kinds.clusters.app import APP
from fairlead.kinds.instances.app_instance import APP_INSTANCE, TARGETS
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, UNKNOWN, condition, record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.kube_client import get_or_none

FINALIZER = "service.sh/app-release"


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
        self._chart_role = config.confinement.chart_role
        self._context = InstanceContext(registry, config)
        self._targets = AppTargets(registry, group, clusters)
        self._runner = runner
        self._deployments = Deployments(runner)
        self._repositories = repositories
        self._logins = ChartLogins(registry, config)
        self._instances = InstanceReconciler(
            registry, (group, APP_INSTANCE.plural), AppInstance, FINALIZER, derive=derive_status
        )
        self._observed = ObservedStates()

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The instance itself; for an App or a target, the instances that name it, if a relevant part has changed."""
        if key[1] == APP_INSTANCE.plural:
            return (key,)
        if key[1] != APP.plural:
            state = TypedObject(decode(entry)).target_state if entry is not None else None
            if not self._observed.has_changed(key, state):
                return ()
        field = next((f"spec.target.{field}.name" for field, (plural, _) in TARGETS.items() if plural == key[1]), "")
        entries = self._registry.view.entries(self._group, APP_INSTANCE.plural, key[2])
        return [each.key for each in entries if each.fields.get(field or "spec.appRef.name") == key[3]]

    def subscribe(self, requeue: Requeue) -> Callable[[], None]:
        """A free slot for helm triggers a reconcile, too."""
        return self._runner.subscribe((self._group, APP_INSTANCE.plural), requeue)

    async def reconcile(self, key: Key) -> float | None:
        instance = self._instances.find(key)
        if instance is None:
            return None
        if instance.is_deleting:
            return await self._remove(instance) if self._instances.has_finalizer(instance) else None
        try:
            if await self._hide_passwords(instance):
                return None  # that write triggers the next reconcile
        except NotFound:  # it was deleted meanwhile
            return None
        if self._targets.is_asleep(instance) and instance.is_deployed_as_wanted:
            return None  # it is as deployed as what it is in; the wake-up triggers the next reconcile
        return await self._instances.run(instance, self._attempt_inputs, self._ensure)

    def _attempt_inputs(self, instance: AppInstance) -> object:
        """All inputs that the outcome of a try depends on."""
        app = self._find_app(instance)
        target = self._targets.find_object(instance)
        known = app.meta.get("resourceVersion") if app is not None else None
        return instance.uid, instance.generation, known, target.target_state if target is not None else None

    def _find_app(self, instance: AppInstance) -> App | None:
        entry = self._registry.resource(self._group, APP.plural).get_cached("", instance.app_name)
        return App(decode(entry)) if entry is not None else None

    async def _ensure(self, run: ReconcileAttempt[AppInstance]) -> float:
        """The steps to Ready, in order."""
        instance = run.instance
        run.stage = APP_RESOLVED
        app, resolved = self._resolve_app(instance)
        run.done(APP_RESOLVED, "Resolved", _describe_version(resolved))

        run.stage = TARGET_READY
        target = self._targets.resolve(instance)
        _check_clusters(app, target)

        run.stage = DEPLOYED
        if not instance.release.get("name"):
            self._runner.require_program()  # before anything is created
        release, job = self._build_release(instance, app, resolved, target)
        instance = run.instance = await self._claim(instance, target, release)

        run.stage = TARGET_READY
        await prepare_namespace(target, instance, release.impersonate_user, self._chart_role)
        run.done(TARGET_READY, "Usable", f'the namespace is "{target.namespace}"')

        run.stage = DEPLOYED
        await self._deploy(run, app, target, release, resolved, job)
        await self._instances.write_status(instance, run.conditions, **run.fields)
        return add_jitter(CHECK_SECONDS)

    def _resolve_app(self, instance: AppInstance) -> tuple[App, ResolvedApp]:
        if self._context.project(instance) is None:
            message = f'namespace "{instance.namespace}" belongs to no project; create it in one'
            raise InstanceError(NO_PROJECT, message, ERROR)
        app = self._find_app(instance)
        try:
            resolved = resolve_app(instance.raw, app.raw if app is not None else None)
        except ResolutionError as error:
            raise InstanceError(error.reason, error.message, ERROR) from None
        return app or App({}), resolved

    def _build_release(
        self, instance: AppInstance, app: App, resolved: ResolvedApp, target: AppTarget
    ) -> tuple[Release, ScriptJob | None]:
        """The release, and the Job in it if the App is a script."""
        timeout = check_timeout(app.timeout, "spec", "fix the app")
        script = build_script(app, resolved)
        job = ScriptJob(script, instance.release_name, instance.uid, target, timeout) if script is not None else None
        chart = job.build_chart() if job is not None else build_chart(resolved.config)
        check_repository(app, chart, self._repositories)
        release = Release(
            name=instance.release_name,
            namespace=target.namespace,
            chart=chart,
            values=resolved.config.get("values") or "",
            impersonate_user=deploying_user(instance, app, target),
            waits=app.waits,
            timeout=timeout if job is None else timeout + START_SECONDS,
            annotations=build_annotations(resolved.config),
        )
        return release, job

    async def _claim(self, instance: AppInstance, target: AppTarget, release: Release) -> AppInstance:
        """Adds the finalizer and records the target before anything is created. Returns the updated instance."""
        if (other := self._find_other_owner(instance)) is not None:
            message = (
                f'release "{release.name}" belongs to "{other}"; delete one of the two, or use another releaseName'
            )
            raise InstanceError("ReleaseConflict", message, ERROR)
        claimed = await self._instances.claim(instance)
        is_confined = claimed.was_confined or bool(release.impersonate_user)
        recorded = {
            "targetUID": target.uid,
            "deployedConfined": is_confined,
            "namespaceInCluster": target.namespace_in_cluster,
        }
        if (claimed.target_uid, claimed.was_confined, claimed.namespace_in_cluster) != tuple(recorded.values()):
            await self._instances.write_status(claimed, (), **recorded)
        return claimed

    def _find_other_owner(self, instance: AppInstance) -> str | None:
        """An older instance with the same release, if there is one."""
        namespace = "" if instance.target_field == "cluster" else instance.namespace
        for entry in self._registry.view.entries(self._group, APP_INSTANCE.plural, namespace):
            if entry.key[2:] == instance.key:
                continue
            other = AppInstance(decode(entry))
            is_same = (other.target, other.release_name) == (instance.target, instance.release_name)
            if is_same and _age(other) < _age(instance):
                return f"{entry.key[2]}/{entry.key[3]}"
        return None

    async def _deploy(
        self,
        run: ReconcileAttempt[AppInstance],
        app: App,
        target: AppTarget,
        release: Release,
        resolved: ResolvedApp,
        job: ScriptJob | None,
    ) -> None:
        """Runs helm if the release is not deployed as wanted."""
        instance = run.instance
        _check_failed_script(instance, release)
        if not instance.release.get("name"):
            await self._check_unused(target, release)
            recorded = {"name": release.name, "namespace": release.namespace}
            instance = run.instance = await self._instances.write_status(instance, (), release=recorded)

        async def begin(attempt: Attempt) -> None:
            await self._instances.record(run.instance, lastAttempt=attempt.as_fields(), deployHash="")

        wanted = Deployment(
            key=self._instances.key_of(instance),
            uid=instance.uid,
            project=instance.namespace,
            generation=instance.generation,
            target=target.release_target,
            release=release,
            attempt=read_attempt(instance.last_attempt),
            deploy_hash=instance.deploy_hash,
            digest=instance.release.get("digest") or "",
            begin=begin,
            report=lambda why: self._report_drift(instance, why),
            role=self._chart_role,
            is_unproven=instance.condition(SYNCED).get("reason") == NOT_COMPARED,
            complete_chart=lambda chart: self._logins.complete(chart, app.raw, instance.namespace),
        )
        if job is not None:
            wanted.before_run = lambda: job.prepare(wanted.api(), release.impersonate_user)
            wanted.confirm = lambda: job.confirm(wanted.api())
            wanted.explain = lambda error: job.explain(wanted.api(), error)
        try:
            record = await self._deployments.ensure(wanted, checks_always=True)
        except InstanceError:
            if wanted.attempt is not None:
                run.fields["lastAttempt"] = wanted.attempt.as_fields()
            raise
        if record is not None:
            now = timestamp(self._registry.clock.now())
            run.fields |= deployed_fields(instance, target, record, resolved, now)
            run.fields["deployHash"] = release.hash
        if wanted.attempt is not None:
            run.fields["lastAttempt"] = wanted.attempt.as_fields()
        missing = "" if self._runner.has_program() else HELM_MISSING_REMARK
        run.done(DEPLOYED, "Deployed", f'release "{release.name}" is deployed{missing}')
        remark = self._deployments.remark(wanted)
        if self._deployments.is_unproven(wanted):
            message = (
                f"helm has deployed the release after a failure, but none of its objects was compared with it{remark}; "
                "check them in the cluster, then change the parameters or the App to deploy it anew"
            )
            run.conditions.append(condition(SYNCED, UNKNOWN, NOT_COMPARED, message))
        else:
            run.done(SYNCED, "Synced", f"the release is as it was deployed{remark}")

    async def _check_unused(self, target: AppTarget, release: Release) -> None:
        """Raises InstanceError if there is a release of that name already, before the first deployment."""
        revisions = await read_release_revisions(target.release_target, release, self._chart_role)
        if revisions and not revisions[0].is_removed:
            message = (
                f'a release "{release.name}" exists in namespace "{release.namespace}", and was not deployed by this; '
                "uninstall it, or delete this and create it with another releaseName"
            )
            raise InstanceError("ReleaseConflict", message, ERROR)

    async def _report_drift(self, instance: AppInstance, why: RunReason) -> None:
        """Reports why it is deployed again. What others have done is recorded, too."""
        if instance.condition(SYNCED).get("message") == why.message:
            return  # it is reported already, and deploying it again has failed
        synced = condition(SYNCED, FALSE, why.reason, why.message, WARNING)
        if not why.is_foreign:
            await self._instances.write_status(instance, (synced,))
            return
        count = int(instance.drift.get("count") or 0) + 1
        now = timestamp(self._registry.clock.now())
        drift = {"time": now, "reason": why.reason, "message": why.message, "count": count}
        await self._instances.write_status(instance, (synced,), drift=drift)
        await record_event(self._registry, instance.raw, why.reason, why.message, type="Warning")

    async def _remove(self, instance: AppInstance) -> float | None:
        target = self._targets.find_object(instance)
        if target is not None and not is_same_target(instance, target):
            target = None
        if not instance.release.get("name"):
            left_behind = ""  # nothing was deployed
        elif instance.is_abandoned:
            left_behind = describe_abandoned(instance)
        elif target is not None and (instance.target_field == "cluster" or not target.is_deleting):
            place = self._targets.locate(instance, target)
            return await self._instances.clean_up(instance, self._removal(instance, place))
        elif target is not None and instance.namespace_in_cluster:
            return await self._instances.clean_up(instance, _wait_for_target(instance))
        else:
            left_behind = await find_left_behind(self._targets, instance)
        self._deployments.forget(instance.uid)
        if left_behind:
            await self._instances.abandon(instance, DEPLOYED, left_behind)
        else:
            await self._instances.release(instance)
        return None

    def _removal(self, instance: AppInstance, target: AppTarget) -> Removal:
        def blocked(error: InstanceError) -> Sequence[Object]:
            message = (
                f"the release cannot be uninstalled: {error.message}; to delete this and leave the release behind, "
                f"annotate it with {ABANDON_ANNOTATION}=true"
            )
            return (condition(DEPLOYED, FALSE, error.reason, message, error.severity),)

        begins = condition(DEPLOYED, FALSE, "Uninstalling", "the release is being uninstalled", INFO)
        return Removal(lambda: self._uninstall(instance, target), blocked, begins=(begins,))

    async def _uninstall(self, instance: AppInstance, target: AppTarget) -> None:
        """Uninstalls the release and checks that it is gone: without its RoleBinding, helm may not even see it."""
        user = deploying_user(instance, None, target)
        release = Release(instance.release_name, target.namespace, Chart("", ""), "", user)
        with translate_errors(target.release_target.name, "uninstall the release"):
            if await get_or_none(target.api(), target.namespace_path) is not None:
                await prepare_namespace(target, instance, user, self._chart_role)
                key = self._instances.key_of(instance)
                await self._runner.uninstall(instance.namespace, target.release_target, release, key)
                revisions = await read_release_revisions(target.release_target, release, self._chart_role)
                if revisions and not revisions[0].is_removed:
                    raise InstanceError(
                        "ReleaseNotRemoved", "helm has not uninstalled the release; this is retried", WARNING
                    )
                if self._has_script(instance):
                    await delete_script_objects(target.api(), target, instance.release_name, instance.uid)
                if user:
                    await remove_binding(target, instance)
        self._deployments.forget(instance.uid)

    def _has_script(self, instance: AppInstance) -> bool:
        """Whether its App is a script, in any version. An App that is in use cannot be deleted."""
        app = self._find_app(instance)
        spec = app.spec if app is not None else {}
        return any(has_script(each) for each in (spec.get("config"), *(spec.get("versions") or ())))

    async def _hide_passwords(self, instance: AppInstance) -> bool:
        """Hides password parameters that were stored before their App existed. Returns whether it wrote."""

        def edit(current: Object) -> Object:
            app = self._find_app(AppInstance(current))
            try:
                definition = find_app_definition(current, app.raw if app is not None else None)
            except ResolutionError:
                return current
            spec = hide_passwords(current.get("spec") or {}, definition.parameters or (), hidden_values(current))
            return current if spec is None else {**current, "spec": spec}

        if edit(instance.raw) == instance.raw:
            return False
        resource = self._registry.resource(self._group, APP_INSTANCE.plural)
        await resource.modify(*instance.key, edit, server_write_options())
        return True


def _check_failed_script(instance: AppInstance, release: Release) -> None:
    """A script that has failed is not run again as it is: it may have done a part of its work. Raises InstanceError."""
    last = read_attempt(instance.last_attempt)
    if last is None or last.reason != SCRIPT_FAILED or last.has_succeeded:
        return
    if (last.hash, last.generation) == (release.hash, instance.generation):
        message = instance.condition(DEPLOYED).get("message") or "the script has failed"
        raise InstanceError(SCRIPT_FAILED, message, ERROR)


def _wait_for_target(instance: AppInstance) -> Removal:
    """The removal of what is deleted with its space or virtual cluster, while that is being deleted."""

    async def wait() -> None:
        noun = TARGETS[instance.target_field][1]
        message = (
            f'the {noun} "{instance.target_name}" is being deleted, and the release with it; to delete this at once, '
            f"annotate it with {ABANDON_ANNOTATION}=true"
        )
        raise StillDeleting(TARGET_DELETING, message, INFO)

    def describe(remaining: InstanceError) -> Sequence[Object]:
        return (remaining.as_condition(DEPLOYED),)

    return Removal(tear_down=wait, blocked=describe, waiting=describe)


def _age(instance: AppInstance) -> tuple[str, str]:
    return instance.meta["creationTimestamp"], instance.uid


def _describe_version(resolved: ResolvedApp) -> str:
    if not resolved.version:
        return "the App is resolved"
    newer = resolved.newest_version
    hint = f"; {newer} is available" if newer and newer != resolved.version else ""
    return f"version {resolved.version} of the App is resolved{hint}"


def _check_clusters(app: App, target: AppTarget) -> None:
    if app.clusters and target.cluster not in app.clusters:
        listed = ", ".join(app.clusters)
        message = f'the app is only for the clusters {listed}, and the target is in "{target.cluster}"'
        raise InstanceError("ClusterNotAllowed", f"{message}; change spec.clusters of the app, or delete this", ERROR)
