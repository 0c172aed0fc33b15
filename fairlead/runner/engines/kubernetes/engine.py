"""`KubernetesEngine`: a Pod and a claim in a cluster for each workspace."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairlead.core.machine.findings import Finding
from fairlead.core.objects import labels_of, metadata
from fairlead.core.waiting import start_task
from fairlead.runner.engines.contract import (
    ByteStream,
    ContainerState,
    EngineError,
    EngineStatus,
    ExecOptions,
    GitSource,
    Limits,
    ListeningPort,
    Process,
    Reason,
    TaskContext,
    WorkspaceSpec,
    invalid_configuration,
)
from fairlead.runner.engines.devcontainer.grant import RUNNER_LABEL, UID_LABEL
from fairlead.runner.engines.devcontainer.preparation import project_name
from fairlead.runner.engines.devcontainer.settings import Settings as CloneSettings
from fairlead.runner.engines.devcontainer.sources import plan_fetch
from fairlead.runner.engines.kubernetes import scripts
from fairlead.runner.engines.kubernetes.allowed_places import AllowedPlaces, check_untrusted
from fairlead.runner.engines.kubernetes.contexts import Contexts, diagnose
from fairlead.runner.engines.kubernetes.creation import Creation
from fairlead.runner.engines.kubernetes.manifests import Plan, object_name, runner_label, source_pod_name
from fairlead.runner.engines.kubernetes.observation import build_status
from fairlead.runner.engines.kubernetes.place import (
    CLAIMS,
    PODS,
    Place,
    Waiter,
    find_installations,
    list_labelled,
    remove_everything,
    remove_pods,
)
from fairlead.runner.engines.kubernetes.ports import open_port, parse_ports
from fairlead.runner.engines.kubernetes.records import NO_SESSION, Record
from fairlead.runner.engines.kubernetes.scripts import SessionScript
from fairlead.runner.engines.kubernetes.sessions import Inside, choose_user
from fairlead.runner.engines.kubernetes.settings import Settings, check_permissions, parse_options
from fairlead.runner.engines.records import RecordFolder
from fairlead.runner.engines.sessions import new_mark


@dataclass(slots=True)
class KubernetesEngine:
    settings: Settings
    name: str = "kubernetes"
    contexts: Contexts = field(init=False)
    places: AllowedPlaces = field(init=False)
    records: RecordFolder[Record] = field(init=False)
    _observed: dict[str, tuple[float, EngineStatus]] = field(default_factory=dict)
    _visited: set[str] = field(default_factory=set)
    """Workspaces in which the sessions of earlier processes of the runner were ended."""
    _visits: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.contexts = Contexts(self.settings.kubeconfig, self.settings.call_seconds)
        self.places = AllowedPlaces(self.settings, self.contexts)
        self.records = RecordFolder(self.settings.state_folder / "workspaces", Record)

    async def check(self) -> Sequence[Finding]:
        return await diagnose(self.contexts)

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def up(self, spec: WorkspaceSpec, task: TaskContext) -> None:
        if spec.is_prebuild:
            raise invalid_configuration("the engine kubernetes builds no images; use a runner with devcontainer")
        record = await self._choose_record(spec, task)
        place = self._open(record)
        status = await self._observe(place, record)
        if status.state is ContainerState.RUNNING and spec.accepts(status.template_hash) and record.ready_pod:
            pod = await place.get_pod()
            if pod is not None and metadata(pod)["uid"] == record.ready_pod:
                return
        plan = self._plan(spec, record, task)
        self._observed.pop(spec.uid, None)
        try:
            await Creation(Waiter(place, self.settings, task), plan, self.records, record).run()
        finally:
            self._observed.pop(spec.uid, None)

    async def close(self) -> None:
        """It runs nothing for itself."""

    async def adopt(self, uid: str, task: TaskContext) -> bool:
        """Always false: `up` itself goes on with the Pods that carry the ID of the task, and has the secrets."""
        return False

    async def stop(self, uid: str, task: TaskContext) -> None:
        place = await self._locate(uid)
        if place is None:
            return
        waiter = Waiter(place, self.settings, task)
        async with waiter.step("Stop", self.settings.deadlines.stop):
            await remove_pods(waiter)
        self._observed.pop(uid, None)

    async def delete(self, uid: str, task: TaskContext) -> None:
        place = await self._locate(uid)
        if place is not None:
            await remove_everything(place, self.settings, task)
        self.records.remove(uid)
        self._observed.pop(uid, None)

    # --- status -------------------------------------------------------------------------------------------------------

    async def status(self, uid: str) -> EngineStatus:
        now = asyncio.get_running_loop().time()
        known = self._observed.get(uid)
        if known is not None and now - known[0] < self.settings.status_seconds:
            return known[1]
        place = await self._locate(uid)
        record = self.records.get(uid)
        if place is None:
            return EngineStatus(ContainerState.NOT_FOUND)
        status = await self._observe(place, record)
        self._observed[uid] = (now, status)
        return status

    async def list_workspaces(self) -> Mapping[str, EngineStatus]:
        found: dict[str, EngineStatus] = {}
        places, failures = self._list_places(), []
        for context, namespace in sorted(places):
            try:
                found |= await self._list_place(context, namespace)
            except EngineError as error:
                failures.append(error)
        if failures and len(failures) == len(places):
            raise failures[0]
        return found

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def exec(self, uid: str, command: Sequence[str], options: ExecOptions) -> Process:
        inside = await self._enter(uid)
        record = self.records.get(uid)
        session = record.session if record is not None else NO_SESSION
        script = SessionScript(
            mark=new_mark(uid),
            command=tuple(command),
            folder=options.folder or session.folder or "/",
            user=choose_user(options.user, session.user, session.container_user),
            environment=options.environment,
            expressions=session.environment,
        )
        return await inside.start(script, options)

    async def list_ports(self, uid: str) -> Sequence[ListeningPort]:
        inside = await self._enter(uid)
        result = await inside.run_script(scripts.LIST_PORTS, {})
        return parse_ports(result.output.decode(errors="replace"))

    async def open_port(self, uid: str, port: int) -> ByteStream:
        inside = await self._enter(uid)
        return await open_port(inside.place, port)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _open(self, record: Record) -> Place:
        return Place(self.contexts.open(record.cluster), record.namespace, record.uid)

    async def _choose_record(self, spec: WorkspaceSpec, task: TaskContext) -> Record:
        """Where the workspace is, or shall be. It stays where its claim is until a reset."""
        options = parse_options(spec.options)
        check_permissions(spec.permissions)
        check_untrusted(spec, options)
        context, namespace = self.places.choose(options)
        chosen = Record(spec.uid, context, namespace, project_name(spec.name))
        known = self.records.get(spec.uid)
        if known is None:
            await self._check_owner(context, namespace, spec.uid)
        if known is None or (known.cluster, known.namespace) == (context, namespace):
            return self.records.put(known or chosen)
        if (await self._observe(self._open(known), known)).state is ContainerState.NOT_FOUND:
            return self.records.put(chosen)
        if not spec.reset:
            self.places.check(known.cluster, known.namespace)
            if not spec.is_trusted:
                message = f"the workspace is in namespace {known.namespace} of {known.cluster}, and its template is not"
                advice = (
                    "name a template for that namespace, or bring it up with a reset, which fetches the source anew"
                )
                raise EngineError(Reason.POLICY_VIOLATION, f"{message} trusted to leave it there; {advice}")
            task.log(f"the workspace stays in namespace {known.namespace} of {known.cluster} until a reset\n".encode())
            return known
        await remove_everything(self._open(known), self.settings, task)
        return self.records.put(chosen)

    async def _check_owner(self, context: str, namespace: str, uid: str) -> None:
        """Raises EngineError if another runner has the workspace in this namespace: an `up` would take over its claim,
        with all that is on it."""
        listed = await list_labelled(self.contexts.open(context), namespace, f"{UID_LABEL}={uid}")
        for each in (each for objects in listed.values() for each in objects):
            if labels_of(each).get(RUNNER_LABEL) != runner_label(self.settings.runner):
                message = f"another runner has a workspace with the uid {uid} in namespace {namespace}"
                raise EngineError(Reason.POLICY_VIOLATION, f"{message}; delete it there, or choose another namespace")

    def _plan(self, spec: WorkspaceSpec, record: Record, task: TaskContext) -> Plan:
        defaults = self.settings.default_limits
        clone_settings = CloneSettings(
            self.settings.state_folder, self.settings.runner, protocols=self.settings.protocols
        )
        fetch = plan_fetch(spec.source, clone_settings, spec.secrets, spec.clone_strategy)
        return Plan(
            spec=spec,
            options=parse_options(spec.options),
            folders=self.settings.folders,
            limits=Limits(spec.limits.memory_bytes or defaults.memory_bytes, spec.limits.cpus or defaults.cpus),
            runner=self.settings.runner,
            task_id=task.task_id,
            project=record.project,
            fetch=fetch.variables if isinstance(spec.source, GitSource) else {},
        )

    async def _observe(self, place: Place, record: Record | None) -> EngineStatus:
        pod, source_pod = await place.list_pods()
        claim = await place.cluster.get(place.path(CLAIMS)) if pod is None and source_pod is None else None
        return build_status(pod, source_pod, claim, record.session if record is not None else NO_SESSION)

    async def _enter(self, uid: str) -> Inside:
        """The inside of a running workspace. Sessions that an earlier process of the runner left there are ended."""
        place = await self._locate(uid)
        status = await self.status(uid)
        if place is None or status.state is not ContainerState.RUNNING:
            raise EngineError(Reason.NOT_RUNNING, "the workspace is not running")
        inside = Inside(place, self.settings.folders)
        if uid not in self._visited:
            self._visited.add(uid)
            await inside.end_stale_sessions()
        return inside

    async def _locate(self, uid: str) -> Place | None:
        """By the record; if that is lost, by the labels in the namespaces of the kubeconfig. What another runner has
        made there is none of this one, whatever the server says."""
        if (record := self.records.get(uid)) is not None:
            return self._open(record)
        for context, namespace in sorted(self._list_places()):
            selector = f"{UID_LABEL}={uid},{RUNNER_LABEL}={runner_label(self.settings.runner)}"
            listed = await list_labelled(self.contexts.open(context), namespace, selector)
            for each in (each for objects in listed.values() for each in objects):
                found = Record(uid, context, str(metadata(each)["namespace"]))
                return self._open(self.records.put(found))
        return None

    def _list_places(self) -> set[tuple[str, str]]:
        """Contexts and namespaces in which this runner may have workspaces. An empty namespace means all of them."""
        contexts = self.contexts.list_names()
        places = {(name, self.contexts.find_namespace(name)) for name in contexts}
        return places | {(each.cluster, each.namespace) for each in self.records.records() if each.cluster in contexts}

    async def _list_place(self, context: str, namespace: str) -> dict[str, EngineStatus]:
        selector = f"{RUNNER_LABEL}={runner_label(self.settings.runner)}"
        listed = await list_labelled(self.contexts.open(context), namespace, selector)
        by_name = {(plural, metadata(each)["name"]): each for plural, objects in listed.items() for each in objects}
        found = {}
        for uid, installation in find_installations(listed).items():
            record = self.records.get(uid)
            if record is None and installation is None:
                continue  # made by an earlier version, and not known here: it may be of another installation
            pod = by_name.get((PODS, object_name(uid)))
            claim = by_name.get((CLAIMS, object_name(uid)))
            source_pod = by_name.get((PODS, source_pod_name(uid)))
            status = build_status(pod, source_pod, claim, record.session if record else NO_SESSION)
            if record is None:
                found[uid] = replace(status, installation=installation or "")
            else:
                found[uid] = status
                self._visit(uid, status)
        return found

    def _visit(self, uid: str, status: EngineStatus) -> None:
        """Ends sessions of earlier processes of the runner, in the background."""
        if status.state is ContainerState.RUNNING and uid not in self._visited:
            start_task(self._visits, self._end_stale_sessions(uid))

    async def _end_stale_sessions(self, uid: str) -> None:
        try:
            await self._enter(uid)
        except EngineError:
            self._visited.discard(uid)
