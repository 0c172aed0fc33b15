"""The objects of a workspace. Pure.

The Pod has no service account token, and the default confinement of the cluster as far as the image bears it. With the
option `user` it fits the pod security level `restricted`, otherwise `baseline`. Secrets are values of a Secret only.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.addresses import LINK_LOCAL_METADATA_SERVICE, METADATA_SERVICES_IPV4, METADATA_SERVICES_IPV6
from fairlead.core.objects import Object, metadata
from fairlead.runner.engines.contract import GIT_CREDENTIALS, Limits, WorkspaceSpec
from fairlead.runner.engines.devcontainer.grant import RUNNER_LABEL, TASK_LABEL, TEMPLATE_LABEL, UID_LABEL
from fairlead.runner.engines.kubernetes import scripts
from fairlead.runner.engines.kubernetes.configuration import MAX_BYTES, DevContainer, list_places
from fairlead.runner.engines.kubernetes.settings import Folders, Options

WORKSPACE, CLONE, CONFIGURATION, IDENTIFY, OWN = "workspace", "clone", "configuration", "identify", "own"
"""Names of containers."""
NAME_ANNOTATION = "fairlead.workspace-name"
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETUID"),
    "SYS_CHROOT",
)
"""What a root user in a container needs to install packages and to become another user. Runtimes grant more by
default; those would allow to forge packets and devices."""
CLONE_CAPABILITIES = ("DAC_OVERRIDE", "FOWNER")
"""What a root user needs to replace files that belong to the user of the workspace, also in folders with the sticky
bit."""
GRACE_SECONDS = 15
PRIVATE_BYTES, TEMPORARY_BYTES = "16Mi", "64Mi"
SECRET_ENVIRONMENT = {"GIT_USER", "TOKEN", "SSH_KEY", "KNOWN_HOSTS"}
"""Variables of the clone that are in the Secret."""
_SECRET_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")


@dataclass(frozen=True, slots=True)
class Plan:
    """One `up`: what all objects of it are made from."""

    spec: WorkspaceSpec
    options: Options
    folders: Folders
    limits: Limits
    runner: str
    task_id: str
    project: str
    fetch: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of the clone."""

    @property
    def work_folder(self) -> str:
        return f"{self.folders.workspaces}/{self.project}"


def object_name(uid: str) -> str:
    return f"fairlead-{uid}"


def source_pod_name(uid: str) -> str:
    return f"fairlead-{uid}-source"


INSTALLATION_LABEL = "fairlead.installation"
"""A label for people, and an annotation with the whole value. Runners of other installations may have the same name."""


def runner_label(runner: str) -> str:
    """The value of a label has at most 63 characters."""
    return runner if len(runner) <= 63 else hashlib.sha256(runner.encode()).hexdigest()[:32]


def build_claim(plan: Plan) -> Object:
    storage: Object = {
        "accessModes": [plan.options.access_mode],
        "resources": {"requests": {"storage": plan.options.storage}},
    }
    if plan.options.storage_class:
        storage["storageClassName"] = plan.options.storage_class
    meta = _metadata(plan, object_name(plan.spec.uid))
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": storage}


def build_network_policy(plan: Plan) -> Object:
    """Nothing connects to a workspace but the cluster itself, through `portforward`; it connects to everything but
    metadata services. Pods are named apart from addresses, because not all networks count them among addresses."""
    blocks = [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": [LINK_LOCAL_METADATA_SERVICE, *METADATA_SERVICES_IPV4]}},
        {"ipBlock": {"cidr": "::/0", "except": list(METADATA_SERVICES_IPV6)}},
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(plan, object_name(plan.spec.uid)),
        "spec": {
            "podSelector": {"matchLabels": {UID_LABEL: plan.spec.uid}},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": blocks}, {"to": [{"namespaceSelector": {}}]}],
        },
    }


def build_secret(plan: Plan) -> Object:
    """Credentials of the clone and secrets of the workspace. Each container gets its own part of it."""
    values = {name: plan.fetch[name] for name in SECRET_ENVIRONMENT if plan.fetch.get(name)}
    data = {f"clone.{name}": value for name, value in values.items()}
    data |= {name: plan.spec.secrets[name] for name in list_secrets(plan.spec)}
    encoded = {name: b64encode(value.encode(errors="surrogateescape")).decode() for name, value in data.items()}
    meta = _metadata(plan, object_name(plan.spec.uid))
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": encoded}


def build_owner_reference(pod: Object) -> Object:
    """Makes another object go with the Pod."""
    meta = metadata(pod)
    return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}


def list_secrets(spec: WorkspaceSpec) -> list[str]:
    """The secrets that the workspace sees: those that can be the name of a file, without credentials of the clone."""
    names = (name for name in spec.secrets if name not in GIT_CREDENTIALS and _SECRET_KEY.fullmatch(name))
    return sorted(name for name in names if name not in (".", "..") and not name.startswith("clone."))


# --- Pods -------------------------------------------------------------------------------------------------------------


