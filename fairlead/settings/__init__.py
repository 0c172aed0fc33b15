"""Everything that can be configured, as one frozen value.

A field is a setting: its name gives the key in the file, the environment variable and the flag, its annotation the
help and the bounds. The commands call `load`, `app` hands the values on, and docs/settings.md is held against this
page by a test. To add a setting, add a field.

A flag wins over the environment, that over the file, and the file over the default. Nothing unknown is passed over in
silence: a misspelt limit that is quietly not in force would be found out at the worst moment.
"""

import ipaddress
import os
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import urlsplit

from fairlead.core.cluster_identity import DEFAULT_PREFIX, check_prefix
from fairlead.core.validators import (
    bracketed,
    check_api_group,
    check_base_url,
    check_host_name,
    check_ip_address,
    check_metadata_key,
    check_namespace_prefix,
    check_network,
    check_repository,
    check_role_name,
)
from fairlead.settings.sources import Given, Sources, StartError
from fairlead.settings.values import OFF, READERS, SWITCH, About, absolute

__all__ = ["CONFIG", "SETTINGS", "Setting", "Settings", "StartError", "flag", "load", "variable"]

ENVIRONMENT_PREFIX = "FAIRLEAD_"
CONFIG = "config"
"""Names the file itself, so it is a flag and a variable but no field and no key."""

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("json", "console")


def _data_folder() -> Path:
    given = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification has relative paths ignored.
    if given.startswith("/"):
        return Path(given) / "fairlead"
    try:
        return Path.home() / ".local" / "share" / "fairlead"
    except RuntimeError as error:
        raise StartError(f"this user has no home folder; name a folder with {flag('data')}") from error


SELF_MADE = "self-made, in <data>/tls"


