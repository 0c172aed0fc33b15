"""A client of a local gateway (`fairlead/upstream/local_gateway.py`)."""

import ssl

import httpx

from fairlead.upstream.access import ClusterEndpoint


def build_client(endpoint: ClusterEndpoint, token: str = "") -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"https://localhost:{endpoint.port}",
        verify=ssl.create_default_context(cadata=endpoint.ca_data),
        headers={"authorization": f"Bearer {token or endpoint.token}"},
        trust_env=False,
        timeout=60,
    )
