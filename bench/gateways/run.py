"""The rounds: the same requests directly and through the gateway, and a healthy cluster alone and among many."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from bench.failure import Failure
from bench.gateways import fleet
from bench.gateways.bare_clusters import LARGE
from bench.gateways.fleet import Process

ROUNDS = 3
RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
P99 = re.compile(r"99%\s+([\d.]+)(us|ms|s)")
UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
FAILED = re.compile(r"Non-2xx|Socket errors")


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    value: str
    aim: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The figures of wrk for one round."""

    rate: float
    p99_ms: float


def run_wrk(url: str, key: str, seconds: int, connections: int) -> Load:
    command = (
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}",
        "--timeout",
        "30s",
        "--latency",
        "-H",
        f"Authorization: Bearer {key}",
        url,
    )
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = RATE.search(output)
    p99 = P99.search(output)
    if FAILED.search(output) or rate is None or p99 is None:
        raise Failure(f"not every response from {url} was a success:\n{output}")
    return Load(float(rate[1]), float(p99[1]) * UNITS[p99[2]])


def compare_rounds(name: str, direct: tuple[str, str], through: tuple[str, str], seconds: int, connections: int) -> Row:
    """Alternating rounds, so that a machine that slows down slows down both."""
    rounds = [
        (run_wrk(*direct, seconds, connections).rate, run_wrk(*through, seconds, connections).rate)
        for _ in range(ROUNDS)
    ]
    direct_load = median(a for a, _ in rounds)
    gateway_load = median(b for _, b in rounds)
    share = median(b / a for a, b in rounds)
    return Row(name, f"{gateway_load:,.0f}/s through, {direct_load:,.0f}/s directly: {share:.0%}")


def measure_throughput(folder: Path, seconds: int) -> Iterator[Row]:
    """Measures two kinds of upstreams: a bare one, and a Fairlead server."""
    bare_command = ("bench.gateways.bare_clusters", str(folder / "tls"), "1", "0")
    with (
        fleet.run_fairlead(folder / "near") as server,
        fleet.run_fairlead(folder / "upstream") as other_server,
        fleet.run_process(*bare_command) as bare,
        fleet.build_client(server) as api,
    ):
        fleet.connect_cluster(api, "bare", fleet.build_kubeconfig(bare.url, folder / "tls" / "ca.crt"))
        fleet.connect_cluster(api, "upstream", _read_admin_kubeconfig(other_server))
        fleet.wait_until_settled(api, 2)
        key, gateway = server.output["accessKey"], f"{server.url}/kubernetes/cluster"
        small = (f"{bare.url}/small", key), (f"{gateway}/bare/small", key)
        yield compare_rounds("small GET, bare upstream", *small, seconds, 16)
        large = (f"{bare.url}/large", key), (f"{gateway}/bare/large", key)
        row = compare_rounds(f"GET of {LARGE >> 20} MiB, bare upstream", *large, seconds, 4)
        yield Row(row.name, row.value, "80 %")
        path = "/api/v1/namespaces/default"
        real = (
            (f"{other_server.url}{fleet.MANAGEMENT}{path}", other_server.output["accessKey"]),
            (f"{gateway}/upstream{path}", key),
        )
        row = compare_rounds("small GET, a server of ours as upstream", *real, seconds, 16)
        yield Row(row.name, row.value, "50 %")
        yield _measure_added_latency(*small, seconds)


def _measure_added_latency(direct: tuple[str, str], through: tuple[str, str], seconds: int) -> Row:
    direct_load = run_wrk(*direct, seconds, 1)
    gateway_load = run_wrk(*through, seconds, 1)
    added = 1000 / gateway_load.rate - 1000 / direct_load.rate
    return Row(
        "added latency, one connection",
        f"{added:.2f} ms on average; p99 {gateway_load.p99_ms:.2f} ms, directly {direct_load.p99_ms:.2f} ms",
    )


def _read_admin_kubeconfig(server: Process) -> str:
    return Path(server.output["kubeconfig"]).read_text()


def measure_among_many(folder: Path, seconds: int, clusters: int, failing: int) -> Iterator[Row]:
    """Measures a healthy cluster alone, then among many of which some are dead and some never respond."""
    dead, slow = failing // 2, failing - failing // 2
    healthy = clusters - failing
    command = ("bench.gateways.bare_clusters", str(folder / "tls"), str(healthy), str(slow))
    with (
        fleet.run_fairlead(folder / "many") as server,
        fleet.build_client(server) as api,
        fleet.run_process(*command) as other_server,
    ):
        authority, ports = folder / "tls" / "ca.crt", other_server.output["ports"]
        fleet.connect_cluster(api, "alone", fleet.build_kubeconfig(f"https://127.0.0.1:{ports[0]}", authority))
        fleet.wait_until_settled(api, 1)
        url, key = f"{server.url}/kubernetes/cluster/alone/small", server.output["accessKey"]
        alone = run_wrk(url, key, seconds, 8)
        api.delete(f"{fleet.CLUSTERS}/alone")
        fleet.connect_clusters(api, ports, authority, dead)
        yield Row(f"{healthy} of {clusters} clusters online after", f"{fleet.wait_until_settled(api, healthy):.1f} s")
        before = server.memory()
        with request_continuously(api, range(healthy, clusters)):
            url = f"{server.url}/kubernetes/cluster/bare-0/small"
            among = [run_wrk(url, key, seconds, 8) for _ in range(ROUNDS)]
        after = server.memory()
        yield Row("p99 of a healthy one, alone", f"{alone.p99_ms:.1f} ms at {alone.rate:,.0f}/s")
        worst = max(among, key=lambda each: each.p99_ms)
        yield Row(
            f"p99 of a healthy one beside {dead} dead and {slow} silent",
            f"{worst.p99_ms:.1f} ms at {worst.rate:,.0f}/s (worst of {ROUNDS})",
        )
        yield Row("memory", f"{before / 2**20:.0f} MiB, {after / 2**20:.0f} MiB at the end")
        gaps = other_server.stop()["gaps"]
        if gaps:
            yield Row(
                "time between two probes of a healthy one",
                f"median {median(gaps):.1f} s, longest {gaps[-1]:.1f} s",
                "15 s",
            )


@contextmanager
def request_continuously(api: httpx.Client, numbers: range) -> Iterator[None]:
    """Sends requests to each of the failing clusters during the context."""
    stop = threading.Event()

    def send_requests(number: int) -> None:
        while not stop.is_set():
            try:
                api.get(f"/kubernetes/cluster/bare-{number}/small", timeout=5)
            except httpx.TimeoutException:
                continue
            stop.wait(0.2)

    threads = [threading.Thread(target=send_requests, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