@dataclass(frozen=True, slots=True)
class Settings:
    data: Annotated[
        Path,
        About(
            "Place",
            "Folder for the database, certificates and the administrator's kubeconfig",
            computed="$XDG_DATA_HOME/fairlead, else ~/.local/share/fairlead",
        ),
    ] = field(default_factory=_data_folder)
    store: Annotated[
        str,
        About(
            "Place",
            "Where objects are kept: sqlite:PATH, postgres://..., etcd://..., or memory: to forget them at the end",
            computed="sqlite:<data>/fairlead.db",
        ),
    ] = ""
    listen: Annotated[
        str, About("Place", "IP address to listen on; 0.0.0.0 for all of the machine's", check=check_ip_address)
    ] = "127.0.0.1"
    port: Annotated[int, About("Place", "Port to listen on; 0 for any free one", minimum=0, maximum=65535)] = 8443
    public_url: Annotated[
        str,
        About(
            "Place",
            "Address that clients are told, where it is not the one that the server listens on",
            check=check_base_url,
            computed="https://<listen>:<port>",
        ),
    ] = ""

    tls_cert: Annotated[
        Path | None,
        About(
            "TLS", "PEM file with the server's certificate and those between it and its authority", computed=SELF_MADE
        ),
    ] = None
    tls_key: Annotated[
        Path | None, About("TLS", "PEM file with the key of tls_cert, without a passphrase", computed=SELF_MADE)
    ] = None
    tls_ca: Annotated[
        Path | None,
        About("TLS", "PEM file with the authority that clients need to trust tls_cert", computed="the clients' own"),
    ] = None
    tls_names: Annotated[
        tuple[str, ...],
        About(
            "TLS",
            "More DNS names and IP addresses for the self-made certificate, separated by commas",
            check=check_host_name,
            computed="none",
        ),
    ] = ()

    api_group: Annotated[str, About("API", "API group of the management kinds", check=check_api_group)] = (
        "management.service.sh"
    )
    namespace_prefix: Annotated[
        str, About("API", "What a project's namespace has before the project's name", check=check_namespace_prefix)
    ] = "service-p-"

    password_login: Annotated[str, About("Identity", "Whether people can sign in with a password", choices=SWITCH)] = (
        "on"
    )
    login_key_ttl: Annotated[int, About("Identity", "Seconds that a login lasts; 0 for no end", minimum=0)] = (
        20 * 24 * 3600
    )
    access_key_max_ttl: Annotated[
        int, About("Identity", "Most seconds that people may give an access key to live; 0 for no limit", minimum=0)
    ] = 0
    access_key_retention: Annotated[
        int, About("Identity", "Seconds for which expired access keys are kept, so that people see why", minimum=0)
    ] = 24 * 3600
    access_keys_per_owner: Annotated[
        int, About("Identity", "Access keys that a user or team may make for itself, logins apart", maximum=100_000)
    ] = 100
    access_key_bytes_per_owner: Annotated[
        int, About("Identity", "Bytes that all access keys of a user or team may take together", minimum=1024)
    ] = 1024 * 1024

    service_account_token_max_ttl: Annotated[
        int, About("Identity", "Most seconds that a token of a service account lives", minimum=600)
    ] = 24 * 3600
    service_account_tokens: Annotated[
        int, About("Identity", "Tokens of one service account that may be in force at once")
    ] = 100

    cluster_networks: Annotated[
        tuple[str, ...],
        About(
            "Clusters",
            "Networks where clusters may be beside public ones, as CIDRs separated by commas",
            check=check_network,
            computed="none; loopback and private ones with fairlead up",
        ),
    ] = ()
    chart_repositories: Annotated[
        tuple[str, ...],
        About(
            "Clusters",
            "Repositories that charts written out in place may come from, separated by commas",
            check=check_repository,
            computed="none",
        ),
    ] = ()
    unlisted_clusters: Annotated[
        str,
        About(
            "Clusters",
            "What a project without allowedClusters may use: clusters that the person may use, or all",
            choices=("", "use", "all"),
            computed="use; all for installations from before there was this setting",
        ),
    ] = ""
    space_roles: Annotated[
        tuple[str, ...],
        About(
            "Clusters",
            "Cluster roles that instances may give in their namespace, beside those of administrators' templates",
            check=check_role_name,
            computed="view, edit, admin",
        ),
    ] = ("view", "edit", "admin")
    space_metadata: Annotated[
        tuple[str, ...],
        About(
            "Clusters",
            "Labels and annotations that namespaces get from templates that are no administrator's: keys, or domains "
            "that end in /",
            check=check_metadata_key,
            computed="tenant.service.sh/",
        ),
    ] = ("tenant.service.sh/",)
    space_pod_security: Annotated[
        str,
        About(
            "Clusters",
            "Pod security level of namespaces that no administrator's template has made",
            choices=("baseline", "restricted", "privileged", "none"),
        ),
    ] = "baseline"
    chart_role: Annotated[
        str,
        About(
            "Clusters",
            "Cluster role in its namespace that a chart has which no administrator has chosen",
            check=check_role_name,
        ),
    ] = "admin"
    cluster_identity_prefix: Annotated[
        str,
        About(
            "Clusters",
            "What names of users and groups have in front at clusters; off for nothing",
            check=lambda text: None if text == OFF else check_prefix(text),
        ),
    ] = DEFAULT_PREFIX
    cluster_requests: Annotated[
        int, About("Clusters", "Requests that one cluster is sent through gateways at once, watches included")
    ] = 256
    cluster_sockets: Annotated[
        int, About("Clusters", "WebSockets that are open to one cluster at once: exec, attach, port-forward")
    ] = 256

    audit_path: Annotated[
        str, About("Audit", "File of the audit log; - for standard output, off for none", computed="<data>/audit.log")
    ] = ""
    audit_policy: Annotated[
        Path | None,
        About("Audit", "YAML file that says how much is recorded of which requests", computed="metadata of everything"),
    ] = None
    audit_size: Annotated[int, About("Audit", "Mebibytes after which a new audit file is begun", maximum=1_000_000)] = (
        100
    )
    audit_backups: Annotated[int, About("Audit", "Old audit files that are kept; 0 for all of them", minimum=0)] = 10
    audit_days: Annotated[int, About("Audit", "Days for which old audit files are kept; 0 for ever", minimum=0)] = 0
    audit_days_min: Annotated[
        int, About("Audit", "Days for which old audit files are kept whatever their number; 0 for none", minimum=0)
    ] = 7
    audit_disk: Annotated[
        int, About("Audit", "Mebibytes that all audit files may take together; 0 for no limit", minimum=0)
    ] = 2000
    audit_refused: Annotated[
        int, About("Audit", "Refused requests of one user or address recorded whole in a minute; 0 for all", minimum=0)
    ] = 120
    audit_reads: Annotated[
        int, About("Audit", "Reads of one user that are recorded whole in a minute; 0 for all of them", minimum=0)
    ] = 6000
    audit_compress: Annotated[str, About("Audit", "Whether old audit files are packed with gzip", choices=SWITCH)] = (
        "on"
    )

    metrics_public: Annotated[
        str, About("Metrics", "Whether anybody may read /metrics, without signing in", choices=SWITCH)
    ] = "off"

    body_limit: Annotated[
        int, About("Limits", "Largest request body, in bytes", minimum=1024, maximum=64 * 1024 * 1024)
    ] = 3 * 1024 * 1024
    request_timeout: Annotated[int, About("Limits", "Seconds that a request may take, watches apart", maximum=3600)] = (
        60
    )
    watch_timeout_min: Annotated[
        int, About("Limits", "Seconds that a watch lasts at least; chance makes it up to twice as many", maximum=86400)
    ] = 1800
    watch_queue: Annotated[int, About("Limits", "Events that may wait for one slow watcher before it is cut off")] = (
        10_000
    )
    watches_max: Annotated[
        int, About("Limits", "Watches and other streams that may be open at once; the last tenth is for administrators")
    ] = 10_000
    watches_per_user: Annotated[
        int, About("Limits", "Watches and other streams that one user may have open at once, with all keys")
    ] = 2_000
    watches_per_key: Annotated[
        int, About("Limits", "Earlier name of watches_per_user, which it goes before; 0 for not set", minimum=0)
    ] = 0
    history_seconds: Annotated[int, About("Limits", "Seconds for which old revisions stay readable at least")] = 300
    history_revisions: Annotated[
        int, About("Limits", "How many of the newest revisions stay readable at least", minimum=0)
    ] = 1000
    event_ttl: Annotated[int, About("Limits", "Seconds for which Event objects are kept")] = 3600
    shutdown_grace: Annotated[
        int, About("Limits", "Seconds that requests under way get when the server stops", minimum=0, maximum=3600)
    ] = 10

    log_level: Annotated[str, About("Log", "Least important lines shown", choices=LOG_LEVELS)] = "info"
    log_format: Annotated[str, About("Log", "One JSON object a line, or columns for people", choices=LOG_FORMATS)] = (
        "json"
    )

    @property
    def store_url(self) -> str:
        return self.store or f"sqlite:{self.data / 'fairlead.db'}"

    @property
    def audit_place(self) -> str:
        """A path, `-` for the standard output, or nothing."""
        return "" if self.audit_path == OFF else self.audit_path or str(self.data / "audit.log")

    @property
    def identity_prefix(self) -> str:
        """What names of users and groups have in front at clusters; perhaps nothing."""
        return "" if self.cluster_identity_prefix == OFF else self.cluster_identity_prefix

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Names that the self-made certificate needs beside those that every machine has."""
        asked = (*self.tls_names, urlsplit(self.public_url).hostname or "", self._host)
        return tuple(dict.fromkeys(name for name in asked if name))

    def base_url(self, port: int) -> str:
        """The address for clients, given the port that the system really handed out."""
        return self.public_url or f"https://{bracketed(self._host)}:{port}"

    @property
    def _host(self) -> str:
        """Nobody can connect to "all addresses", but on this machine loopback is one of them."""
        address = ipaddress.ip_address(self.listen)
        if not address.is_unspecified:
            return self.listen
        return "::1" if address.version == 6 else "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of Settings, taken apart."""

    name: str
    type: Any
    about: About
    default: Any

    @property
    def shown_default(self) -> str:
        return self.about.computed or str(self.default)