def build_source_pod(plan: Plan, image: str) -> Object:
    """Clones in an init container, and then prints the devcontainer.json. It gets the limits of the workspace, so that
    it is scheduled where that fits, too.

    The clone has credentials, and alone has the whole claim: where others could place links and programs, it would
    follow and run them. Its own file system is read-only."""
    volume = {"VOLUME": plan.folders.volume, "PROJECT": plan.project}
    plain = {name: value for name, value in plan.fetch.items() if name not in (*SECRET_ENVIRONMENT, "HOME", "KIND")}
    reset = {"RESET": "1"} if plan.spec.reset else {}
    clone = _container(plan, CLONE, image, scripts.CLONE, {**plain, **volume, **reset, "TASK": plan.task_id})
    clone["env"] += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": object_name(plan.spec.uid), "key": f"clone.{name}"}}}
        for name in sorted(SECRET_ENVIRONMENT)
        if plan.fetch.get(name)
    ]
    subfolder = str(getattr(plan.spec.source, "subfolder", ""))
    places = {"SUBFOLDER": subfolder, "PLACES": "\n".join(list_places(plan.spec)), "MAX_BYTES": str(MAX_BYTES + 1)}
    show = _container(plan, CONFIGURATION, image, scripts.PRINT_CONFIGURATION, {"FOLDER": plan.work_folder, **places})
    temporary = {"name": "temporary", "mountPath": "/tmp"}
    clone["volumeMounts"] = [{"name": "claim", "mountPath": plan.folders.volume}, temporary]
    show["volumeMounts"] = [{**_work_mount(plan), "readOnly": True}, temporary]
    for each in (clone, show):
        each["securityContext"] = _confine(plan, run_as=plan.options.user or 0, capabilities=CLONE_CAPABILITIES)
        each["securityContext"]["readOnlyRootFilesystem"] = True
    spec = _pod_spec(plan, [clone], show)
    spec["volumes"] = [_claim_volume(plan), _memory_volume("temporary", TEMPORARY_BYTES)]
    meta = _metadata(plan, source_pod_name(plan.spec.uid))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def build_pod(plan: Plan, container: DevContainer) -> Object:
    """The workspace."""
    main: Object = {
        **_container(
            plan, WORKSPACE, container.image, scripts.KEEP, {**container.environment, **plan.spec.environment}
        ),
        "securityContext": _confine_workspace(plan, container),
        "volumeMounts": _workspace_mounts(plan, container),
    }
    if not container.overrides_command:
        del main["command"]
    spec = _pod_spec(plan, _init_containers(plan, container), main)
    if container.is_seccomp_unconfined:
        spec["securityContext"]["seccompProfile"] = {"type": "Unconfined"}
    spec["volumes"] = _workspace_volumes(plan, container)
    spec["hostname"] = re.sub(r"[^a-z0-9-]", "-", plan.project.lower())[:63].strip("-") or "workspace"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(plan, object_name(plan.spec.uid)), "spec": spec}


def _init_containers(plan: Plan, container: DevContainer) -> list[Object]:
    """They give the files to the user of the sessions. That is known now, or only the image knows it. With the option
    `user`, nothing is needed: nodes let the group of the Pod write to the folders that they create.

    The image is the choice of the repository, so they have those folders of the claim that the workspace has, too, and
    not the ones above them."""
    if plan.options.user is not None:
        return []
    image, number = container.image, find_number(container.user)
    variables = {"PRIVATE": plan.folders.private}
    owned = [f"work/{plan.project}", *(f"volumes/{each.source}" for each in container.mounts if each.source)]
    targets = {f"{plan.folders.volume}/{index}": path for index, path in enumerate(dict.fromkeys(owned))}
    owner = f"{number}:{number}" if number else ""
    own = _container(plan, OWN, image, scripts.OWN, {**variables, "OWNED": " ".join(targets), "OWNER": owner})
    own["securityContext"] = _confine(plan, run_as=0)
    folders = [{"name": "claim", "mountPath": target, "subPath": path} for target, path in targets.items()]
    own["volumeMounts"] = [_private_mount(plan), *folders]
    if owner:
        return [own]
    variables["SESSION_USER"] = container.user
    identify = _container(plan, IDENTIFY, image, scripts.IDENTIFY, variables)
    identify |= {"securityContext": _confine(plan), "volumeMounts": [_private_mount(plan)]}
    return [identify, own]


def find_number(user: str) -> int | None:
    """The number of a user other than root, if it is given as one."""
    is_number = user.isdecimal() and user.isascii() and 0 < int(user) < 2**31
    return int(user) if is_number else None


def _metadata(plan: Plan, name: str) -> Object:
    labels = {UID_LABEL: plan.spec.uid, RUNNER_LABEL: runner_label(plan.runner), TASK_LABEL: plan.task_id}
    annotations = {
        NAME_ANNOTATION: f"{plan.spec.namespace}/{plan.spec.name}",
        TEMPLATE_LABEL: plan.spec.template_hash,
        INSTALLATION_LABEL: plan.spec.installation,
    }
    if plan.spec.installation:
        labels[INSTALLATION_LABEL] = runner_label(plan.spec.installation)
    labels["app.kubernetes.io/managed-by"] = "fairlead-runner"
    return {"name": name, "labels": labels, "annotations": annotations}


