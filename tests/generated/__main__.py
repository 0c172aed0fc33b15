"""`python -m tests.generated`: a million generated requests by ten identities against one server, and what is wrong.

Seeded and resumable: chunks that are done are noted in `--state`, and a run with the same state goes on after them.
Each request is made by every identity, so that rights are held against each other. At the end, the exit code is 1 if
there was a server error without a right cause, a breach of rights, a leaked canary or key, a traceback, an event loop
held for too long, or memory that grows.
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

from tests.generated.identities import KEY, assemble
from tests.generated.sender import Outcome, Plan, work
from tests.harness.server_process import Server, running
from tests.security import api_resources

CHUNK = 100
"""Templates, each of which is sent by every identity."""
HOLD_LIMIT, GROWTH_LIMIT = 0.05, 96 * 1024 * 1024
WARM_UP = 0.3
"""The part of a run after which memory must no longer grow."""
STALLED = 300.0
_TROUBLE = re.compile(r"Traceback|panicked|never retrieved|failed unexpectedly|could not be rendered")
Table = dict[str, Any]


def main() -> int:
    given = _given()
    state = _state(given)
    folder = Path(tempfile.mkdtemp(prefix="fairlead-generated-"))
    with running(folder / "data") as server, server.client() as admin:
        found = api_resources.explore(admin, KEY)
        api_resources.furnish(admin, found)
        cast = assemble(server, admin, found)
        plan = Plan(server.url, server.ca_file, given.seed, CHUNK, cast, found)
        began = time.monotonic()
        memory = _send_all(given, state, plan, server)
        seconds = time.monotonic() - began
        problems = [*_verdict(server, admin, memory, state), *(str(each) for each in state["findings"])]
    _report(given, state, memory, seconds, problems, server)
    return 1 if problems else 0


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="requests, roughly")
    parser.add_argument("--processes", type=int, default=2, help="that send them")
    parser.add_argument("--seed", default="fairlead", help="which requests")
    parser.add_argument("--state", type=Path, help="file that says which are done, to go on later")
    return parser.parse_args()


def _state(given: argparse.Namespace) -> Table:
    fresh: Table = {"seed": given.seed, "done": [], "sent": 0, "http2": 0, "statuses": {}, "causes": {}, "findings": []}
    if given.state is None or not given.state.exists():
        return fresh
    state: Table = json.loads(given.state.read_text())
    if state["seed"] != given.seed:
        raise SystemExit(f"{given.state} is of seed {state['seed']!r}; name another file, or give that seed")
    return state


def _send_all(given: argparse.Namespace, state: Table, plan: Plan, server: Server) -> list[int]:
    """Lets the processes send what is not done yet. The server's memory after each chunk."""
    context = mp.get_context("spawn")
    chunks: mp.Queue[int | None] = context.Queue()
    outcomes: mp.Queue[Outcome] = context.Queue()
    total = max(given.count // (CHUNK * len(plan.cast.identities)), 1)
    todo = [chunk for chunk in range(total) if chunk not in set(state["done"])]
    for chunk in (*todo, *[None] * given.processes):
        chunks.put(chunk)
    workers = [context.Process(target=work, args=(plan, chunks, outcomes), daemon=True) for _ in range(given.processes)]
    for worker in workers:
        worker.start()
    memory: list[int] = []
    try:
        _gather(given, state, outcomes, server, memory, len(todo))
    except KeyboardInterrupt:
        print("stopped; the same --state goes on from here", flush=True)
        for worker in workers:
            worker.terminate()
    for worker in workers:
        worker.join(30)
    return memory


def _gather(
    given: argparse.Namespace,
    state: Table,
    outcomes: "mp.Queue[Outcome]",
    server: Server,
    memory: list[int],
    expected: int,
) -> None:
    """Adds up the outcomes of so many chunks, and says now and then how far it is."""
    began = time.monotonic()
    for _ in range(expected):
        _note(state, outcomes.get(timeout=STALLED))
        memory.append(server.resident())
        if given.state is not None:
            given.state.write_text(json.dumps(state))
        if len(memory) % 10 == 0 or len(memory) == expected:
            rate = sum(state["statuses"].values()) / (time.monotonic() - began)
            told = f"{state['sent']} sent, {rate:.0f}/s, {memory[-1] >> 20} MiB, {len(state['findings'])} findings"
            print(told, flush=True)


def _note(state: Table, outcome: Outcome) -> None:
    state["done"].append(outcome.chunk)
    state["sent"] += outcome.sent
    state["http2"] += outcome.over_http2
    counted = {f"{name}: {status}": count for (name, status), count in outcome.statuses.items()}
    for table, more in (("statuses", counted), ("causes", outcome.causes)):
        state[table] = dict((Counter(state[table]) + Counter(more)).most_common(300))
    state["findings"] = [*state["findings"], *outcome.findings][:200]


def _verdict(server: Server, admin: httpx.Client, memory: list[int], state: Table) -> list[str]:
    problems = []
    log = server.log.read_text()
    if server.process.poll() is not None:
        problems.append("the server is gone")
    elif admin.get("/readyz").text != "ok":
        problems.append("the server is not ready")
    if found := _TROUBLE.search(log):
        problems.append(f"in the log: {log[found.start() : found.start() + 2_000]}")
    warm = memory[int(len(memory) * WARM_UP) :]
    if warm and max(warm[-3:]) - warm[0] > GROWTH_LIMIT:
        problems.append(f"memory grew from {warm[0] >> 20} to {warm[-1] >> 20} MiB after the warm-up")
    hold = _longest_hold(admin)
    state["longest hold"] = hold
    if hold > HOLD_LIMIT:
        held = [line for line in log.splitlines() if "event loop was blocked" in line]
        problems.append(f"the event loop was blocked for {hold:.3f} s: {held[:20]}")
    return problems


def _longest_hold(admin: httpx.Client) -> float:
    text = admin.get("/metrics").text
    found = re.search(r"^fairlead_event_loop_blocked_max_seconds ([0-9.e+-]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _report(
    given: argparse.Namespace, state: Table, memory: list[int], seconds: float, problems: list[str], server: Server
) -> None:
    codes: Counter[str] = Counter()
    for name, count in state["statuses"].items():
        codes[name.rpartition(" ")[2]] += count
    print(f"\nseed {given.seed}: {state['sent']} requests, {state['http2']} over HTTP/2, {seconds:.0f} s in this run")
    print(f"answers: {dict(sorted(codes.items()))}")
    if memory:
        print(f"memory: {memory[0] >> 20} MiB at first, {max(memory) >> 20} at most, {memory[-1] >> 20} at the end")
    print(f"longest hold of the event loop: {state['longest hold']:.4f} s; the server's log: {server.log}")
    causes: Counter[str] = Counter(state["causes"])
    for cause, count in causes.most_common(30):
        print(f"  {count} x {cause}")
    print(f"{len(problems)} problems")
    for problem in problems[:40]:
        print(f"\n- {problem}")


if __name__ == "__main__":
    sys.exit(main())
