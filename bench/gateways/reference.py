"""Through the gateway beside directly, with a real API server as upstream: `--reference KUBECONFIG`.

The kubeconfig has a token and its certificates in itself (`kubectl config view --raw --flatten`), for somebody who may
make namespaces. What the rounds need is made in a namespace of their own, which is deleted again.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.failure import Failure
from bench.gateways import fleet
from bench.gateways.run import Row, compared
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig

PLACE = "fairlead-bench"
PIECES, PIECE_BYTES = 8, 1_040_000
"""ConfigMaps that make a list of about 8 MiB; one alone may have no more than 1 MiB."""


def reference(folder: Path, seconds: int, kubeconfig: Path) -> Iterator[Row]:
    content = kubeconfig.read_text()
    try:
        access = parse_kubeconfig(content.encode())
    except InvalidKubeconfig as error:
        raise Failure(f"{kubeconfig}: {'; '.join(error.problems)}") from None
    directly = f"https://{access.host}:{access.port}{access.base_path}"
    with furnished(access, directly), fleet.fairlead(folder / "beside") as near, fleet.client(near) as api:
        fleet.connect(api, "real", content)
        fleet.wait_until_settled(api, 1)
        key, through = near.told["accessKey"], f"{near.url}/kubernetes/cluster/real"
        rounds = (
            ("small GET, a real API server", f"/api/v1/namespaces/{PLACE}", 16, "50 %"),
            ("LIST of 8 MiB, a real API server", f"/api/v1/namespaces/{PLACE}/configmaps?resourceVersion=0", 4, "80 %"),
        )
        for name, path, connections, aim in rounds:
            row = compared(name, (directly + path, access.token), (through + path, key), seconds, connections)
            yield Row(row.name, row.value, aim)


@contextmanager
def furnished(access: ClusterEndpoint, url: str) -> Iterator[None]:
    trust = ssl.create_default_context(cadata=access.ca_data or None)
    headers = {"Authorization": f"Bearer {access.token}"}
    with httpx.Client(base_url=url, verify=trust, headers=headers, timeout=30) as api:
        namespaces = "/api/v1/namespaces"
        fleet.made(api.post(namespaces, json={"metadata": {"name": PLACE}}))
        try:
            for number in range(PIECES):
                body = {"metadata": {"name": f"piece-{number}"}, "data": {"piece": "z" * PIECE_BYTES}}
                fleet.made(api.post(f"{namespaces}/{PLACE}/configmaps", json=body))
            yield
        finally:
            api.delete(f"{namespaces}/{PLACE}")
