"""`python -m tests.generated`: sends a million generated requests as ten identities to one server and reports faults.

Seeded and resumable: finished chunks are recorded in `--state`, and a run with the same state continues after them.
Each request is sent as every identity, so that permissions can be compared. The exit code is 1 if
there was a server error without an external cause, a permission breach, a leaked canary or key, a traceback, an event
loop that was blocked by a request or by a thread, or growing memory.
"""

import argparse
import json
import multiprocessing as mp
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.generated.identities import KEY, create_identities
from tests.generated.sender import ChunkResult, Plan, run_sender
from tests.harness.server_process import Server, running_server
from tests.requests import api_resources

CHUNK = 100
"""Templates per chunk, each of which is sent as every identity."""
MAX_BLOCKED_SECONDS, MAX_MEMORY_GROWTH = 0.05, 96 * 1024 * 1024
WARM_UP = 0.3
"""The part of a run after which memory must no longer grow."""
STALL_TIMEOUT_SECONDS = 300.0
_LOG_ERRORS = re.compile(r"Traceback|panicked|never retrieved|failed unexpectedly|could not be rendered")
_BLOCKS = (
    ("longest block", "fairlead_event_loop_blocked_max_seconds", "the event loop was blocked"),
    ("longest hold", "fairlead_interpreter_held_max_seconds", "a thread held the interpreter"),
)
"""How the report calls it, its metric, and the event in the log."""
State = dict[str, Any]


def main() -> int:
    options = _parse_options()
    state = _load_state(options)
    folder = Path(tempfile.mkdtemp(prefix="fairlead-generated-"))
    with running_server(folder / "data") as server, server.client() as admin:
        catalog = api_resources.discover_api(admin, KEY)
        api_resources.create_objects(admin, catalog)
        identities = create_identities(server, admin, catalog)
        plan = Plan(server.url, server.ca_file, options.seed, CHUNK, identities, catalog)
        start = time.monotonic()
        memory = _send_all(options, state, plan, server)
        seconds = time.monotonic() - start
        problems = [*_find_problems(server, admin, memory, state), *(str(each) for each in state["findings"])]
    _print_report(options, state, memory, seconds, problems, server)
    return 1 if problems else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="requests, roughly")
    parser.add_argument("--processes", type=int, default=2, help="number of sender processes")
    parser.add_argument("--seed", default="fairlead", help="seed of the requests")
    parser.add_argument("--state", type=Path, help="file with the finished chunks, to continue later")
    return parser.parse_args()


def _load_state(options: argparse.Namespace) -> State:
    fresh: State = {
        "seed": options.seed,
        "done": [],
        "sent": 0,
        "http2": 0,
        "statuses": {},
        "causes": {},
        "findings": [],
    }
    if options.state is None or not options.state.exists():
        return fresh
    state: State = json.loads(options.state.read_text())
    if state["seed"] != options.seed:
        raise SystemExit(f"{options.state} is of seed {state['seed']!r}; use another file, or that seed")
    return state


def _send_all(options: argparse.Namespace, state: State, plan: Plan, server: Server) -> list[int]:
    """Sends the remaining chunks from several processes. Returns the server's memory after each chunk."""
    context = mp.get_context("spawn")
    chunks: mp.Queue[int | None] = context.Queue()
    results: mp.Queue[ChunkResult] = context.Queue()
    total = max(options.count // (CHUNK * len(plan.identities.identities)), 1)
    remaining = [chunk for chunk in range(total) if chunk not in set(state["done"])]
    for chunk in (*remaining, *[None] * options.processes):
        chunks.put(chunk)
    workers = [
        context.Process(target=run_sender, args=(plan, chunks, results), daemon=True) for _ in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    memory: list[int] = []
    try:
        _collect_results(options, state, results, server, memory, len(remaining))
    except KeyboardInterrupt:
        print("stopped; run with the same --state to continue", flush=True)
        for worker in workers:
            worker.terminate()
    for worker in workers:
        worker.join(30)
    return memory


def _collect_results(
    options: argparse.Namespace,
    state: State,
    results: "mp.Queue[ChunkResult]",
    server: Server,
    memory: list[int],
    expected: int,
) -> None:
    """Adds up the results of the expected chunks, and prints the progress."""
    start = time.monotonic()
    for _ in range(expected):
        _record_result(state, results.get(timeout=STALL_TIMEOUT_SECONDS))
        memory.append(server.resident_bytes())
        if options.state is not None:
            options.state.write_text(json.dumps(state))
        if len(memory) % 10 == 0 or len(memory) == expected:
            rate = sum(state["statuses"].values()) / (time.monotonic() - start)
            message = f"{state['sent']} sent, {rate:.0f}/s, {memory[-1] >> 20} MiB, {len(state['findings'])} findings"
            print(message, flush=True)


def _record_result(state: State, result: ChunkResult) -> None:
    state["done"].append(result.chunk)
    state["sent"] += result.sent
    state["http2"] += result.over_http2
    status_counts = {f"{name}: {status}": count for (name, status), count in result.statuses.items()}
    for table, more in (("statuses", status_counts), ("causes", result.causes)):
        state[table] = dict((Counter(state[table]) + Counter(more)).most_common(300))
    state["findings"] = [*state["findings"], *result.findings][:200]


def _find_problems(server: Server, admin: httpx.Client, memory: list[int], state: State) -> list[str]:
    problems = []
    log = server.log.read_text()
    if server.process.poll() is not None:
        problems.append("the server has ended")
    elif admin.get("/readyz").text != "ok":
        problems.append("the server is not ready")
    if catalog := _LOG_ERRORS.search(log):
        problems.append(f"in the log: {log[catalog.start() : catalog.start() + 2_000]}")
    warm = memory[int(len(memory) * WARM_UP) :]
    if warm and max(warm[-3:]) - warm[0] > MAX_MEMORY_GROWTH:
        problems.append(f"memory grew from {warm[0] >> 20} to {warm[-1] >> 20} MiB after the warm-up")
    page = admin.get("/metrics").text
    for what, metric, event in _BLOCKS:
        state[what] = seconds = _read_gauge(page, metric)
        if seconds > MAX_BLOCKED_SECONDS:
            log_lines = [line for line in log.splitlines() if event in line]
            problems.append(f"{event} for {seconds:.3f} s: {log_lines[:20]}")
    return problems


def _read_gauge(page: str, name: str) -> float:
    found = re.search(rf"^{name} ([0-9.e+-]+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _print_report(
    options: argparse.Namespace, state: State, memory: list[int], seconds: float, problems: list[str], server: Server
) -> None:
    codes: Counter[str] = Counter()
    for name, count in state["statuses"].items():
        codes[name.rpartition(" ")[2]] += count
    print(f"\nseed {options.seed}: {state['sent']} requests, {state['http2']} over HTTP/2, {seconds:.0f} s in this run")
    print(f"responses: {dict(sorted(codes.items()))}")
    if memory:
        print(f"memory: {memory[0] >> 20} MiB at the start, {max(memory) >> 20} at most, {memory[-1] >> 20} at the end")
    print(f"longest block of the event loop: {state['longest block']:.4f} s")
    print(f"longest hold of the interpreter by a thread: {state['longest hold']:.4f} s; the server's log: {server.log}")
    causes: Counter[str] = Counter(state["causes"])
    for cause, count in causes.most_common(30):
        print(f"  {count} x {cause}")
    print(f"{len(problems)} problems")
    for problem in problems[:40]:
        print(f"\n- {problem}")


if __name__ == "__main__":
    sys.exit(main())
