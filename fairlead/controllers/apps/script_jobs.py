"""The script of an App as a Job in the target cluster: its objects, what it has said, and their removal.

Helm deploys it, as a release whose objects are all hooks: it creates them in order, and waits for the end of the Job.
So the permissions, the attempts, the timeout and the history are those of other Apps, and a script runs whenever its
release is deployed. The script itself, its parameters, and the account and binding with the ClusterRole exist while it
runs; then Helm deletes them. The Job stays for an hour, with its pod, to be looked at.

The pod has no permissions in the cluster unless the App names a ClusterRole, which is bound in the namespace of a
space, and in all of a cluster or virtual cluster.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.controllers.apps.charts import is_trusted
from fairlead.controllers.apps.targets import AppTarget
from fairlead.controllers.helm.chart import Chart
from fairlead.controllers.helm.missing_rules import PERMISSIONS_MISSING
from fairlead.controllers.instances.remote_errors import ERROR, WARNING, InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import (
    MANAGED_LABEL,
    MANAGED_VALUE,
    UID_LABEL,
    list_items,
    uid_precondition,
    url_segment,
)
from fairlead.controllers.instances.role_bindings import BINDING_PREFIX, RBAC
from fairlead.core import yaml
from fairlead.core.objects import Object, get_path, labels_of, metadata, name_of
from fairlead.domain.app_resolution import ResolvedApp
from fairlead.domain.app_scripts import AppScript, build_variables, find_script_problems, has_script
from fairlead.domain.typed_objects import App
from fairlead.kinds.instances.templates import TRUST_ANNOTATION
from fairlead.upstream.kube_client import KubeApi, RemoteApiError, delete_if_exists, get_or_none

SCRIPT_FAILED, SCRIPT_UNCONFIRMED = "ScriptFailed", "ScriptUnconfirmed"
START_SECONDS = 60
"""That Helm waits beyond the timeout of the script: the Job fails first, and says why."""
GRACE_SECONDS = 10
"""Between SIGTERM and SIGKILL, for a script that exceeds its timeout. It is a part of START_SECONDS."""
FINISHED_SECONDS = 3600
"""How long a Job stays after its end."""
MAX_LOG_LINES, MAX_LOG_BYTES, MAX_SHOWN_CHARACTERS = 20, 8_192, 1_500
USER_ID = 65532
MOUNT, SCRIPT_FILE, SCRATCH = "/fairlead", "script", "/tmp"
LIMITS: Mapping[str, str] = {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "1Gi"}
REQUESTS: Mapping[str, str] = {"cpu": "50m", "memory": "64Mi"}
POD_SECURITY: Object = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_CONTAINER = "script"
_FOR_THE_RUN = "before-hook-creation,hook-succeeded"
_FOR_LATER = "before-hook-creation"


def build_script(app: App, resolved: ResolvedApp) -> AppScript | None:
    """The script of an App; None if it has none. Raises InstanceError."""
    if not has_script(resolved.config):
        return None
    bash = resolved.config["bash"]
    for field, problem in find_script_problems(bash):
        raise InstanceError("InvalidScript", f"config.bash.{field} {problem}; fix the app", ERROR)
    variables, reason = build_variables(resolved.values)
    if reason:
        raise InstanceError("InvalidScript", f"the script cannot run: {reason}", ERROR)
    script = AppScript(
        text=bash["script"],
        image=bash["image"],
        cluster_role=bash.get("clusterRole") or "",
        pod_security_context=bash.get("podSecurityContext") or {},
        security_context=bash.get("securityContext") or {},
        variables=variables,
    )
    if script.is_privileged and not is_trusted(app):
        message = (
            "the app was not written by an administrator, so its script may have no clusterRole, podSecurityContext "
            f"and securityContext; remove them, or ask an administrator to review the app and annotate it with "
            f"{TRUST_ANNOTATION}=true"
        )
        raise InstanceError("ScriptNotAllowed", message, ERROR)
    return script


@dataclass(slots=True)
class ScriptJob:
    """The script of the instance with this uid, as the release of that name. `former` is the uid of the Job of the run
    before, which says nothing about this one."""

    script: AppScript
    release: str
    uid: str
    target: AppTarget
    seconds: int
    former: str = ""

    @property
    def name(self) -> str:
        """Of all its objects but a ClusterRoleBinding. Names of releases have at most 53 characters."""
        return script_name(self.release)

    def build_chart(self) -> Chart:
        documents = (yaml.encode(each).decode() for each in self._build_objects())
        return Chart("manifests", "", manifests="---\n".join(documents))

    def _build_objects(self) -> Iterator[Object]:
        content = {SCRIPT_FILE: self.script.text}
        yield self._hook("v1", "Secret", self.name, -10, _FOR_THE_RUN, immutable=True, data=_encode(content))
        if self.script.variables:
            name = variables_name(self.release)
            data = _encode(self.script.variables)
            yield self._hook("v1", "Secret", name, -10, _FOR_THE_RUN, immutable=True, data=data)
        if self.script.cluster_role:
            yield self._hook("v1", "ServiceAccount", self.name, -10, _FOR_THE_RUN, automountServiceAccountToken=False)
            yield self._build_binding()
        yield self._build_job()

    def _build_binding(self) -> Object:
        is_in_namespace = self.target.field == "spaceInstance"
        return self._hook(
            f"{RBAC}/v1",
            "RoleBinding" if is_in_namespace else "ClusterRoleBinding",
            self.name if is_in_namespace else cluster_binding_name(self.uid),
            -5,
            _FOR_THE_RUN,
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": self.script.cluster_role},
            subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": self.target.namespace}],
        )

    def _build_job(self) -> Object:
        path = f"{MOUNT}/{SCRIPT_FILE}"
        has_interpreter = self.script.text.startswith("#!")
        has_role = bool(self.script.cluster_role)
        container: Object = {
            "name": _CONTAINER,
            "image": self.script.image,
            "command": [path] if has_interpreter else ["bash", path],
            "workingDir": SCRATCH,
            "env": [
                {"name": "HOME", "value": SCRATCH},
                {"name": "NAMESPACE", "value": self.target.namespace},
                {"name": "RELEASE", "value": self.release},
            ],
            "resources": {"limits": dict(LIMITS), "requests": dict(REQUESTS)},
            "securityContext": {**CONTAINER_SECURITY, **self.script.security_context},
            "volumeMounts": [
                {"name": "script", "mountPath": MOUNT, "readOnly": True},
                {"name": "scratch", "mountPath": SCRATCH},
            ],
        }
        if self.script.variables:
            container["envFrom"] = [{"secretRef": {"name": variables_name(self.release)}}]
        pod: Object = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": has_role,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": {**POD_SECURITY, **self.script.pod_security_context},
            "containers": [container],
            "volumes": [
                {"name": "script", "secret": {"secretName": self.name, "defaultMode": 0o555}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "256Mi"}},
            ],
        }
        if has_role:
            pod["serviceAccountName"] = self.name
        spec = {
            "backoffLimit": 0,
            "activeDeadlineSeconds": self.seconds,
            "ttlSecondsAfterFinished": FINISHED_SECONDS,
            "template": {"metadata": {"labels": self._labels()}, "spec": pod},
        }
        return self._hook("batch/v1", "Job", self.name, 0, _FOR_LATER, spec=spec)

    def _hook(self, version: str, kind: str, name: str, weight: int, deletion: str, **fields: Any) -> Object:
        """An object that Helm creates by its weight, each time that it deploys the release."""
        annotations = {
            "helm.sh/hook": "post-install,post-upgrade,post-rollback",
            "helm.sh/hook-weight": str(weight),
            "helm.sh/hook-delete-policy": deletion,
        }
        meta = {"name": name, "labels": self._labels(), "annotations": annotations}
        return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}

    def _labels(self) -> Object:
        return {MANAGED_LABEL: MANAGED_VALUE, UID_LABEL: self.uid}

    async def prepare(self, api: KubeApi, user: str) -> None:
        """Called before Helm runs, as this user. Raises InstanceError."""
        with translate_errors(self.target.release_target.name, "read the Job of the script", user):
            job = await get_or_none(api, job_path(self.target.namespace, self.release))
        self.former = str(metadata(job).get("uid") or "") if job is not None else ""

    async def _find_job(self, api: KubeApi) -> Object | None:
        """The Job of this run."""
        job = await get_or_none(api, job_path(self.target.namespace, self.release))
        is_own = job is not None and labels_of(job).get(UID_LABEL) == self.uid
        return job if job is not None and is_own and metadata(job).get("uid") != self.former else None

    async def confirm(self, api: KubeApi) -> None:
        """Raises InstanceError unless the Job in the cluster has succeeded, whatever Helm says; RemoteApiError."""
        job = await self._find_job(api)
        if job is None or _find_condition(job, "Complete") is None:
            message = (
                f'helm has deployed the release, but the Job "{self.name}" in namespace "{self.target.namespace}" is '
                "not there, or has not succeeded; check what else deletes or changes it. This is retried"
            )
            raise InstanceError(SCRIPT_UNCONFIRMED, message, WARNING)

    async def explain(self, api: KubeApi, error: InstanceError) -> InstanceError:
        """The error of a script that has failed, with the end of its output; otherwise that of Helm."""
        if error.reason == PERMISSIONS_MISSING:
            message = (
                f'what deploys the app may not grant its script the ClusterRole "{self.script.cluster_role}" in '
                f'"{self.target.release_target.name}", since it has not all of the rules itself; name another role in '
                "the app. In a space, it has the role of the setting chart_role; in a cluster, that of the stored "
                "credential, to which `fairlead cluster role apps` adds what is needed"
            )
            return InstanceError(PERMISSIONS_MISSING, message, ERROR)
        try:
            job = await self._find_job(api)
            failed = _find_condition(job, "Failed") if job is not None else None
            if failed is None:
                return error
            pods = await self._list_pods(api)
            output = await self._read_output(api, pods[-1]) if pods else ""
            # Not every Helm deletes them after a failure.
            await delete_script_objects(api, self.target, self.release, self.uid, keeps_job=True)
        except RemoteApiError:
            return error
        why = _describe_end(pods[-1]) if pods else ""
        if failed.get("reason") == "DeadlineExceeded":
            why = (
                f"it has not ended within {self.seconds} s, the timeout of the app, or its pod could not start: check "
                f'the Events of the Job "{self.name}" in namespace "{self.target.namespace}"'
            )
        said = f"; the end of its output: {output}" if output else ""
        message = (
            f"the script has failed: {why or 'its pod is gone'}{said}. It is not run again by itself: correct the app, "
            "or change the parameters or the description of this"
        )
        return InstanceError(SCRIPT_FAILED, message, ERROR)

    async def _list_pods(self, api: KubeApi) -> list[Object]:
        """The pods of the Job, the newest last."""
        path = f"{_namespace_path(self.target.namespace)}/pods?labelSelector=job-name%3D{url_segment(self.name)}"
        found = list_items(await api.get(path), "items")
        return sorted(found, key=lambda each: str(metadata(each).get("creationTimestamp") or ""))

    async def _read_output(self, api: KubeApi, pod: Object) -> str:
        """Its last lines on one line, each after a bar; empty if there is none."""
        query = f"container={_CONTAINER}&tailLines={MAX_LOG_LINES}&limitBytes={MAX_LOG_BYTES}"
        path = f"{_namespace_path(self.target.namespace)}/pods/{url_segment(name_of(pod))}/log?{query}"
        try:
            text = await api.get_text(path)
        except RemoteApiError:
            return ""  # the container has not started
        lines = (" ".join(each.split()) for each in text.splitlines())
        joined = "".join(each for each in " | ".join(line for line in lines if line) if each.isprintable())
        return joined if len(joined) <= MAX_SHOWN_CHARACTERS else f"...{joined[-MAX_SHOWN_CHARACTERS:]}"


def script_name(release: str) -> str:
    return f"{release}-script"


def variables_name(release: str) -> str:
    return f"{release}-values"


def cluster_binding_name(uid: str) -> str:
    """With the uid of the instance: releases of several namespaces may have the same name."""
    return f"{BINDING_PREFIX}script:{uid}"


def job_path(namespace: str, release: str) -> str:
    return f"/apis/batch/v1/namespaces/{url_segment(namespace)}/jobs/{url_segment(script_name(release))}"


async def delete_script_objects(
    api: KubeApi, target: AppTarget, release: str, uid: str, *, keeps_job: bool = False
) -> None:
    """Deletes what is left of the script of an instance: its Job, and what an interrupted run has left. Helm does not
    delete hooks with their release. Raises RemoteApiError."""
    namespace = _namespace_path(target.namespace)
    bindings = f"/apis/{RBAC}/v1/namespaces/{url_segment(target.namespace)}/rolebindings"
    paths = [
        *(() if keeps_job else (job_path(target.namespace, release),)),
        f"{namespace}/secrets/{url_segment(script_name(release))}",
        f"{namespace}/secrets/{url_segment(variables_name(release))}",
        f"{namespace}/serviceaccounts/{url_segment(script_name(release))}",
        f"{bindings}/{url_segment(script_name(release))}"
        if target.field == "spaceInstance"
        else f"/apis/{RBAC}/v1/clusterrolebindings/{url_segment(cluster_binding_name(uid))}",
    ]
    for path in paths:
        existing = await get_or_none(api, path)
        if existing is not None and labels_of(existing).get(UID_LABEL) == uid:
            # Without this policy, the pod of the Job would stay.
            await delete_if_exists(api, path, {**uid_precondition(existing), "propagationPolicy": "Background"})


def _namespace_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{url_segment(namespace)}"


def _encode(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: b64encode(text.encode()).decode() for name, text in texts.items()}


def _find_condition(job: Object, type: str) -> Object | None:
    conditions = get_path(job, "status.conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and (each.get("type"), each.get("status")) == (type, "True"):
            return each
    return None


def _describe_end(pod: Object) -> str:
    """How the container has ended, or why it has not started."""
    statuses = get_path(pod, "status.containerStatuses")
    for each in statuses if isinstance(statuses, list) else ():
        ended = get_path(each, "state.terminated")
        if isinstance(ended, dict) and ended.get("reason") == "OOMKilled":
            return f"it was out of memory ({LIMITS['memory']})"
        if isinstance(ended, dict):
            return f"exit code {int(ended.get('exitCode') or 0)}"
        if reason := get_path(each, "state.waiting.reason"):
            return f"its container could not start ({str(reason)[:100]})"
    return ""
