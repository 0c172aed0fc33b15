"""Measures virtual clusters that are reached by port-forward: `python -m bench.virtual_clusters`.

`[COUNT [SECONDS [idle]]]` are its arguments, 50 and 600 by default. The first table, without `idle`, compares a
tunnel with a direct connection to the same API server, which is a fake one: what counts is the CPU time of the server
for a request and for a megabyte. Rates depend on the fake, which serves both ends of the tunnel in one thread.

The second part is about COUNT idle virtual clusters in SECONDS, beside 30 other clusters with RSA keys as credentials:
the CPU time of the server beyond what it needs without them, and how long its event loop was held, also after a start.
It ends with exit code 1 if an idle one takes more than 0.05 % of a core, or the loop was held for more than 20 ms.
"""

import re
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fake_cluster.certificates import get_authority
from tests.fake_cluster.exchange import CannedResponse
from tests.fake_cluster.server import ClusterOptions, FakeCluster
from tests.harness.eventually import wait_until
from tests.harness.gateways import connect_cluster, is_online, post_object
from tests.harness.server_process import MANAGEMENT, Server, running_server
from tests.harness.tunnel_cluster import TunnelCluster, open_tunnel_cluster

GATEWAY = "/kubernetes/project/demo/virtualcluster"
NAMESPACE = "service-p-demo"
SMALL, LARGE = "/version", "/large"
LARGE_BYTES = 50_000_000
REQUESTS, LARGE_REQUESTS = 2_000, 6
WAIT_SECONDS = 600
SETTLE_SECONDS = 30
"""After which the first full reconciles are over."""
CLUSTERS = 30
START_SECONDS = 60
"""Within which a server that has started has checked everything that it knows."""
MAX_SHARE, MAX_HOLD_SECONDS = 0.0005, 0.02
"""The aims: of a core for each idle one, and of the event loop."""
BLOCKED_COUNT = re.compile(r'^fairlead_event_loop_blocked_seconds_bucket\{.*le="([^"]+)".*\} (\S+)$', re.MULTILINE)