def _pod_spec(plan: Plan, init_containers: list[Object], container: Object) -> Object:
    options, user = plan.options, plan.options.user
    context: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    if user is not None:
        context |= {"runAsUser": user, "runAsGroup": user, "fsGroup": user, "runAsNonRoot": True}
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": context,
        "initContainers": init_containers,
        "containers": [container],
    }
    if options.image_pull_secret:
        spec["imagePullSecrets"] = [{"name": options.image_pull_secret}]
    if options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
    if options.node_selector:
        spec["nodeSelector"] = dict(options.node_selector)
    if options.user_namespace:
        spec["hostUsers"] = False
    return spec


def _container(plan: Plan, name: str, image: str, script: str, environment: Mapping[str, str]) -> Object:
    container: Object = {
        "name": name,
        "image": image,
        "command": ["/bin/sh", "-c", script],
        # The cluster replaces `$(NAME)` and `$$`.
        "env": [{"name": each, "value": value.replace("$", "$$")} for each, value in environment.items()],
        "resources": _resources(plan),
    }
    if plan.options.image_pull_policy:
        container["imagePullPolicy"] = plan.options.image_pull_policy
    container["command"] = [word.replace("$", "$$") for word in container["command"]]
    return container


def _resources(plan: Plan) -> Object:
    """All of the memory is requested, because it cannot be taken away again; of the CPUs, a tenth."""
    cpus, memory = plan.limits.cpus or 0, str(plan.limits.memory_bytes or 0)
    return {
        "limits": {
            "cpu": f"{int(cpus * 1000)}m",
            "memory": memory,
            "ephemeral-storage": plan.options.ephemeral_storage,
        },
        "requests": {"cpu": f"{max(1, int(cpus * 100))}m", "memory": memory, "ephemeral-storage": "64Mi"},
    }


def _confine(plan: Plan, run_as: int | None = None, capabilities: Sequence[str] = CAPABILITIES) -> Object:
    """Without a number, the container runs as the user of its image. The capabilities are those of a root user."""
    granted: Object = {"drop": ["ALL"]}
    if not run_as and plan.options.user is None:
        granted["add"] = list(capabilities)
    context: Object = {"allowPrivilegeEscalation": False, "capabilities": granted}
    if run_as is not None:
        context |= {"runAsUser": run_as, "runAsGroup": run_as}
    return context


def _confine_workspace(plan: Plan, container: DevContainer) -> Object:
    context = _confine(plan, plan.options.user or find_number(container.user))
    if container.capabilities:
        context["capabilities"]["add"] = [*context["capabilities"].get("add", ()), *container.capabilities]
    if container.is_privileged:
        return {name: value for name, value in context.items() if name.startswith("runAs")} | {"privileged": True}
    return context


def _private_mount(plan: Plan) -> Object:
    return {"name": "private", "mountPath": plan.folders.private}


def _claim_volume(plan: Plan) -> Object:
    return {"name": "claim", "persistentVolumeClaim": {"claimName": object_name(plan.spec.uid)}}


def _work_mount(plan: Plan) -> Object:
    return {"name": "claim", "mountPath": plan.work_folder, "subPath": f"work/{plan.project}"}


def _workspace_mounts(plan: Plan, container: DevContainer) -> list[Object]:
    mounts: list[Object] = [_work_mount(plan), _private_mount(plan)]
    if list_secrets(plan.spec):
        mounts.append({"name": "secrets", "mountPath": f"{plan.folders.private}/secrets", "readOnly": True})
    if container.shared_memory_bytes:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    for number, mount in enumerate(container.mounts):
        where: Object = {"mountPath": mount.target}
        mounts.append(
            where
            | ({"name": "claim", "subPath": f"volumes/{mount.source}"} if mount.source else {"name": f"m{number}"})
        )
    return mounts


def _workspace_volumes(plan: Plan, container: DevContainer) -> list[Object]:
    memory = str(plan.limits.memory_bytes or 0)
    volumes: list[Object] = [_claim_volume(plan), _memory_volume("private", PRIVATE_BYTES)]
    if names := list_secrets(plan.spec):
        items = [{"key": name, "path": name} for name in names]
        # Everything in the Pod is the owner's, so all of its users may read them.
        secret: dict[str, Any] = {"secretName": object_name(plan.spec.uid), "defaultMode": 0o444, "items": items}
        volumes.append({"name": "secrets", "secret": secret})
    if container.shared_memory_bytes:
        volumes.append(_memory_volume("shared-memory", str(container.shared_memory_bytes)))
    volumes += [_memory_volume(f"m{number}", memory) for number, each in enumerate(container.mounts) if not each.source]
    return volumes


def _memory_volume(name: str, size: str) -> Object:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
