"""Setting a reference to a kubeconfig Secret needs the permission to read that Secret.

Otherwise a Cluster or an imported virtual cluster would give its writer the use of credentials that they cannot read.
One whose kubeconfig is unusable is accepted with a warning, since the Secret may still change. `app` passes in the
kubeconfig parser, because admission must not import `upstream`.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence

from fairlead.admission import Rule, applies_to, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

DEFAULT_SECRET_KEY = "config"

KubeconfigCheck = Callable[[bytes], Sequence[str]]
"""Returns the problems of a kubeconfig, each with advice on how to fix it."""


def check_cluster_secret(
    authorize: Authorize, api_group: str, default_namespace: str, check_kubeconfig: KubeconfigCheck
) -> Rule:
    """Checks `spec.config` of clusters. A reference without a namespace means `default_namespace`."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, "clusters"))
    async def rule(change: Change, registry: Registry) -> None:
        namespace = get_path(change.obj, "spec.config.secretNamespace") or default_namespace
        _warn_unusable(change, registry, namespace, _require_secret(change, namespace, authorize), check_kubeconfig)

    return rule


def check_virtual_cluster_secret(authorize: Authorize, api_group: str, check_kubeconfig: KubeconfigCheck) -> Rule:
    """Checks `spec.config` of virtual clusters, whose Secret is in their own namespace."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, "virtualclusterinstances"))
    async def rule(change: Change, registry: Registry) -> None:
        namespace = str(metadata(change.obj).get("namespace") or "")
        _warn_unusable(change, registry, namespace, _require_secret(change, namespace, authorize), check_kubeconfig)

    return rule


def _require_secret(change: Change, namespace: str, authorize: Authorize) -> str:
    """Raises Forbidden unless the requester may read the Secret that `spec.config` names.

    Returns its name; empty if the write does not set the reference, or a controller does.
    """
    config = get_path(change.obj, "spec.config")
    name = get_path(config, "secretName")
    is_unchanged = config == get_path(change.old or {}, "spec.config")
    if change.user == CONTROLLER_USER or not isinstance(name, str) or not name or is_unchanged:
        return ""
    target = RequestInfo("get", group="", version="v1", resource="secrets", namespace=namespace, name=name)
    if not authorize(change.user, target).allowed:
        why = (
            f'User "{change.user.name}" cannot read the secret "{name}" in the namespace "{namespace}"; name one '
            "that you may read, or ask for that right"
        )
        raise Forbidden.of(change.kind.plural, change.kind.group, name_of(change.obj), why)
    return name


def _warn_unusable(
    change: Change, registry: Registry, namespace: str, name: str, check_kubeconfig: KubeconfigCheck
) -> None:
    """Warns if the Secret exists and its content cannot be used. That it is missing is reported in a condition."""
    entry = registry.resource("", "secrets").get_cached(namespace, name) if name else None
    if entry is not None:
        key = get_path(change.obj, "spec.config.key") or DEFAULT_SECRET_KEY
        change.warnings.extend(_kubeconfig_warnings(decode(entry), key, check_kubeconfig))


def _kubeconfig_warnings(secret: Object, key: str, check_kubeconfig: KubeconfigCheck) -> list[str]:
    """Call only for requesters who may read the Secret: the warnings reveal something about its content."""
    content = (secret.get("data") or {}).get(key)
    if not content:
        return [f'the secret that spec.config names has no key "{key}"; store the kubeconfig there']
    found = check_kubeconfig(b64decode(content))
    return [f"the kubeconfig in the secret that spec.config names cannot be used: {each}" for each in found]
