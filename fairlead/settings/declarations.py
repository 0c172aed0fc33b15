"""Declares all settings, as the fields of one frozen dataclass."""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from fairlead.core.addresses import is_loopback
from fairlead.core.user import RESERVED_PREFIX
from fairlead.core.validators import (
    check_api_group,
    check_base_url,
    check_chart_repository,
    check_host_and_port,
    check_host_name,
    check_ip_address,
    check_metadata_key,
    check_namespace_prefix,
    check_network,
    check_object_name,
    check_role_name,
    format_host,
)
from fairlead.settings.sources import StartError, flag
from fairlead.settings.values import HOST, OFF, ON, ON_OFF, OWN, SettingInfo

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("json", "console")
MAX_WORKERS = 64
MAX_DEFAULT_WORKERS = 8
_MAX_OBJECTS = 10**9
_MIN_BYTES = 1024
_MAX_BYTES = 2**40
_HEADER_NAME = re.compile(r"[Xx]-[A-Za-z0-9-]{1,62}")
"""Names that begin with X-, so that no header with another meaning is removed from requests."""
_IDENTITY_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#@-]{0,62}(?<=[:/#@-])", re.ASCII)
LOCAL_PORT_DOMAIN = "workspaces.localhost"
GENERATED_CERTIFICATE = "generated, in <data>/tls"
CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""Quota and period in microseconds, or `max` without a quota. In a container, this is the file of its own cgroup."""


def count_cpus(cpu_max: Path = CGROUP_CPU_MAX) -> int:
    """The CPUs that this process may use: what its affinity mask and the CPU quota of its cgroup allow.

    At least 1. A quota of one and a half CPUs counts as one.
    """
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no such cgroup, or no quota
        return allowed


def default_data_folder() -> Path:
    data_home = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore relative paths.
    if data_home.startswith("/"):
        return Path(data_home) / "fairlead"
    try:
        return Path.home() / ".local" / "share" / "fairlead"
    except RuntimeError as error:
        raise StartError(f"the user has no home folder; set the data folder with {flag('data')}") from error


def check_proxy_network(value: str) -> str | None:
    if (problem := check_network(value)) is not None:
        return problem
    if ipaddress.ip_network(value).prefixlen == 0:
        return "has all addresses in it: every client could forge its address; name the networks of the proxies"
    return None


def check_header_name(value: str) -> str | None:
    return None if _HEADER_NAME.fullmatch(value) else "must be the name of a header, such as X-Remote-User"


def check_header_prefix(value: str) -> str | None:
    if check_header_name(value) is None and value.endswith("-"):
        return None
    return "must be the beginning of header names and end in a dash, such as X-Remote-Extra-"


def check_port_domain(value: str) -> str | None:
    if "*" in value or "." not in value or check_ip_address(value) is None or check_host_name(value) is not None:
        return "must be a DNS name in lower case with a dot and without *, such as workspaces.example.com; or off"
    return None


def check_identity_prefix(value: str) -> str | None:
    """What is wrong with a prefix of names in clusters, or None. An empty prefix is valid."""
    if value.startswith((RESERVED_PREFIX, "service:")):
        return 'must not begin with "system:" or "service:", which are reserved'
    if not value or _IDENTITY_PREFIX.fullmatch(value):
        return None
    return "must be 2 to 63 letters, digits and . _ : / # @ -, begin with a letter or digit and end with : / # @ or -"


@dataclass(frozen=True, slots=True)
class Settings:
    data: Annotated[
        Path,
        SettingInfo(
            "Server",
            "Folder for the database, certificates and the administrator's kubeconfig",
            changed_by="who runs it as a service, such as in /var/lib/fairlead",
            computed_default="$XDG_DATA_HOME/fairlead, else ~/.local/share/fairlead",
        ),
    ] = field(default_factory=default_data_folder)
    store: Annotated[
        str,
        SettingInfo(
            "Server",
            "Storage backend: sqlite:PATH, postgres://..., etcd://..., or memory: to discard all objects at exit",
            changed_by="operators of several replicas: PostgreSQL or etcd; for a trial, memory:",
            computed_default="sqlite:<data>/fairlead.db",
        ),
    ] = ""
    listen: Annotated[
        str,
        SettingInfo(
            "Server",
            "IP address to listen on; 0.0.0.0 for all addresses",
            changed_by="who serves other machines",
            check=check_ip_address,
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        SettingInfo(
            "Server",
            "Port to listen on; 0 for any free port",
            changed_by="who needs another port, such as 443",
            minimum=0,
            maximum=65535,
        ),
    ] = 8443
    workers: Annotated[
        int,
        SettingInfo(
            "Server",
            "Number of processes that serve requests",
            changed_by="operators of a machine that other programs use, too",
            maximum=MAX_WORKERS,
            computed_default="one per CPU, at most 8; 1 with fairlead up",
        ),
    ] = 0
    public_url: Annotated[
        str,
        SettingInfo(
            "Server",
            "URL of this server for clients, if it differs from the address that it listens on",
            changed_by="who serves it by a name, behind a load balancer or an ingress",
            check=check_base_url,
            computed_default="https://<listen>:<port>",
        ),
    ] = ""
    console: Annotated[
        str,
        SettingInfo(
            "Server",
            "Whether the web console is served",
            changed_by="operators who offer the API alone",
            choices=ON_OFF,
        ),
    ] = "on"
    workspace_domain: Annotated[
        str,
        SettingInfo(
            "Server",
            "Domain below which each port of a workspace has a host name, for browsers; off for none",
            changed_by="who serves other machines: a domain whose names (*.DOMAIN) lead to this server",
            check=lambda text: None if text == OFF else check_port_domain(text),
            computed_default="workspaces.localhost if only this machine reaches the server, otherwise none",
        ),
    ] = ""

    replica_address: Annotated[
        str,
        SettingInfo(
            "Server",
            "Host name or IP address at which other replicas on the same store reach this one; empty for none",
            changed_by="operators of several replicas with runners",
            check=lambda text: "must be one host, without *" if "*" in text else check_host_name(text),
            computed_default="none: workspaces are served by the replica that their runner is connected to",
        ),
    ] = ""
    replica_port: Annotated[
        int,
        SettingInfo(
            "Server",
            "Port for connections of other replicas, if replica_address is set; 0 for any free port",
            changed_by="operators of replicas on machines where the port is taken",
            minimum=0,
            maximum=65535,
        ),
    ] = 8444

    tls_cert: Annotated[
        Path | None,
        SettingInfo(
            "TLS",
            "PEM file with the server certificate and its intermediate certificates",
            changed_by="operators with a certificate of their own CA, or of a public one",
            computed_default=GENERATED_CERTIFICATE,
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        SettingInfo(
            "TLS",
            "PEM file with the private key of tls_cert, without a passphrase",
            changed_by="the same, together with tls_cert",
            computed_default=GENERATED_CERTIFICATE,
        ),
    ] = None
    tls_ca: Annotated[
        Path | None,
        SettingInfo(
            "TLS",
            "PEM file with the CA certificate that clients need to trust tls_cert",
            changed_by="the same, if the machines of the users do not trust that CA",
            computed_default="CAs of the client's system",
        ),
    ] = None
    tls_names: Annotated[
        tuple[str, ...],
        SettingInfo(
            "TLS",
            "Additional DNS names and IP addresses for the generated certificate, comma-separated",
            changed_by="who reaches a server with a generated certificate by further names",
            check=check_host_name,
            computed_default="none",
        ),
    ] = ()

    client_ca: Annotated[
        Path | None,
        SettingInfo(
            "Client certificates",
            "PEM file with the CAs of client certificates that authenticate users",
            changed_by="organizations whose users have client certificates",
            computed_default="none: no such certificates",
        ),
    ] = None
    client_cert_port: Annotated[
        int,
        SettingInfo(
            "Client certificates",
            "Port for users with client certificates, if client_ca is set",
            changed_by="the same, where the port is taken",
            maximum=65535,
        ),
    ] = 8445
    requestheader_client_ca: Annotated[
        Path | None,
        SettingInfo(
            "Client certificates",
            "PEM file with the CAs of the client certificates of front proxies",
            changed_by="operators of a front proxy that authenticates users",
            computed_default="none: no front proxies",
        ),
    ] = None
    requestheader_port: Annotated[
        int,
        SettingInfo(
            "Client certificates",
            "Port for front proxies, if there are any",
            changed_by="the same, where the port is taken",
            maximum=65535,
        ),
    ] = 8446
    requestheader_allowed_names: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Client certificates",
            "Common names of the certificates of front proxies, comma-separated",
            changed_by="operators of a front proxy",
            computed_default="none; required with requestheader_client_ca; those of the host with aggregated_api: host",
        ),
    ] = ()
    requestheader_username_headers: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Client certificates",
            "Headers with the user name, comma-separated; the first that is sent counts",
            changed_by="operators of a front proxy that sends another header",
            check=check_header_name,
            computed_default="X-Remote-User",
        ),
    ] = ("X-Remote-User",)
    requestheader_group_headers: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Client certificates",
            "Headers with the groups of the user, comma-separated",
            changed_by="operators of a front proxy that sends another header",
            check=check_header_name,
            computed_default="X-Remote-Group",
        ),
    ] = ("X-Remote-Group",)
    requestheader_extra_headers_prefix: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Client certificates",
            "Prefixes of headers with extra values of the user, comma-separated",
            changed_by="operators of a front proxy that sends other headers",
            check=check_header_prefix,
            computed_default="X-Remote-Extra-",
        ),
    ] = ("X-Remote-Extra-",)
    requestheader_uid_headers: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Client certificates",
            "Headers with the UID of the user, comma-separated",
            changed_by="operators of a front proxy that knows the UIDs of users",
            check=check_header_name,
            computed_default="none: it is not read",
        ),
    ] = ()
    requestheader_link_users: Annotated[
        str,
        SettingInfo(
            "Client certificates",
            "Whether a user name from a front proxy means the user of that name, with its groups and teams",
            changed_by="operators of a front proxy whose users are also users of this server",
            choices=ON_OFF,
        ),
    ] = "off"
    aggregated_api: Annotated[
        str,
        SettingInfo(
            "Client certificates",
            "Whether requestheader_port also serves the API without its path prefix, as an APIService of Kubernetes; "
            "host: CA, names and headers of front proxies come from its kube-apiserver",
            changed_by="who serves the API through the kube-apiserver of a cluster",
            choices=(*ON_OFF, HOST),
        ),
    ] = "off"
    aggregated_api_authorization: Annotated[
        str,
        SettingInfo(
            "Client certificates",
            "Whose permissions decide about requests for the APIService: this server's own, or those of the host",
            changed_by="the same, if the roles of that cluster are to decide",
            choices=(OWN, HOST),
        ),
    ] = "own"
    host_kubeconfig: Annotated[
        Path | None,
        SettingInfo(
            "Client certificates",
            "Kubeconfig for the kube-apiserver that has the APIService",
            changed_by="the same, if the server runs outside of that cluster",
            computed_default="the service account of the pod",
        ),
    ] = None

    trusted_proxies: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Proxies",
            "Networks of the proxies whose X-Forwarded-For names the client, as comma-separated CIDRs",
            changed_by="operators of a load balancer or another proxy in front of the server",
            check=check_proxy_network,
            computed_default="none",
        ),
    ] = ()
    proxy_protocol_networks: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Proxies",
            "Networks of the load balancers that use the PROXY protocol on client_cert_port, as comma-separated CIDRs",
            changed_by="the same, for users with client certificates",
            check=check_proxy_network,
            computed_default="none: the PROXY protocol is not used",
        ),
    ] = ()

    api_group: Annotated[
        str,
        SettingInfo(
            "API",
            "API group of the management kinds",
            changed_by="organizations whose manifests have another group, before the first start",
            check=check_api_group,
        ),
    ] = "management.service.sh"
    namespace_prefix: Annotated[
        str,
        SettingInfo(
            "API",
            "Prefix of project namespaces, before the project name",
            changed_by="organizations with other names of namespaces, before the first start",
            check=check_namespace_prefix,
        ),
    ] = "service-p-"

    password_login: Annotated[
        str,
        SettingInfo(
            "Identity",
            "Whether users can log in with a password",
            changed_by="organizations with single sign-on, or with access keys only",
            choices=ON_OFF,
        ),
    ] = "on"
    login_key_ttl: Annotated[
        int,
        SettingInfo(
            "Identity",
            "Lifetime of a login in seconds; 0 for no expiration",
            changed_by="who decides how often users have to log in",
            minimum=0,
        ),
    ] = 20 * 24 * 3600
    cli_key_ttl: Annotated[
        int,
        SettingInfo(
            "Identity",
            "Lifetime of the command line's keys in seconds",
            changed_by="who decides for how long a key that was copied from a machine is of use",
            minimum=5,
            maximum=3600,
        ),
    ] = 600
    access_key_max_ttl: Annotated[
        int,
        SettingInfo(
            "Identity",
            "Maximum lifetime of users' access keys in seconds; 0 for no limit",
            changed_by="who requires that all keys expire",
            minimum=0,
        ),
    ] = 0
    access_key_retention: Annotated[
        int,
        SettingInfo(
            "Identity",
            "Seconds until expired access keys are deleted; until then, lists show that they have expired",
            changed_by="operators with many short-lived keys, to delete them sooner",
            minimum=0,
        ),
    ] = 24 * 3600
    access_keys_per_owner: Annotated[
        int,
        SettingInfo(
            "Identity",
            "Maximum number of access keys that a user or team can create for itself, without logins",
            changed_by="operators of CI systems that share one user or team",
            maximum=100_000,
        ),
    ] = 100

    service_account_token_max_ttl: Annotated[
        int,
        SettingInfo(
            "Identity",
            "Maximum lifetime of a service account token in seconds",
            changed_by="who decides for how long a token that was copied is of use",
            minimum=600,
        ),
    ] = 24 * 3600
    service_account_tokens: Annotated[
        int,
        SettingInfo(
            "Identity",
            "Maximum number of valid tokens of one service account",
            changed_by="operators of CI systems with many jobs at once",
        ),
    ] = 100

    cluster_connections: Annotated[
        str,
        SettingInfo(
            "Clusters",
            "Whether the server connects to clusters with the kubeconfigs that are stored",
            changed_by="who tries out a restored backup beside the server that it is of",
            choices=ON_OFF,
        ),
    ] = ON
    cluster_networks: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Clusters",
            "Networks, besides public addresses, that clusters may be in, as comma-separated CIDRs",
            changed_by="who connects clusters in private networks",
            check=check_network,
            computed_default="none; loopback and private networks with fairlead up",
        ),
    ] = ()
    cluster_proxies: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Clusters",
            "HTTP proxies that the kubeconfigs of administrators may name, as comma-separated hosts with their ports",
            changed_by="who has clusters that only a proxy reaches",
            check=check_host_and_port,
            computed_default="none",
        ),
    ] = ()
    cluster_kubeconfig_folder: Annotated[
        Path | None,
        SettingInfo(
            "Clusters",
            "Folder with kubeconfigs that Secrets in service-system may follow",
            changed_by="who has credentials of clusters that another program renews",
            computed_default="none",
        ),
    ] = None
    local_cluster: Annotated[
        str,
        SettingInfo(
            "Clusters",
            "Name under which the cluster that the server runs in is connected, with its pod's service account",
            changed_by="who runs the server in the cluster that it is to manage",
            check=check_object_name,
            computed_default="none: it is not connected",
        ),
    ] = ""
    chart_repositories: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Clusters",
            "Repositories that inline chart definitions may use, comma-separated",
            changed_by="administrators who let users choose charts of certain repositories",
            check=check_chart_repository,
            computed_default="none",
        ),
    ] = ()
    unlisted_clusters: Annotated[
        str,
        SettingInfo(
            "Clusters",
            "Clusters that a project without allowedClusters may use: those that the user may use, or all",
            changed_by="administrators of an installation from before this setting, to be stricter",
            choices=("", "use", "all"),
            computed_default="use; all for installations that are older than this setting",
        ),
    ] = ""
    space_roles: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Clusters",
            "Cluster roles that instances may bind in their namespace, besides those in administrators' templates",
            changed_by="administrators with cluster roles of their own for spaces",
            check=check_role_name,
            computed_default="view, edit, admin",
        ),
    ] = ("view", "edit", "admin")
    space_metadata: Annotated[
        tuple[str, ...],
        SettingInfo(
            "Clusters",
            "Labels and annotations that templates not owned by an administrator may set on namespaces: keys, or "
            "domains that end in /",
            changed_by="administrators with tools that read labels of namespaces",
            check=check_metadata_key,
            computed_default="tenant.service.sh/",
        ),
    ] = ("tenant.service.sh/",)
    space_pod_security: Annotated[
        str,
        SettingInfo(
            "Clusters",
            "Pod security level of namespaces that are not created from an administrator's template",
            changed_by="administrators who require the level restricted, or manage levels otherwise",
            choices=("baseline", "restricted", "privileged", "none"),
        ),
    ] = "baseline"
    chart_role: Annotated[
        str,
        SettingInfo(
            "Clusters",
            "Cluster role that a chart not chosen by an administrator gets in its namespace",
            changed_by="administrators with a cluster role of their own for charts",
            check=check_role_name,
        ),
    ] = "admin"
    runner_image: Annotated[
        str,
        SettingInfo(
            "Clusters",
            "Image of runners that the server deploys into clusters, if a Runner names none",
            changed_by="who deploys runners into clusters",
            computed_default="none: such runners are not deployed",
        ),
    ] = ""
    cluster_identity_prefix: Annotated[
        str,
        SettingInfo(
            "Clusters",
            "Prefix of user and group names in clusters; off for no prefix",
            changed_by="organizations whose clusters know the same users under another prefix, or none",
            check=lambda text: None if text == OFF else check_identity_prefix(text),
        ),
    ] = "fairlead:"
    cluster_requests: Annotated[
        int,
        SettingInfo(
            "Clusters",
            "Maximum number of concurrent requests to one cluster through gateways, including watches",
            changed_by="operators of clusters with many clients, or of slow ones",
        ),
    ] = 256
    cluster_websockets: Annotated[
        int,
        SettingInfo(
            "Clusters",
            "Maximum number of open WebSockets to one cluster: exec, attach, port-forward",
            changed_by="operators of clusters in which many users run exec and port-forward",
        ),
    ] = 256

    audit_path: Annotated[
        str,
        SettingInfo(
            "Audit",
            "Path of the audit log; - for standard output, off for no audit log",
            changed_by="who collects audit events from stdout, or on another disk",
            computed_default="<data>/audit.log",
        ),
    ] = ""
    audit_policy: Annotated[
        Path | None,
        SettingInfo(
            "Audit",
            "YAML file with the audit policy",
            changed_by="who records more or less than metadata",
            computed_default="Metadata for all requests",
        ),
    ] = None
    audit_size: Annotated[
        int,
        SettingInfo(
            "Audit",
            "Size in MiB at which an audit file is rotated",
            changed_by="operators of a log collector that wants smaller or larger files",
            maximum=1_000_000,
        ),
    ] = 100
    audit_backups: Annotated[
        int,
        SettingInfo(
            "Audit",
            "Maximum number of rotated audit files; 0 for no limit",
            changed_by="who has to keep audit events for long",
            minimum=0,
        ),
    ] = 10
    audit_max_days: Annotated[
        int,
        SettingInfo(
            "Audit",
            "Maximum age of rotated audit files in days; 0 for no limit",
            changed_by="who has to delete audit events after some time",
            minimum=0,
        ),
    ] = 0
    audit_min_days: Annotated[
        int,
        SettingInfo(
            "Audit",
            "Minimum age in days before audit_backups removes audit files; 0 for none",
            changed_by="who has to keep audit events for some time",
            minimum=0,
        ),
    ] = 7
    audit_disk: Annotated[
        int,
        SettingInfo(
            "Audit",
            "Maximum total size of all audit files in MiB; 0 for no limit",
            changed_by="operators of a small disk, or who have to keep audit events for long",
            minimum=0,
        ),
    ] = 2000
    audit_rejected: Annotated[
        int,
        SettingInfo(
            "Audit",
            "Rejected requests of one user or address that are audited per minute; 0 for all",
            changed_by="who has to record every rejected request",
            minimum=0,
        ),
    ] = 120
    audit_reads: Annotated[
        int,
        SettingInfo(
            "Audit",
            "Reads of one user that are audited per minute; 0 for all",
            changed_by="who has to record every read",
            minimum=0,
        ),
    ] = 6000
    audit_compress: Annotated[
        str,
        SettingInfo(
            "Audit",
            "Whether rotated audit files are compressed with gzip",
            changed_by="operators of a log collector that reads rotated files",
            choices=ON_OFF,
        ),
    ] = "on"

    metrics_public: Annotated[
        str,
        SettingInfo(
            "Metrics",
            "Whether /metrics is available without authentication",
            changed_by="operators of a monitoring system in a closed network",
            choices=ON_OFF,
        ),
    ] = "off"

    body_limit: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum size of a request body in bytes",
            changed_by="who stores larger objects, or serves clients that are not trusted",
            minimum=1024,
            maximum=64 * 1024 * 1024,
        ),
    ] = 3 * 1024 * 1024
    request_timeout: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Timeout of a request in seconds, except watches",
            changed_by="operators of slow clusters or stores",
            maximum=3600,
        ),
    ] = 60
    watch_timeout_min: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Minimum duration of a watch in seconds; the actual one is random, up to twice as long",
            changed_by="operators of a load balancer that ends connections earlier",
            maximum=86400,
        ),
    ] = 1800
    watch_queue: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum number of queued events for a slow watch before it is closed",
            changed_by="operators of a machine with little memory",
        ),
    ] = 10_000
    watches_max: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum number of open watches and other streams; the last tenth is reserved for administrators",
            changed_by="operators of large installations",
        ),
    ] = 10_000
    watches_per_user: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum number of open watches and other streams of one user, with all keys",
            changed_by="operators of a user or team with very many clients",
        ),
    ] = 2_000
    stored_objects_per_namespace: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum number of objects that users can store in one namespace",
            changed_by="operators of large projects",
            maximum=_MAX_OBJECTS,
        ),
    ] = 10_000
    stored_bytes_per_namespace: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum total size in bytes of the objects in one namespace",
            changed_by="operators of large projects",
            minimum=_MIN_BYTES,
            maximum=_MAX_BYTES,
        ),
    ] = 64 * 1024 * 1024
    stored_objects_per_user: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum number of objects that one user can store, of all kinds",
            changed_by="operators of CI systems that share one user",
            maximum=_MAX_OBJECTS,
        ),
    ] = 2_000
    stored_bytes_per_user: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Maximum total size in bytes of the objects that one user stores",
            changed_by="operators of CI systems that share one user",
            minimum=_MIN_BYTES,
            maximum=_MAX_BYTES,
        ),
    ] = 16 * 1024 * 1024
    history_seconds: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Minimum seconds before old revisions are compacted",
            changed_by="operators with clients that resume watches after a longer interruption",
        ),
    ] = 300
    history_revisions: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Minimum number of newest revisions that are not compacted",
            changed_by="the same, for stores with few writes",
            minimum=0,
        ),
    ] = 1000
    event_ttl: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Seconds until Event objects are deleted",
            changed_by="who looks into failures later than after an hour",
        ),
    ] = 3600
    shutdown_drain: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Seconds that the server still serves after the signal to stop, while /readyz responds with 503",
            changed_by="operators of a load balancer that notices the end sooner or later",
            minimum=0,
            maximum=3600,
        ),
    ] = 5
    shutdown_grace: Annotated[
        int,
        SettingInfo(
            "Limits",
            "Seconds that requests in flight have to finish when the server stops",
            changed_by="operators with long requests",
            minimum=0,
            maximum=3600,
        ),
    ] = 10

    log_level: Annotated[
        str,
        SettingInfo(
            "Log",
            "Minimum level of logged messages",
            changed_by="who looks for the cause of a problem",
            choices=LOG_LEVELS,
        ),
    ] = "info"
    log_format: Annotated[
        str,
        SettingInfo(
            "Log",
            "One JSON object per line, or human-readable columns",
            changed_by="who reads the log in a terminal",
            choices=LOG_FORMATS,
        ),
    ] = "json"

    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where the values that are no defaults come from: a flag, a variable, or a file and the key in it."""

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:{self.data / 'fairlead.db'}"

    @property
    def worker_count(self) -> int:
        return self.workers or min(count_cpus(), MAX_DEFAULT_WORKERS)

    @property
    def audit_destination(self) -> str:
        """A path, `-` for standard output, or empty for no audit log."""
        return "" if self.audit_path == OFF else self.audit_path or str(self.data / "audit.log")

    @property
    def identity_prefix(self) -> str:
        """The prefix of user and group names in clusters; may be empty."""
        return "" if self.cluster_identity_prefix == OFF else self.cluster_identity_prefix

    @property
    def port_domain(self) -> str:
        """The domain of the host names of ports; empty for none. Browsers resolve names below localhost themselves."""
        if self.workspace_domain:
            return "" if self.workspace_domain == OFF else self.workspace_domain
        is_local = is_loopback(self.listen) and not self.public_url
        return LOCAL_PORT_DOMAIN if is_local else ""

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """The names for the generated certificate, besides localhost and the host name."""
        ports = f"*.{self.port_domain}" if self.port_domain else ""
        names = (*self.tls_names, urlsplit(self.public_url).hostname or "", self._host, ports)
        return tuple(dict.fromkeys(name for name in names if name))

    def base_url(self, port: int) -> str:
        """The URL for clients. `port` is the actual port, in case the setting is 0."""
        return self.public_url or f"https://{format_host(self._host)}:{port}"

    @property
    def _host(self) -> str:
        """The host for clients: loopback if the server listens on all addresses, which clients cannot connect to."""
        address = ipaddress.ip_address(self.listen)
        if not address.is_unspecified:
            return self.listen
        return "::1" if address.version == 6 else "127.0.0.1"
