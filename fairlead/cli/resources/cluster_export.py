"""`fairlead cluster export`: prints what GitOps tools read to reach clusters through their gateways.

A cluster Secret of Argo CD contains an access key, which is created for it. The value of a key cannot be read again, so
a later run prints only the Secrets of clusters without a key in the first half of its life: a job that runs the command
now and then writes what is due, and nothing else. Whether a Secret was applied is seen by the use of its key: only then
do former keys end, and if the tool still uses a former one, the Secret is printed again. A ClusterProfile contains no
key: its consumer runs `fairlead credential --cluster-info`.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fairlead.cli.access.key import key_owner
from fairlead.cli.access.keys import expiry_time
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import drop_none
from fairlead.cli.ui.durations import format_duration, parse_duration, parse_time
from fairlead.cli.ui.field_flags import name_flags, name_selector
from fairlead.cli.ui.flags import ContextFlag, SelectorFlag, flag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.resource_commands import join_names
from fairlead.cli.ui.secret_file import OutputFileFlag, open_secret_output
from fairlead.cli.ui.session import Session, UsageError, open_session
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.core.addresses import is_loopback
from fairlead.core.cluster_exports import (
    CLUSTER_UID_ANNOTATION,
    EXPORT_FOR_LABEL,
    EXPORT_LABEL,
    ExportFormat,
    ExportKey,
    Gateways,
    build_argocd_secret,
    build_profile,
    build_stored_key,
    is_due,
)
from fairlead.core.objects import Object, get_path, metadata, name_of

CLUSTERS, KEYS = "clusters", "ownedaccesskeys"
DEFAULT_TTL_SECONDS = 30 * 24 * 3600
DEFAULT_OVERLAP_SECONDS = 24 * 3600
UNUSED_SECONDS = 3600
"""How old a new key is before it counts as not applied, if the tool still uses a former one."""
MAX_COMMANDS = 5
"""How many commands are printed that each grant the use of a cluster."""
DEFAULT_NAMESPACES = {ExportFormat.ARGOCD: "argocd", ExportFormat.CLUSTERPROFILE: "default"}
DEPRECATED_RULES = "spec.scope.rules is deprecated"
"""The warning about every scope with rules. No other entry restricts a key to a gateway alone."""


@dataclass(frozen=True, slots=True)
class ClusterExportOptions:
    format: Annotated[
        ExportFormat,
        typer.Argument(help="argocd: cluster Secrets of Argo CD. clusterprofile: ClusterProfile objects."),
    ]
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of clusters.", autocompletion=complete_names(CLUSTERS), show_default=False),
    ] = None
    all_clusters: Annotated[bool, typer.Option("--all", help="All clusters that you may read.")] = False
    selector: SelectorFlag = ""
    namespace: Annotated[
        str | None,
        flag(
            "--namespace",
            "-n",
            help="Namespace of the objects.",
            metavar="NS",
            default="argocd, or default for ClusterProfiles",
        ),
    ] = None
    argocd_project: Annotated[
        str | None,
        flag("--argocd-project", help="Project of Argo CD that alone may use the clusters.", metavar="NAME"),
    ] = None
    user: Annotated[
        str | None,
        flag("--user", help="User that the tool acts as, who owns the keys.", default="you", complete="users"),
    ] = None
    ttl: Annotated[
        int | None,
        flag("--ttl", help="Lifetime of the keys.", parser=parse_duration, metavar="TIME", default="30d"),
    ] = None
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Create new keys also for clusters whose keys are not due yet.")
    ] = False
    overlap: Annotated[
        int | None,
        flag(
            "--overlap",
            help="How long keys that are replaced stay valid after a newer one is used.",
            parser=parse_duration,
            metavar="TIME",
            default="1d",
        ),
    ] = None
    tool: Annotated[
        str,
        flag("--for", help="Name of the tool that gets the keys, if there are several.", metavar="NAME"),
    ] = ExportFormat.ARGOCD.value
    server_url: Annotated[
        str | None,
        flag("--server-url", help="URL of the server for the tool.", metavar="URL", default="that of the login"),
    ] = None
    context: ContextFlag = None
    output_file: OutputFileFlag = None


@options_from(ClusterExportOptions)
def command(options: ClusterExportOptions) -> None:
    """Print cluster Secrets of Argo CD, or ClusterProfiles, that lead to clusters through their gateways.

    Each Secret has an access key of its own, for the gateway of its cluster alone. A key lasts 30 days. Run again, the
    command prints the Secrets of new clusters, and of those whose key is past half of its life or was not applied; with
    --rotate, all. It ends former keys of clusters whose newer key is in use.
    """
    _check_options(options)
    with (
        open_session(options.context) as session,
        _without_known_warning(session.client),
        open_secret_output(options.output_file) as write,
    ):
        gateways = _gateways(session, options)
        clusters = _find_clusters(session.client, options)
        if not clusters:
            print_note("no cluster matches, so nothing is exported")
            return
        if options.format is ExportFormat.CLUSTERPROFILE:
            namespace = options.namespace or DEFAULT_NAMESPACES[options.format]
            write(_encode(build_profile(each, gateways, namespace) for each in clusters))
            return
        exporter = _SecretExporter(session.client, options, gateways, datetime.now(UTC))
        try:
            secrets = exporter.export(clusters)
        finally:
            # Also after an error in between: the values of keys that exist by now are not shown again.
            if exporter.secrets:
                write(_encode(exporter.secrets))
        warning = "; the Secrets contain access keys" if secrets else ""
        print_note(f"exported {len(secrets)} of {len(clusters)} clusters{warning}")
        exporter.end_replaced_keys()
        _warn_unusable(session.client, exporter.owner, clusters, acts_as_self=not options.user)


def _check_options(options: ClusterExportOptions) -> None:
    chosen = sum(map(bool, (options.names, options.all_clusters, options.selector)))
    if chosen != 1:
        raise typer.BadParameter("name clusters, or set --all or --selector: one of the three", param_hint="NAMES")
    if options.format is ExportFormat.CLUSTERPROFILE and (options.argocd_project or options.rotate or options.user):
        raise typer.BadParameter(
            "--argocd-project, --rotate and --user are for argocd: a ClusterProfile contains no key",
            param_hint="FORMAT",
        )


def _gateways(session: Session, options: ClusterExportOptions) -> Gateways:
    login = session.login
    if login.insecure:
        raise ClientError("the login does not verify certificates, and tools must; log in again with --ca-file")
    url = options.server_url or login.url
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise UsageError(f"--server-url {url!r} is not a URL like https://fairlead.example.com")
    if is_loopback(parts.hostname):
        print_note(f"warning: {url} is a loopback address, which a tool in a pod cannot reach; set --server-url")
    return Gateways(url, login.authority)


def _find_clusters(client: Client, options: ClusterExportOptions) -> list[Object]:
    if options.names:
        return [client.get(CLUSTERS, each) for each in dict.fromkeys(options.names)]
    with name_selector(options.selector):
        found = list(client.list(CLUSTERS, labels=options.selector))
    return [each for each in found if "deletionTimestamp" not in metadata(each)]


class _SecretExporter:
    """Creates keys and builds Secrets. `secrets` are those that exist so far."""

    def __init__(self, client: Client, options: ClusterExportOptions, gateways: Gateways, now: datetime) -> None:
        self._client = client
        self._options = options
        self._gateways = gateways
        self._now = now
        self.owner = ("user", options.user) if options.user else identity(client.whoami())
        self._replaced: list[Object] = []
        """Keys that end after the overlap."""
        self.secrets: list[Object] = []

    def export(self, clusters: Iterable[Object]) -> list[Object]:
        selector = f"{EXPORT_LABEL}={ExportFormat.ARGOCD.value},{EXPORT_FOR_LABEL}={self._options.tool}"
        keys = list(self._client.list(KEYS, labels=selector))
        with name_flags(self._client):
            for cluster in clusters:
                valid = sorted(self._valid_keys(keys, cluster, self.owner), key=_creation, reverse=True)
                used = next((number for number, each in enumerate(valid) if _last_use(each)), len(valid))
                # Times have whole seconds: of two keys of the same one, it is not known which is newer.
                self._replaced.extend(each for each in valid[used + 1 :] if _creation(each) < _creation(valid[used]))
                if self._is_current(name_of(cluster), valid[: used + 1]) and not self._options.rotate:
                    continue
                self.secrets.append(self._build_secret(cluster))
                self._replaced.extend(valid[1:used])  # of those that were not applied, one may just be
        return self.secrets

    def _is_current(self, cluster: str, keys: Sequence[Object]) -> bool:
        """Whether the newest key needs no successor. `keys`: the newest first, up to the last that was used."""
        if not keys or self._is_due(keys[0]):
            return False
        newest, *former = keys
        age = self._now - (parse_time(_creation(newest)) or self._now)
        if former and _last_use(former[-1]) and age.total_seconds() > UNUSED_SECONDS:
            print_note(
                f"{cluster}: its key {name_of(newest)} was never used, but {name_of(former[-1])} is: was the Secret "
                "applied? Here is another one"
            )
            return False
        if not self._options.rotate:
            print_note(f"{cluster}: its key {name_of(newest)} is not due for renewal; --rotate replaces it")
        return True

    def _valid_keys(self, keys: Iterable[Object], cluster: Object, owner: tuple[str, str]) -> Iterator[Object]:
        """The keys of this cluster, and not of a former one of its name, that the owner can use."""
        for key in keys:
            annotations = metadata(key).get("annotations") or {}
            end = expiry_time(key)
            if (
                annotations.get(CLUSTER_UID_ANNOTATION) == metadata(cluster)["uid"]
                and key_owner(key) == owner
                and not get_path(key, "spec.disabled")
                and not get_path(key, "status.expired")
                and end is not None
                and end > self._now
            ):
                yield key

    def _is_due(self, key: Object) -> bool:
        return is_due(expiry_time(key), int(get_path(key, "spec.ttl") or 0), self._now)

    def _build_secret(self, cluster: Object) -> Object:
        options = self._options
        spec = drop_none({"user": options.user, "ttl": options.ttl or DEFAULT_TTL_SECONDS})
        created = self._client.create(KEYS, build_stored_key(cluster, spec, (EXPORT_FOR_LABEL, options.tool)))
        value = get_path(created, "spec.key")
        if not isinstance(value, str) or not value:
            raise ClientError(f"the server created {name_of(created)} but did not return its value; delete the key")
        key = ExportKey(name_of(created), value, expiry_time(created))
        namespace = options.namespace or DEFAULT_NAMESPACES[ExportFormat.ARGOCD]
        return build_argocd_secret(cluster, self._gateways, key, namespace, options.argocd_project or "")

    def end_replaced_keys(self) -> None:
        """Lets keys end after the overlap that a newer one in use has replaced."""
        overlap = max(1, DEFAULT_OVERLAP_SECONDS if self._options.overlap is None else self._options.overlap)
        for key in self._replaced:
            created = parse_time(_creation(key)) or self._now
            ttl = int((self._now - created).total_seconds()) + overlap
            if ttl < int(get_path(key, "spec.ttl") or 0):
                self._client.patch(KEYS, name_of(key), {"spec": {"ttl": ttl}})
        if self._replaced:
            print_note(f"{len(self._replaced)} keys that were replaced end in {format_duration(overlap)} at most")
        if self.secrets:
            print_note("former keys end when a later run finds the new ones in use, or when they expire")


def _warn_unusable(client: Client, owner: tuple[str, str], clusters: Sequence[Object], *, acts_as_self: bool) -> None:
    """Warns about clusters whose gateway refuses the owner of the keys, and prints what lets it in."""
    kind, name = owner
    try:
        if _may_use(client, "" if acts_as_self else name, ""):
            return
        refused = [each for each in clusters if not _may_use(client, "" if acts_as_self else name, name_of(each))]
    except ApiStatusError:
        print_note(
            f"whether the {kind} {name} may use these clusters could not be checked; an administrator can, with "
            "`fairlead who-can use clusters NAME`"
        )
        return
    if not refused:
        return
    one = len(refused) == 1
    print_note(
        f"warning: the {kind} {name} may not `use` {join_names([name_of(each) for each in refused])}: "
        f"{'its gateway refuses' if one else 'their gateways refuse'} the {'key' if one else 'keys'}"
    )
    if kind not in ("user", "team"):
        print_note("bind a role with the verb `use` on clusters to it")
        return
    print_note("An administrator of this server allows it:")
    for cluster in refused[:MAX_COMMANDS]:
        print_note(f"  {_grant_command(cluster, kind, name)}")
    if len(refused) > MAX_COMMANDS:
        print_note(f"  and {len(refused) - MAX_COMMANDS} more; or bind a role with the verb `use` on all clusters")


def _may_use(client: Client, user: str, cluster: str) -> bool:
    """Whether a user, or the requester if it is empty, may use a cluster, or each if that is empty."""
    attributes = drop_none({"verb": "use", "group": client.group, "resource": CLUSTERS, "name": cluster or None})
    plural, subject = ("subjectaccessreviews", {"user": user}) if user else ("selfsubjectaccessreviews", {})
    review = client.create(plural, {"spec": {**subject, "resourceAttributes": attributes}})
    return bool(get_path(review, "status.allowed"))


def _grant_command(cluster: Object, kind: str, name: str) -> str:
    """Adds an entry to those in `spec.access` of the Cluster."""
    entry = {"verbs": ["get", "use"], f"{kind}s": [name]}
    has_entries = bool(get_path(cluster, "spec.access"))
    change = {
        "op": "add",
        "path": "/spec/access/-" if has_entries else "/spec/access",
        "value": entry if has_entries else [entry],
    }
    return f"kubectl patch cluster {name_of(cluster)} --type json -p {shlex.quote(json.dumps([change]))}"


def _creation(key: Object) -> str:
    return str(metadata(key).get("creationTimestamp") or "")


def _last_use(key: Object) -> object:
    return get_path(key, "status.lastActivity")


@contextmanager
def _without_known_warning(client: Client) -> Iterator[None]:
    """Leaves out the warning about rules in a scope, which the user of the command cannot avoid."""
    warn = client.on_warning

    def forward(text: str) -> None:
        if not text.startswith(DEPRECATED_RULES):
            warn(text)

    client.on_warning = forward
    try:
        yield
    finally:
        client.on_warning = warn


def _encode(objects: Iterable[Object]) -> bytes:
    from fairlead.core import yaml

    return b"---\n".join(yaml.encode(each) for each in objects)
