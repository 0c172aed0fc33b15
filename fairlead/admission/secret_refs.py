"""Setting a reference to a kubeconfig Secret needs the permission to read that Secret.

Otherwise a Cluster or an imported virtual cluster would give its writer the use of credentials that they cannot read. A
cluster whose kubeconfig is unusable is accepted with a warning, since the Secret may still change. `app` passes in the
kubeconfig parser, because admission must not import `upstream`.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence

from fairlead.admission import May, Rule, concerning, is_one_of
from fairlead.core.call import Target
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, dig, metadata, name_of
from fairlead.core.user import CONTROLLER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

DEFAULT_KEY = "config"

Problems = Callable[[bytes], Sequence[str]]
"""Returns the problems of a kubeconfig, each with advice on how to fix it."""


def cluster_secret(may: May, api_group: str, default_namespace: str, problems: Problems) -> Rule:
    """Checks `spec.config` of clusters. A reference without a namespace means `default_namespace`."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, "clusters"))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        if change.user == CONTROLLER:
            return
        config = dig(change.obj, "spec.config")
        name, namespace = dig(config, "secretName"), dig(config, "secretNamespace") or default_namespace
        if not isinstance(name, str) or not name or config == dig(change.old or {}, "spec.config"):
            return
        target = Target("get", "", group="", version="v1", resource="secrets", namespace=namespace, name=name)
        if not may(change.user, target).allowed:
            why = (
                f'User "{change.user.name}" cannot read the secret "{name}" in the namespace "{namespace}"; name one '
                "that you may read, or ask for that right"
            )
            raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)
        entry = registry.resource("", "secrets").peek(namespace, name)
        if entry is not None:
            change.warnings.extend(_warnings(decode(entry), dig(config, "key") or DEFAULT_KEY, problems))

    return rule


def _warnings(secret: Object, key: str, problems: Problems) -> list[str]:
    """Call only for requesters who may read the Secret: the warnings reveal something about its content."""
    content = (secret.get("data") or {}).get(key)
    if not content:
        return [f'the secret that spec.config names has no key "{key}"; store the kubeconfig there']
    found = problems(b64decode(content))
    return [f"the kubeconfig in the secret that spec.config names cannot be used: {each}" for each in found]


def virtual_cluster_secret(may: May, api_group: str) -> Rule:
    """Checks `spec.config` of virtual clusters, whose Secret is in their own namespace."""

    @concerning(lambda kind, verb: verb != "delete" and is_one_of(kind, api_group, "virtualclusterinstances"))
    async def rule(change: Change, registry: Registry) -> None:
        kind = change.kind
        name, namespace = dig(change.obj, "spec.config.secretName"), str(metadata(change.obj).get("namespace") or "")
        if change.user == CONTROLLER or not isinstance(name, str) or not name:
            return
        if dig(change.obj, "spec.config") == dig(change.old or {}, "spec.config"):
            return
        target = Target("get", "", group="", version="v1", resource="secrets", namespace=namespace, name=name)
        if not may(change.user, target).allowed:
            why = (
                f'User "{change.user.name}" cannot read the secret "{name}" in the namespace "{namespace}"; name one '
                "that you may read, or ask for that right"
            )
            raise Forbidden.of(kind.plural, kind.group, name_of(change.obj), why)

    return rule
