"""A cluster with one node, for the engine `kubernetes`: Pods whose scripts are run, as processes of this machine.

Objects, statuses and streams are those that were seen on a real Kubernetes 1.35 with containerd. Containers share the
file system of the machine: a claim is a folder, and a mount is a symbolic link to it. The first process of a workspace
is not run, because its end would end all processes of the machine; processes of `exec` are, and stay when their
connection ends, as on a real node.

    with WorkspaceNode(folder) as node:
        node.build_kubeconfig()          what the runner is given
        node.folders                     the paths inside containers
        node.statuses["image"] = ...     what Pods with that image show for ever, for example `record("never-pull")`
"""

import asyncio
import json
import shutil
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from fairlead.core.objects import Object, deep_copy
from fairlead.runner.engines.kubernetes.settings import Folders
from fairlead.runner.engines.process_trees import MARK
from fairlead.runner.engines.sessions import Session, find_session, new_mark, start_session
from tests.fake_cluster.exchange import CannedResponse, RecordedRequest, build_json_response
from tests.fake_cluster.kube import FakeKube
from tests.fake_cluster.pods import CLOSE_STDIN, STDERR, STDIN, STDOUT, PodWebSocket, build_exit_status
from tests.fake_cluster.port_forward import forward_port
from tests.fake_cluster.server import FakeCluster
from tests.runner.harness.processes import list_pids

RECORDINGS = Path(__file__).parents[1] / "runner/engines/kubernetes/recordings/pods.json"
RESIZE = b"\x04"
SUCCESS = b'{"metadata":{},"status":"Success"}'
NO_CONTAINER: Object = {
    "metadata": {},
    "status": "Failure",
    "message": 'Internal error occurred: unable to upgrade connection: container not found ("workspace")',
    "reason": "InternalError",
    "details": {"causes": [{"message": 'unable to upgrade connection: container not found ("workspace")'}]},
    "code": 500,
}
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"


def record(name: str) -> Object:
    """The status of a Pod, as a real cluster showed it."""
    recordings: Object = json.loads(RECORDINGS.read_bytes())
    return dict(recordings[name]["status"])


