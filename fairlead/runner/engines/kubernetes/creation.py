"""`up`: from a specification to a running Pod.

Each part finds out what is there already, so a runner that is killed meanwhile just begins again: the next one goes on
with the Pods that carry the ID of the task.

The source is fetched into the claim in a Pod of its own, which also prints the devcontainer.json: the image of the
workspace is known only afterwards. Git runs in its init container, as the engine `devcontainer` runs it in its sandbox:
with no configuration but its own, the protocol of the source only, without hooks and submodules.
"""

import asyncio
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from fairlead.core.objects import Object, annotations_of, labels_of, metadata
from fairlead.runner.engines.contract import (
    COMMANDS_STEP,
    EngineError,
    ExecOptions,
    ImageSource,
    Reason,
    is_variable_name,
)
from fairlead.runner.engines.devcontainer.grant import TASK_LABEL, TEMPLATE_LABEL
from fairlead.runner.engines.kubernetes import scripts
from fairlead.runner.engines.kubernetes.allowed_places import choose_clone_image
from fairlead.runner.engines.kubernetes.configuration import MAX_BYTES, DevContainer, default_image, read_dev_container
from fairlead.runner.engines.kubernetes.manifests import (
    CLONE,
    CONFIGURATION,
    SECRET_ENVIRONMENT,
    Plan,
    build_claim,
    build_network_policy,
    build_owner_reference,
    build_pod,
    build_secret,
    build_source_pod,
    list_secrets,
)
from fairlead.runner.engines.kubernetes.observation import (
    describe_end,
    find_end,
    has_ended,
    is_running,
    is_terminating,
    list_statuses,
)
from fairlead.runner.engines.kubernetes.place import (
    CLAIMS,
    PODS,
    POLICIES,
    SECRETS,
    Waiter,
    remove_pods,
    request_pod_removal,
)
from fairlead.runner.engines.kubernetes.records import Record, Session
from fairlead.runner.engines.kubernetes.scripts import SessionScript
from fairlead.runner.engines.kubernetes.sessions import Inside, Pipe, choose_user
from fairlead.runner.engines.kubernetes.settings import Deadlines
from fairlead.runner.engines.masking import LineLog
from fairlead.runner.engines.records import RecordFolder
from fairlead.runner.engines.sessions import new_mark
from fairlead.runner.engines.specification import read_environment

MAX_LOG_BYTES = 2 * MAX_BYTES


async def fetch_source(waiter: Waiter, plan: Plan, image: str) -> str:
    """The devcontainer.json, or an empty text. A Pod that an earlier process of the runner created goes on."""
    place = waiter.place
    await place.cluster.create(place.collection(PODS), build_source_pod(plan, image))
    await waiter.wait_for_pod(place.source_pod_path, _has_begun)
    lines = LineLog(waiter.task, plan.spec.secrets.values())
    async for data in place.cluster.stream_log(place.source_pod_path, CLONE):
        lines.feed(data)
    lines.end()
    pod = await waiter.wait_for_pod(place.source_pod_path, lambda pod: False)
    end = find_end(pod, CLONE)
    if end is None or end.get("exitCode"):
        if end is not None and not lines.last_line:
            lines.feed(await place.cluster.read_log(place.source_pod_path, CLONE, MAX_LOG_BYTES))
            lines.end()
        message = lines.last_line or describe_end(pod)
        raise EngineError(Reason.CLONE_FAILED, f"the source could not be fetched: {message}")
    log = await place.cluster.read_log(place.source_pod_path, CONFIGURATION, MAX_LOG_BYTES)
    configuration = parse_output(log)
    await place.cluster.delete(place.source_pod_path)
    if plan.options.access_mode == "ReadWriteOncePod":
        await waiter.wait_until_gone(place.source_pod_path)
    return configuration


def parse_output(log: bytes) -> str:
    """The devcontainer.json from what the container printed."""
    first, *lines = log.decode("ascii", "replace").split("\n")
    try:
        if first not in (scripts.FOUND, scripts.MISSING):
            raise ValueError(first)
        content = b64decode("".join(lines[: lines.index(scripts.END)]))
    except ValueError:
        message = log.decode(errors="replace").strip().rpartition("\n")[2]
        raise EngineError(Reason.CONFIGURATION_INVALID, f"the devcontainer.json could not be read: {message}") from None
    if len(content) > MAX_BYTES:
        raise EngineError(Reason.CONFIGURATION_INVALID, "the devcontainer.json is larger than 1 MiB")
    return content.decode("utf-8", "replace")


