"""Requests through the gateway and directly, with a real API server as upstream: `--reference KUBECONFIG`.

The kubeconfig contains a token and its certificates (`kubectl config view --raw --flatten`), of a user who can
create namespaces. The objects of the rounds are in a namespace of their own, which is deleted afterwards.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.failure import Failure
from bench.gateways import fleet
from bench.gateways.run import Row, compare_rounds
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig

NAMESPACE = "fairlead-bench"
PIECES, PIECE_BYTES = 8, 1_040_000
"""ConfigMaps that make a list of about 8 MiB; one alone may have no more than 1 MiB."""


def measure_reference(folder: Path, seconds: int, kubeconfig: Path) -> Iterator[Row]:
    content = kubeconfig.read_text()
    try:
        access = parse_kubeconfig(content.encode())
    except InvalidKubeconfig as error:
        raise Failure(f"{kubeconfig}: {'; '.join(error.problems)}") from None
    directly = f"https://{access.host}:{access.port}{access.base_path}"
    with (
        create_objects_for_rounds(access, directly),
        fleet.run_fairlead(folder / "beside") as server,
        fleet.build_client(server) as api,
    ):
        fleet.connect_cluster(api, "real", content)
        fleet.wait_until_settled(api, 1)
        key, through = server.output["accessKey"], f"{server.url}/kubernetes/cluster/real"
        rounds = (
            ("small GET, a real API server", f"/api/v1/namespaces/{NAMESPACE}", 16, "50 %"),
            (
                "LIST of 8 MiB, a real API server",
                f"/api/v1/namespaces/{NAMESPACE}/configmaps?resourceVersion=0",
                4,
                "80 %",
            ),
        )
        for name, path, connections, aim in rounds:
            row = compare_rounds(name, (directly + path, access.token), (through + path, key), seconds, connections)
            yield Row(row.name, row.value, aim)


@contextmanager
def create_objects_for_rounds(access: ClusterEndpoint, url: str) -> Iterator[None]:
    tls_context = ssl.create_default_context(cadata=access.ca_data or None)
    headers = {"Authorization": f"Bearer {access.token}"}
    with httpx.Client(base_url=url, verify=tls_context, headers=headers, timeout=30) as api:
        namespaces = "/api/v1/namespaces"
        fleet.expect_created(api.post(namespaces, json={"metadata": {"name": NAMESPACE}}))
        try:
            for number in range(PIECES):
                body = {"metadata": {"name": f"piece-{number}"}, "data": {"piece": "z" * PIECE_BYTES}}
                fleet.expect_created(api.post(f"{namespaces}/{NAMESPACE}/configmaps", json=body))
            yield
        finally:
            api.delete(f"{namespaces}/{NAMESPACE}")
