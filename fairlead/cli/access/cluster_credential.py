"""`fairlead credential --cluster-info`: the credential plugin for ClusterProfiles of the Cluster Inventory API.

The consumer of a ClusterProfile runs it with the address of the cluster in `KUBERNETES_EXEC_INFO`. It prints a key that
passes the gateway of that cluster alone, for an hour. A user who may write ClusterProfiles decides which address the
consumer is given, so the key of the login itself is not printed, and no server but that of the login gets any.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from fairlead.cli.access.keys import expiry_time
from fairlead.cli.ui.durations import parse_time
from fairlead.client import Client, ClientError
from fairlead.client.contexts import Login
from fairlead.client.login_sessions import current_session
from fairlead.core.cluster_exports import ExportFormat, Gateways, build_key
from fairlead.core.objects import Object, get_path, name_of
from fairlead.exec_credential import MAX_MARGIN_SECONDS, render_credential

EXEC_INFO = "KUBERNETES_EXEC_INFO"
KEYS = "ownedaccesskeys"
LIFETIME_SECONDS = 3600


def cluster_credential(login: Login, environment: Mapping[str, str]) -> str:
    """The ExecCredential for the cluster that the environment names. Raises ClientError."""
    cluster = requested_cluster(login.url, environment)
    now = datetime.now(UTC)
    with login.create_client() as client:
        created = _create_key(client, cluster, _lifetime(login, now))
    value = get_path(created, "spec.key")
    end = expiry_time(created)
    if not isinstance(value, str) or not value or end is None:
        raise ClientError(f"the server created {name_of(created)} but did not return its value and lifetime")
    seconds = (end - now).total_seconds()
    renewal = end - timedelta(seconds=min(MAX_MARGIN_SECONDS, seconds / 5))
    return render_credential(value, renewal.timestamp(), environment)


def requested_cluster(url: str, environment: Mapping[str, str]) -> str:
    """The cluster whose gateway at this server the caller connects to. Raises ClientError."""
    server = _requested_server(environment).rstrip("/")
    if not server:
        raise ClientError(
            f"{EXEC_INFO} does not name a cluster; set provideClusterInfo to true where this plugin is configured"
        )
    name = unquote(server.rpartition("/")[2])
    if not name or server != Gateways(url).server(name):
        raise ClientError(
            f"{server} is not the gateway of a cluster at {url}, the server of the login, so it gets no key; select "
            "another login with --context, or export the ClusterProfile again with that URL as --server-url"
        )
    return name


def _requested_server(environment: Mapping[str, str]) -> str:
    try:
        info = json.loads(environment.get(EXEC_INFO) or "null")
    except ValueError:
        raise ClientError(f"{EXEC_INFO} is not JSON; it is set by the program that runs this plugin") from None
    server = get_path(info, "spec.cluster.server")
    return server if isinstance(server, str) else ""


def _lifetime(login: Login, now: datetime) -> int:
    """An hour, or what is left of the login: a key cannot outlive the one that creates it."""
    if login.session:
        left = int(current_session(login).expires - now.timestamp()) - 1
    else:
        end = parse_time(login.expires)
        left = LIFETIME_SECONDS if end is None else int((end - now).total_seconds()) - 1
    return max(1, min(LIFETIME_SECONDS, left))


def _create_key(client: Client, cluster: str, seconds: int) -> Object:
    """A key of the user of the login. The login needs the permission to create keys, within its own scope."""
    return client.create(KEYS, build_key(cluster, ExportFormat.CLUSTERPROFILE, {"ttl": seconds}))