def _has_begun(pod: Object) -> bool:
    """Whether the clone has a log."""
    return any(not (each.get("state") or {}).get("waiting") for each in list_statuses(pod, CLONE))


@dataclass(slots=True)
class Creation:
    """One `up` of one workspace."""

    waiter: Waiter
    plan: Plan
    records: RecordFolder[Record]
    record: Record
    has_pod: bool = field(default=False, init=False)
    """Whether there is a Pod that this task goes on with."""
    may_withdraw: bool = field(default=False, init=False)
    """Whether a failure removes the Pod: not one that ran before, in which there may be sessions."""

    @property
    def deadlines(self) -> Deadlines:
        return self.waiter.settings.deadlines

    async def run(self) -> None:
        try:
            async with self.waiter.step("Prepare", self.deadlines.prepare):
                await self._prepare()
            container = await self._configure()
            async with self.waiter.step("Start", self.deadlines.start):
                pod = await self._start(container)
        except EngineError:
            await self._withdraw()
            raise
        except asyncio.CancelledError:
            if self.waiter.task.is_cancelled:  # else the next runner goes on
                await self._withdraw()
            raise
        await self._run_commands(container)
        uid = str(metadata(pod)["uid"])
        self._update(ready_pod=uid, ready_template=self.plan.spec.template_hash)

    def _update(self, **changes: object) -> None:
        self.record = self.records.put(msgspec.structs.replace(self.record, **changes))

    async def _withdraw(self) -> None:
        """A workspace that did not come up leaves its claim only."""
        if not self.may_withdraw:
            return
        try:
            await request_pod_removal(self.waiter.place)
        except EngineError as error:
            self.waiter.task.log(f"the Pod could not be removed: {error.message}\n".encode())

    # --- before the Pod -----------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        place, waiter, spec = self.waiter.place, self.waiter, self.plan.spec
        pod, source_pod = await waiter.read(place.list_pods)
        self.has_pod = pod is not None and self._can_continue(pod)
        self.may_withdraw = not (self.has_pod and is_running(pod))
        has_obsolete_source = source_pod is not None and not self._is_own(source_pod)
        if not self.has_pod and (pod is not None or has_obsolete_source):
            await remove_pods(waiter)
        elif has_obsolete_source:  # it has done its work, and is still ending
            await place.cluster.delete(place.source_pod_path)
            await waiter.wait_until_gone(place.source_pod_path)
        claim = await waiter.read(lambda: place.cluster.get(place.path(CLAIMS)))
        if is_terminating(claim):
            waiter.say("an earlier claim of this workspace is being deleted")
            await remove_pods(waiter)
            await waiter.wait_until_gone(place.path(CLAIMS))
            claim, self.has_pod = None, False
        if claim is None:
            self._update(configuration=None)
            await place.cluster.create(place.collection(CLAIMS), build_claim(self.plan))
        if self.plan.options.network_policy:
            await place.cluster.create(place.collection(POLICIES), build_network_policy(self.plan))
        else:
            await place.cluster.delete(place.path(POLICIES))
        if spec.limits.processes is not None:
            self.waiter.task.log(b"the limit of processes is not applied: in a cluster, it is a setting of the nodes\n")

    def _is_own(self, pod: Object) -> bool:
        """Whether this task created the Pod, and it has not ended."""
        task_id = labels_of(pod).get(TASK_LABEL)
        return task_id == self.plan.task_id and not has_ended(pod) and not is_terminating(pod)

    def _can_continue(self, pod: Object) -> bool:
        spec = self.plan.spec
        template = annotations_of(pod).get(TEMPLATE_LABEL) or ""
        return self._is_own(pod) or (spec.accepts(template) and is_running(pod))

    async def _configure(self) -> DevContainer:
        """The configuration stays the same until the container is to be replaced: edits of the file in the work folder
        apply then."""
        spec, configuration = self.plan.spec, self.record.configuration
        is_outdated = spec.recreate or spec.reset or self.record.ready_template != spec.template_hash
        if isinstance(spec.source, ImageSource):
            configuration = ""
        elif configuration is None or (is_outdated and not self.has_pod):
            async with self.waiter.step("Clone", self.deadlines.clone):
                image = choose_clone_image(spec, self.plan.options, self.waiter.settings)
                await self._put_secret()
                configuration = await fetch_source(self.waiter, self.plan, image)
        async with self.waiter.step("Configure", self.deadlines.prepare):
            if spec.dev_container:
                content: bytes | None = read_environment(spec, default_image(spec, self.plan.options))
            else:
                content = configuration.encode() if configuration else None
            options, work_folder = self.plan.options, self.plan.work_folder
            container = await asyncio.to_thread(read_dev_container, content, spec, options, work_folder)
            self._update(configuration=configuration)
        return container

    async def _put_secret(self) -> None:
        """Replaces the values of an earlier task."""
        place, secret = self.waiter.place, build_secret(self.plan)
        if secret["data"] and not await place.cluster.create(place.collection(SECRETS), secret):
            await place.cluster.patch(place.path(SECRETS), {"data": secret["data"]})

    # --- the Pod ------------------------------------------------------------------------------------------------------

    async def _start(self, container: DevContainer) -> Object:
        place, plan = self.waiter.place, self.plan
        if not self.has_pod:
            if list_secrets(plan.spec):
                await self._put_secret()
            self.waiter.task.log(f"Starting {container.image}\n".encode())
            await place.cluster.create(place.collection(PODS), build_pod(plan, container))
        pod = await self.waiter.wait_for_pod(place.path(PODS), is_running)
        if not is_running(pod):
            raise EngineError(Reason.START_FAILED, f"the Pod ended: {describe_end(pod)}")
        await self._bind_secret(pod)
        await self._describe(container)
        return pod

    async def _bind_secret(self, pod: Object) -> None:
        """From now on, the Secret goes with the Pod. It does not keep the credentials of the clone."""
        removed = {f"clone.{name}": None for name in SECRET_ENVIRONMENT}
        change = {"metadata": {"ownerReferences": [build_owner_reference(pod)]}, "data": removed}
        if self.plan.spec.secrets:
            await self.waiter.place.cluster.patch(self.waiter.place.path(SECRETS), change)

    async def _describe(self, container: DevContainer) -> None:
        """Finds out who the user is, and whether the work folder is writable before the first session."""
        inside = Inside(self.waiter.place, self.plan.folders)
        variables = {"SESSION_USER": container.user, "FOLDER": self.plan.work_folder}
        result = await self.waiter.read(lambda: inside.run_script(scripts.DESCRIBE, variables))
        number, _, user = result.output.decode(errors="replace").strip().partition(" ")
        if not number:
            message = result.errors.decode(errors="replace").strip() or "it has no usable /bin/sh"
            raise EngineError(Reason.START_FAILED, f"the image cannot be used: {message}")
        if result.code != 0:
            raise EngineError(
                Reason.START_FAILED,
                f"user {user} cannot write to the work folder; the storage class must support the option `user`",
            )
        self._update(session=Session(user, number, container.folder, dict(container.remote_environment)))

    # --- lifecycle commands -------------------------------------------------------------------------------------------

    async def _run_commands(self, container: DevContainer) -> None:
        if not container.commands:
            return
        running = ""
        try:
            async with self.waiter.step(COMMANDS_STEP, self.deadlines.commands):
                for running, parts in container.commands.items():
                    await self._run_command(running, parts)
        except EngineError as error:
            if error.reason == Reason.STEP_TIMED_OUT:
                raise EngineError(error.reason, f"{running}: {error.message}", error.step) from error
            raise

    async def _run_command(self, name: str, parts: Mapping[str, str]) -> None:
        self.waiter.task.log(f"Running {name}\n".encode())
        codes = await asyncio.gather(*(self._run_script(script) for script in parts.values()))
        failed = [f"{name} {part}".strip() for part, code in zip(parts, codes, strict=True) if code != 0]
        if failed:
            code = next(code for code in codes if code != 0)
            raise EngineError(Reason.COMMAND_FAILED, f"{', '.join(failed)} failed with exit code {code}")

    async def _run_script(self, script: str) -> int:
        session, spec = self.record.session, self.plan.spec
        inside = Inside(self.waiter.place, self.plan.folders)
        process = await inside.start(
            SessionScript(
                mark=new_mark(spec.uid),
                command=("/bin/sh", "-c", script),
                folder=session.folder,
                user=choose_user("", session.user, session.container_user),
                environment={name: spec.secrets[name] for name in list_secrets(spec) if is_variable_name(name)},
                expressions=session.environment,
            ),
            ExecOptions(),
        )
        try:
            await process.stdin.close()
            await asyncio.gather(*(self._copy_log(pipe) for pipe in (process.stdout, process.stderr)))
            return await process.wait()
        finally:
            await process.kill()

    async def _copy_log(self, pipe: Pipe) -> None:
        lines = LineLog(self.waiter.task, self.plan.spec.secrets.values())
        while data := await pipe.read():
            lines.feed(data)
        lines.end()
