"""Only administrators change the settings in the Config that let users and workloads in.

A connector decides who signs in and as whom, rules give groups, trust rules issue keys, and the server sends the Secret
that a connector names to the provider. So permission to update the Config is not enough for these settings.

Only administrators change how the server connects to a cluster that a trust rule names.

Such a cluster tells the server which tokens of service accounts are valid, and the server issues keys for them. A user
who may update Clusters, or the Secret with the kubeconfig, could point it at an API server of their own, which accepts
any token, and so act as the principals of the rules.
"""

from collections.abc import Callable

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.core.errors import Forbidden
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.clusters.config import CONFIG, parse_settings
from fairlead.kinds.clusters.config_sign_on import SIGN_ON_FIELDS
from fairlead.kinds.core.config_data import SECRET
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change, Kind
from fairlead.registry.registry import Registry

PROTECTED_SETTINGS = (*SIGN_ON_FIELDS, "workloadIdentity")


def protect_sign_in_settings(api_group: str) -> Rule:
    @applies_to(lambda kind, verb: is_resource(kind, api_group, CONFIG.plural))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.user.is_unscoped_admin:
            return
        before = _settings(change.old)
        after = _settings(change.new)
        for name in PROTECTED_SETTINGS:
            if (get_path(before, f"auth.{name}") or None) != (get_path(after, f"auth.{name}") or None):
                why = f"only administrators, with a key without a scope, may change auth.{name}; leave it as it is"
                raise Forbidden.of(CONFIG.plural, api_group, name_of(change.obj), why)

    return rule


def _settings(config: Object | None) -> Object:
    raw = get_path(config or {}, "spec.raw")
    return parse_settings(raw if isinstance(raw, str) else "")[0]


_SECRET_FIELDS = ("data", "stringData")


def protect_trusted_clusters(api_group: str, default_namespace: str, trust: Callable[[], Object]) -> Rule:
    """`trust` returns `auth.workloadIdentity` of the Config. A Secret without a namespace is in `default_namespace`."""

    def is_protected(kind: Kind, verb: str) -> bool:
        return verb != "delete" and (
            is_resource(kind, api_group, CLUSTER.plural) or is_resource(kind, "", SECRET.plural)
        )

    @applies_to(is_protected)
    async def rule(change: Change, registry: Registry) -> None:
        if change.user == CONTROLLER_USER or change.user.is_unscoped_admin:
            return
        names = {str(each["cluster"]) for each in trust().get("rules") or () if each.get("cluster")}
        if change.kind.plural == CLUSTER.plural:
            cluster = name_of(change.obj) if _changes(change, "spec.config") else ""
        else:
            cluster = find_user_of_secret(change, registry, names) if _changes(change, *_SECRET_FIELDS) else ""
        if cluster in names:
            raise _error(change, cluster)

    def find_user_of_secret(change: Change, registry: Registry, names: set[str]) -> str:
        """The trusted cluster whose kubeconfig is in the Secret; else empty."""
        written = metadata(change.obj).get("namespace"), name_of(change.obj)
        for name in sorted(names):
            entry = registry.view.get((api_group, CLUSTER.plural, "", name))
            config = get_path(decode(entry), "spec.config") if entry is not None else None
            if config and written == (config.get("secretNamespace") or default_namespace, config.get("secretName")):
                return name
        return ""

    return rule


def _changes(change: Change, *paths: str) -> bool:
    return any((get_path(change.old or {}, path) or None) != (get_path(change.obj, path) or None) for path in paths)


def _error(change: Change, cluster: str) -> Forbidden:
    what = "spec.config" if change.kind.plural == CLUSTER.plural else "the content of this secret"
    why = (
        f'a rule in auth.workloadIdentity trusts tokens of cluster "{cluster}", so only administrators, with a key '
        f"without a scope, may change {what}; ask one of them"
    )
    return forbidden(change, why)