def _taken_apart(each: Field[Any]) -> Setting:
    kind, about = get_args(each.type)
    return Setting(each.name, kind, about, each.default)


SETTINGS = {each.name: _taken_apart(each) for each in fields(Settings)}


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def load(
    flags: Mapping[str, str | None], environment: Mapping[str, str], defaults: Mapping[str, Any] | None = None
) -> Settings:
    """All of the sources as one value. `flags` are named like the fields, None where not given. Raises StartError."""
    problems: list[str] = []
    config = flags.get(CONFIG) or environment.get(variable(CONFIG))
    given: Given = {
        **(SOURCES.read_config(absolute(config), problems) if config else {}),
        **SOURCES.read_environment(environment, problems),
        **{name: (flag(name), value) for name, value in flags.items() if name in SETTINGS and value is not None},
    }
    values = dict(defaults or {})
    for name, (origin, raw) in given.items():
        try:
            values[name] = READERS[SETTINGS[name].type](raw, SETTINGS[name].about)
        except ValueError as error:
            problems.append(f"{origin}: {error}")
    settings = Settings(**values)
    problems.extend(_contradictions(settings))
    if problems:
        raise StartError("\n".join(problems))
    return settings


def _contradictions(settings: Settings) -> Iterator[str]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        yield "tls_cert and tls_key belong together; give both, or neither for a self-made certificate"
    elif settings.tls_ca and not settings.tls_cert:
        yield "tls_ca is for a tls_cert of your own; leave it out, or give tls_cert and tls_key as well"
    elif settings.tls_names and settings.tls_cert:
        yield "tls_names are for the self-made certificate; leave them out, or leave out tls_cert and tls_key"
    if 0 < settings.audit_days < settings.audit_days_min:
        yield "audit_days is less than audit_days_min; raise it, or lower audit_days_min"


OTHER_VARIABLES = frozenset(
    {variable(name) for name in (CONFIG, "seal_keys", "pepper", "etcd_password", "url", "key", "ca_file", "context")}
)
"""What the environment tells beside settings: where they are, a secret that no file should hold, and whom to ask."""

SOURCES = Sources(tuple(SETTINGS), ENVIRONMENT_PREFIX, CONFIG, OTHER_VARIABLES)