class WorkspaceNode:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folders = Folders(str(folder / "private"), str(folder / "workspaces"), str(folder / "volume"))
        self.kube = FakeKube()
        self.cluster = FakeCluster(self._respond)
        self.statuses: dict[str, Object] = {}
        self.denied: dict[str, tuple[int, str, str]] = {}
        """Errors for creates, by plural: status, reason and message."""
        self.keeps_terminating = False
        """Whether Pods are not removed, as on a node that does not respond."""
        self.offers_v5 = True
        self.logs: dict[tuple[str, str], bytes] = {}
        self.sockets: list[PodWebSocket] = []
        self._sessions: list[Session] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # --- for tests ----------------------------------------------------------------------------------------------------

    def build_kubeconfig(self, namespace: str = "dev") -> bytes:
        text = self.cluster.build_kubeconfig().decode()
        return text.replace(
            "    cluster: fake\n    user: fake", f"    cluster: fake\n    namespace: {namespace}\n    user: fake"
        ).encode()

    def list_objects(self) -> list[str]:
        return sorted(path.partition("/namespaces/dev/")[2] for path in self.kube.objects)

    def get(self, path: str) -> Object:
        found = next(each for name, each in self.kube.objects.items() if name.endswith(path))
        return deep_copy(found)

    def end_pod(self, name: str, status: Object) -> None:
        """Lets a Pod end by itself."""
        self.kube.edit_object(f"/api/v1/namespaces/dev/pods/{name}", lambda pod: pod.update(status=status))

    def __enter__(self) -> Self:
        for path in (self.folders.private, self.folders.workspaces):
            Path(path).mkdir(parents=True)
        self.cluster.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.cluster._run(self._end())
        self.cluster.__exit__(*exception)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions:
            await (session.kill() if session.podman.returncode is None else session.stdin.release())

    # --- objects ------------------------------------------------------------------------------------------------------

    def _respond(self, request: RecordedRequest) -> CannedResponse | None:
        parts = request.path.split("/")
        if parts[-1] == "log":
            return None
        plural = parts[-1] if request.method == "POST" else parts[-2]
        body = json.loads(request.body) if request.body else None
        if request.method == "POST" and plural in self.denied:
            status, reason, message = self.denied[plural]
            failure = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
            return build_json_response(failure, status)
        if request.method == "PATCH" and request.path in self.kube.objects:
            self.kube.edit_object(request.path, lambda obj: _merge(obj, body or {}))
            return build_json_response(self.kube.objects[request.path])
        if (
            request.method == "DELETE"
            and request.path in self.kube.objects
            and plural in ("pods", "persistentvolumeclaims")
        ):
            self._delete(request.path, plural, body or {})
            return build_json_response({"kind": "Status", "status": "Success"})
        status, response = self.kube.handle_request(request.method, request.target, body)
        if request.method == "POST" and status == 201 and plural == "pods":
            self._add_pod(f"{request.path}/{response['metadata']['name']}")
        return build_json_response(response, status)

    def _delete(self, path: str, plural: str, options: Object) -> None:
        is_first = "deletionTimestamp" not in self.kube.objects[path]["metadata"]
        self._edit(path, lambda obj: obj["metadata"].setdefault("deletionTimestamp", _now()))
        is_stuck = plural == "pods" and self.keeps_terminating
        if (is_first and not is_stuck) or (is_stuck and options.get("gracePeriodSeconds") == 0):
            self._spawn(self._finish_deletion(path, plural))

    async def _finish_deletion(self, path: str, plural: str) -> None:
        await asyncio.sleep(0.05)
        if plural == "persistentvolumeclaims":
            self._edit(path, lambda claim: claim["metadata"].update(finalizers=[CLAIM_PROTECTION]))
            while any("/pods/" in each and path.rpartition("/")[2] in each for each in self.kube.objects):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            shutil.rmtree(self._claim_folder(path.rpartition("/")[2]), ignore_errors=True)
        removed = self.kube.objects.pop(path, None)
        uid = removed["metadata"]["uid"] if removed else ""
        owned = [
            each
            for each, obj in self.kube.objects.items()
            if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ())
        ]
        for each in owned:  # garbage collection
            del self.kube.objects[each]

    def _edit(self, path: str, change: Any) -> None:
        if path in self.kube.objects:
            self.kube.edit_object(path, change)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Pods ---------------------------------------------------------------------------------------------------------

    def _add_pod(self, path: str) -> None:
        async def execute(request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            return await self._execute(path, request, reader, writer)

        async def send_log(
            request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> bool:
            key = (path, request.query["container"])
            is_followed = request.query.get("follow") == "true"
            while is_followed and key not in self.logs and path in self.kube.objects:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            writer.write(CannedResponse(200, self.logs.get(key, b""), "text/plain").encode(request.method))
            return True

        self.cluster.set_upgrade_behaviour(f"{path}/exec", execute)
        self.cluster.set_upgrade_behaviour(f"{path}/portforward", forward_port)
        self.cluster.set_behaviour(f"{path}/log", send_log)
        self._spawn(self._run_pod(path))

    async def _run_pod(self, path: str) -> None:
        spec = self.kube.objects[path]["spec"]
        containers, inits = spec["containers"], spec.get("initContainers") or []
        status = self.statuses.get(containers[0]["image"])
        if status is not None:
            self._edit(path, lambda pod: pod.update(status=status))
            return
        ended: list[Object] = []
        for index, container in enumerate(inits):
            waiting = [_state(each["name"], waiting={"reason": "PodInitializing"}) for each in inits[index + 1 :]]
            running = _state(container["name"], running={"startedAt": _now()})
            self._report(path, "Pending", [*ended, running, *waiting], [])
            ended.append(await self._run_container(path, spec, container))
            if ended[-1]["state"]["terminated"]["exitCode"]:
                self._report(path, "Failed", ended, [])
                return
        main = containers[0]
        if main["name"] == "workspace":
            self._mount(path, spec, main)
            self._report(path, "Running", ended, [_state("workspace", running={"startedAt": _now()})])
            return
        last = await self._run_container(path, spec, main)
        phase = "Failed" if last["state"]["terminated"]["exitCode"] else "Succeeded"
        self._report(path, phase, ended, [last])

    async def _run_container(self, path: str, spec: Object, container: Object) -> Object:
        self._mount(path, spec, container)
        command = [word.replace("$$", "$") for word in container["command"]]
        session = await self._start(command, self._environment(path, container))
        await session.stdin.close()
        output, errors = await asyncio.gather(_read_all(session.stdout), _read_all(session.stderr))
        code = await session.wait()
        self.logs[(path, container["name"])] = output + errors
        reason = "Error" if code else "Completed"
        return _state(container["name"], terminated={"exitCode": code, "reason": reason, "finishedAt": _now()})

    async def _start(self, command: list[str], environment: dict[str, str], tty: bool = False) -> Session:
        mark = new_mark("node")
        environment[MARK] = mark
        processes = find_session(mark, list_pids)
        session = await start_session(command, processes, environment, (80, 24) if tty else None)
        self._sessions.append(session)
        return session

    def _report(self, path: str, phase: str, inits: list[Object], containers: list[Object]) -> None:
        status = {"phase": phase, "initContainerStatuses": inits, "containerStatuses": containers}
        self._edit(path, lambda pod: pod.update(status=status))

    def _environment(self, path: str, container: Object) -> dict[str, str]:
        environment = {"PATH": PATH}
        for each in container.get("env") or ():
            if "value" in each:
                environment[each["name"]] = each["value"].replace("$$", "$")
            else:
                ref = each["valueFrom"]["secretKeyRef"]
                data = self.kube.objects[f"{path.partition('/pods/')[0]}/secrets/{ref['name']}"]["data"]
                environment[each["name"]] = b64decode(data[ref["key"]]).decode()
        return environment

    def _claim_folder(self, name: str) -> Path:
        return self.folder / "claims" / name

    def _mount(self, path: str, spec: Object, container: Object) -> None:
        volumes = {each["name"]: each for each in spec["volumes"]}
        self._unmount(Path(self.folders.volume))
        for mount in container.get("volumeMounts") or ():
            target, volume = Path(mount["mountPath"]), volumes[mount["name"]]
            if "persistentVolumeClaim" in volume:
                source = self._claim_folder(volume["persistentVolumeClaim"]["claimName"]) / mount.get("subPath", "")
                source.mkdir(parents=True, exist_ok=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                target.symlink_to(source)
            elif "secret" in volume:
                secret = self.kube.objects[f"{path.partition('/pods/')[0]}/secrets/{volume['secret']['secretName']}"]
                target.mkdir(exist_ok=True)
                for item in volume["secret"]["items"]:
                    (target / item["path"]).write_bytes(b64decode(secret["data"][item["key"]]))

    def _unmount(self, folder: Path) -> None:
        """What an earlier container had there."""
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)  # it does not follow the links

    # --- exec ---------------------------------------------------------------------------------------------------------

    async def _execute(
        self, path: str, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if not self.offers_v5:
            headers = tuple((name, value.replace("v5.channel.k8s.io, ", "")) for name, value in request.headers)
            request = RecordedRequest(request.method, request.target, headers, b"", request.connection)
        websocket = PodWebSocket(request, reader, writer)
        self.sockets.append(websocket)
        websocket.send(STDOUT)
        pod = self.kube.objects.get(path) or {}
        if (pod.get("status") or {}).get("phase") != "Running":
            websocket.end(json.dumps(NO_CONTAINER).encode())
            return False
        query = parse_qs(urlsplit(request.target).query)
        environment = self._environment(path, pod["spec"]["containers"][0])
        session = await self._start(query["command"], environment, query["tty"] == ["true"])
        feeding = asyncio.get_running_loop().create_task(_feed(websocket, session))
        try:
            await asyncio.gather(
                _copy(session.stdout, websocket, STDOUT),
                _copy(session.stderr, websocket, STDERR),
                _race(session, feeding),
            )
            if not feeding.done():
                code = await session.wait()
                websocket.end(SUCCESS if code == 0 else build_exit_status(code))
                await feeding
        finally:
            feeding.cancel()
        return False


async def _race(session: Session, feeding: "asyncio.Task[None]") -> None:
    """Returns when the process or the connection has ended. The process does not notice the latter."""
    waiting = asyncio.create_task(session.wait())
    try:
        await asyncio.wait((waiting, feeding), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _feed(websocket: PodWebSocket, session: Session) -> None:
    async for message in websocket.messages():
        if message == CLOSE_STDIN:
            await session.stdin.close()
        elif message[:1] == STDIN:
            await session.stdin.write(message[1:])
        elif message[:1] == RESIZE:
            size = json.loads(message[1:])
            await session.resize(size["Width"], size["Height"])


async def _copy(reader: Any, websocket: PodWebSocket, channel: bytes) -> None:
    while data := await reader.read(32768):
        websocket.send(channel + data)


async def _read_all(reader: Any) -> bytes:
    parts = []
    while data := await reader.read(65536):
        parts.append(data)
    return b"".join(parts)


def _merge(obj: Object, change: Mapping[str, Any]) -> None:
    """JSON merge patch."""
    for name, value in change.items():
        if value is None:
            obj.pop(name, None)
        elif isinstance(value, dict) and isinstance(obj.get(name), dict):
            _merge(obj[name], value)
        else:
            obj[name] = value


def _state(name: str, **state: Object) -> Object:
    return {"name": name, "state": state, "ready": "running" in state}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
