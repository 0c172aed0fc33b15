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
from bench.gateways.far import LARGE
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
    """What wrk says of one round."""

    rate: float
    p99_ms: float


def loaded(url: str, key: str, seconds: int, connections: int) -> Load:
    command = ("wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-H", f"Authorization: Bearer {key}", url)
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate, p99 = RATE.search(output), P99.search(output)
    if FAILED.search(output) or rate is None or p99 is None:
        raise Failure(f"not every answer from {url} was a good one:\n{output}")
    return Load(float(rate[1]), float(p99[1]) * UNITS[p99[2]])


def compared(name: str, direct: tuple[str, str], through: tuple[str, str], seconds: int, connections: int) -> Row:
    """Alternating rounds, so that a machine that slows down slows down both."""
    rounds = [
        (loaded(*direct, seconds, connections).rate, loaded(*through, seconds, connections).rate) for _ in range(ROUNDS)
    ]
    here, there = median(a for a, _ in rounds), median(b for _, b in rounds)
    share = median(b / a for a, b in rounds)
    return Row(name, f"{there:,.0f}/s through, {here:,.0f}/s directly: {share:.0%}")


def throughput(folder: Path, seconds: int) -> Iterator[Row]:
    """Two sorts of upstreams: one that does nothing, and a whole server of ours."""
    bare_command = ("bench.gateways.far", str(folder / "tls"), "1", "0")
    with (
        fleet.fairlead(folder / "near") as near,
        fleet.fairlead(folder / "far") as far,
        fleet.started(*bare_command) as bare,
        fleet.client(near) as api,
    ):
        fleet.connect(api, "bare", fleet.kubeconfig(bare.url, folder / "tls" / "ca.crt"))
        fleet.connect(api, "far", _admin_kubeconfig(far))
        fleet.wait_until_settled(api, 2)
        key, gateway = near.told["accessKey"], f"{near.url}/kubernetes/cluster"
        small = (f"{bare.url}/small", key), (f"{gateway}/bare/small", key)
        yield compared("small GET, bare upstream", *small, seconds, 16)
        large = (f"{bare.url}/large", key), (f"{gateway}/bare/large", key)
        row = compared(f"GET of {LARGE >> 20} MiB, bare upstream", *large, seconds, 4)
        yield Row(row.name, row.value, "80 %")
        path = "/api/v1/namespaces/default"
        real = (f"{far.url}{fleet.MANAGEMENT}{path}", far.told["accessKey"]), (f"{gateway}/far{path}", key)
        row = compared("small GET, a server of ours as upstream", *real, seconds, 16)
        yield Row(row.name, row.value, "50 %")
        yield _added_latency(*small, seconds)


def _added_latency(direct: tuple[str, str], through: tuple[str, str], seconds: int) -> Row:
    here, there = loaded(*direct, seconds, 1), loaded(*through, seconds, 1)
    added = 1000 / there.rate - 1000 / here.rate
    return Row(
        "added latency, one connection",
        f"{added:.2f} ms on average; p99 {there.p99_ms:.2f} ms, directly {here.p99_ms:.2f} ms",
    )


def _admin_kubeconfig(server: Process) -> str:
    return Path(server.told["kubeconfig"]).read_text()


def among_many(folder: Path, seconds: int, clusters: int, bad: int) -> Iterator[Row]:
    """A healthy cluster alone, then among many of which some are dead and some never answer."""
    dead, slow = bad // 2, bad - bad // 2
    healthy = clusters - bad
    command = ("bench.gateways.far", str(folder / "tls"), str(healthy), str(slow))
    with fleet.fairlead(folder / "many") as server, fleet.client(server) as api, fleet.started(*command) as far:
        authority, ports = folder / "tls" / "ca.crt", far.told["ports"]
        fleet.connect(api, "alone", fleet.kubeconfig(f"https://127.0.0.1:{ports[0]}", authority))
        fleet.wait_until_settled(api, 1)
        url, key = f"{server.url}/kubernetes/cluster/alone/small", server.told["accessKey"]
        alone = loaded(url, key, seconds, 8)
        api.delete(f"{fleet.CLUSTERS}/alone")
        fleet.connect_all(api, ports, authority, dead)
        yield Row(f"{healthy} of {clusters} clusters online after", f"{fleet.wait_until_settled(api, healthy):.1f} s")
        before = server.memory()
        with asked_for_all_the_time(api, range(healthy, clusters)):
            url = f"{server.url}/kubernetes/cluster/far-0/small"
            among = [loaded(url, key, seconds, 8) for _ in range(ROUNDS)]
        after = server.memory()
        yield Row("p99 of a healthy one, alone", f"{alone.p99_ms:.1f} ms at {alone.rate:,.0f}/s")
        worst = max(among, key=lambda each: each.p99_ms)
        yield Row(
            f"p99 of a healthy one beside {dead} dead and {slow} silent",
            f"{worst.p99_ms:.1f} ms at {worst.rate:,.0f}/s (worst of {ROUNDS})",
        )
        yield Row("memory", f"{before / 2**20:.0f} MiB, {after / 2**20:.0f} MiB at the end")
        gaps = far.stop()["gaps"]
        if gaps:
            yield Row(
                "time between two probes of a healthy one",
                f"median {median(gaps):.1f} s, longest {gaps[-1]:.1f} s",
                "15 s",
            )


@contextmanager
def asked_for_all_the_time(api: httpx.Client, numbers: range) -> Iterator[None]:
    """Meanwhile somebody keeps asking for each of the bad ones."""
    over = threading.Event()

    def ask(number: int) -> None:
        while not over.is_set():
            try:
                api.get(f"/kubernetes/cluster/far-{number}/small", timeout=5)
            except httpx.TimeoutException:
                continue
            over.wait(0.2)

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