def connect_directly(cluster: TunnelCluster) -> None:
    """Imports the same API server, with its own address."""
    data = {"config": b64encode(cluster.inner.build_kubeconfig("inner")).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "direct"}, "data": data}
    post_object(cluster.helm.admin, f"{MANAGEMENT}/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    cluster.helm.create_virtual_cluster("direct", config={"secretName": "direct"}, clusterRef=None)


def create_tunnelled(cluster: TunnelCluster, names: list[str]) -> None:
    for name in names:
        pods = cluster.pods_of(name)
        pods.add_service(cluster.inner.port)
        pods.add_pod(f"{name}-0")
        cluster.helm.create_virtual_cluster(name, templateRef={"name": "tunnelled"})
    for name in names:
        wait_until(lambda name=name: is_ready(cluster, name), WAIT_SECONDS)  # type: ignore[misc]


def is_ready(cluster: TunnelCluster, name: str) -> bool:
    return cluster.helm.condition(name, "Ready").get("status") == "True"


def measure_requests(server: Server, path: str, count: int, connections: int) -> tuple[float, float, float, float]:
    """Requests a second, median and 99th percentile in milliseconds, and CPU milliseconds of the server for one."""
    times: list[float] = []

    def send(number: int) -> None:
        with server.client() as client:
            for _ in range(count // connections):
                began = time.perf_counter()
                response = client.get(path, timeout=60)
                times.append(time.perf_counter() - began)
                assert response.status_code == httpx.codes.OK, response.text

    cpu_before = server.cpu_seconds()
    start = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(send, range(connections)))
    seconds = time.perf_counter() - start
    cpu = server.cpu_seconds() - cpu_before
    cuts = quantiles(times, n=100)
    return len(times) / seconds, 1000 * cuts[49], 1000 * cuts[98], 1000 * cpu / len(times)


def compare(cluster: TunnelCluster) -> Iterator[str]:
    cluster.inner.set_response(LARGE, CannedResponse(body=b"z" * LARGE_BYTES, content_type="text/plain"))
    connect_directly(cluster)
    create_tunnelled(cluster, ["tunnel"])
    wait_until(lambda: is_ready(cluster, "direct"), WAIT_SECONDS)
    yield "| what | way | rate | median | p99 | CPU of the server |"
    yield "|---|---|---|---|---|---|"
    for connections in (1, 8, 64):
        for way in ("direct", "tunnel"):
            path = f"{GATEWAY}/{way}{SMALL}"
            rate, p50, p99, cpu = measure_requests(cluster.server, path, REQUESTS, connections)
            what = f"GET, {connections} at once"
            yield f"| {what} | {way} | {rate:,.0f}/s | {p50:.1f} ms | {p99:.1f} ms | {cpu:.2f} ms |"
    for way in ("direct", "tunnel"):
        path = f"{GATEWAY}/{way}{LARGE}"
        rate, p50, _, cpu = measure_requests(cluster.server, path, LARGE_REQUESTS, 1)
        megabytes = LARGE_BYTES / 1e6
        speed = f"{rate * megabytes:,.0f} MB/s"
        yield f"| {megabytes:.0f} MB | {way} | {speed} | {p50:.0f} ms | | {cpu / megabytes:.2f} ms/MB |"


def connect_others(cluster: TunnelCluster, stack: ExitStack) -> None:
    """Connects the other clusters, each with a client certificate of its own."""
    names = [f"other{number}" for number in range(CLUSTERS)]
    for number, name in enumerate(names):
        options = ClusterOptions(uid=f"00000000-0000-4000-8000-{number:012d}")
        fake = stack.enter_context(FakeCluster(None, options))
        pair = get_authority().issue(common_name=name, key=rsa.generate_private_key(65537, 2048))
        kubeconfig = yaml.safe_load(fake.build_kubeconfig())
        kubeconfig["users"][0]["user"] = {
            "client-certificate-data": b64encode(pair.certificate.encode()).decode(),
            "client-key-data": b64encode(pair.key.encode()).decode(),
        }
        connect_cluster(cluster.helm.admin, name, yaml.safe_dump(kubeconfig).encode())
    for name in names:
        wait_until(lambda name=name: is_online(cluster.helm.admin, name), WAIT_SECONDS)  # type: ignore[misc]


def measure_idle(cluster: TunnelCluster, count: int, seconds: float) -> tuple[list[str], bool]:
    """The lines to print, and whether the aims are met."""
    time.sleep(SETTLE_SECONDS)
    alone = measure_cpu(cluster, min(seconds, 60.0))
    create_tunnelled(cluster, [f"idle{number}" for number in range(count)])
    time.sleep(SETTLE_SECONDS)
    before = read_blocked(cluster.helm.admin)
    among = measure_cpu(cluster, seconds)
    holds = count_between(before, read_blocked(cluster.helm.admin))
    share = (among - alone) / count
    long_holds = count_longer(holds, MAX_HOLD_SECONDS)
    lines = [
        f"idle: {count} virtual clusters for {seconds:.0f} s, beside {CLUSTERS} clusters",
        f"CPU of the server: {alone:.2%} of a core without them, {among:.2%} with them, {share:.4%} for each",
        f"turns of the event loop by the time that they held it: {holds}",
        f"of them above {1000 * MAX_HOLD_SECONDS:.0f} ms: {long_holds}",
        f"open connections of the server to the cluster: {len(cluster.host.open_connections)}",
    ]
    return lines, share <= MAX_SHARE and not long_holds


def measure_start(cluster: TunnelCluster, data: Path) -> Iterator[str]:
    """Starts the server again with everything in it."""
    cluster.server.stop()
    with running_server(data) as server, server.client() as admin:
        for number in range(CLUSTERS):
            wait_until(lambda name=f"other{number}": is_online(admin, name), WAIT_SECONDS)  # type: ignore[misc]
        time.sleep(START_SECONDS)
        holds = count_between({}, read_blocked(admin))
    yield f"turns of the event loop in the first {START_SECONDS} s after a start: {holds}"


def measure_cpu(cluster: TunnelCluster, seconds: float) -> float:
    """The share of a core that the server uses."""
    before = cluster.server.cpu_seconds()
    start = time.monotonic()
    time.sleep(seconds)
    return (cluster.server.cpu_seconds() - before) / (time.monotonic() - start)


def read_blocked(admin: httpx.Client) -> dict[float, int]:
    """How many turns of the event loop were at most so long, by the bounds of the histogram."""
    text = admin.get("/metrics").text
    return {float(bound): int(float(count)) for bound, count in BLOCKED_COUNT.findall(text)}


def count_between(before: dict[float, int], after: dict[float, int]) -> dict[float, int]:
    """The turns since then that were longer than the bound before and at most as long as this one."""
    counts: dict[float, int] = {}
    shorter = 0
    for bound, count in after.items():
        up_to = count - before.get(bound, 0)
        if up_to > shorter:
            counts[bound] = up_to - shorter
        shorter = up_to
    return counts


def count_longer(holds: dict[float, int], seconds: float) -> int:
    return sum(count for bound, count in holds.items() if bound > seconds)


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 50
    seconds = float(arguments[1]) if len(arguments) > 1 else 600.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(open_tunnel_cluster(folder))
        cluster.create_template()
        lines = () if "idle" in arguments else compare(cluster)
        for line in lines:
            print(line, flush=True)
        connect_others(cluster, stack)
        idle_lines, is_met = measure_idle(cluster, count, seconds)
        print("\n".join(idle_lines), flush=True)
        for line in measure_start(cluster, folder / "server" / "data"):
            print(line, flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
