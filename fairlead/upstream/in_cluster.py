"""In-cluster configuration: the cluster that this process runs in, with the service account of its pod."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from fairlead.core.files import FileProblem, read_file
from fairlead.upstream.access import ClusterEndpoint

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where pods find their service account token and the cluster's CA certificate."""

ClusterEndpointSource = Callable[[], ClusterEndpoint]
"""Reads the current endpoint and credential of the cluster. Raises FileProblem."""


def api_server_address(environment: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Host and port of the API server from a pod's environment; None outside of a pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    return (host, int(port)) if host and port.isdecimal() else None


def in_cluster_source(advice: str, folder: Path = SERVICE_ACCOUNT_DIR) -> ClusterEndpointSource:
    """`advice` says what to do if the process does not run in a pod with a service account."""

    def read_endpoint() -> ClusterEndpoint:
        address = api_server_address()
        token = read_file(folder / "token")
        authority = read_file(folder / "ca.crt")
        if address is None or not token or not authority:
            raise FileProblem(f"{folder}: not running in a pod; {advice}")
        return ClusterEndpoint(*address, "", address[0], authority.decode(), token.decode().strip())

    return read_endpoint
