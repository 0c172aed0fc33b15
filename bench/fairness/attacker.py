"""A process of the attacker: `python -m bench.fairness.attacker`, with one line of JSON on its standard input.

It prints `{"ready": true}` when it has started, and the counts of responses when it ends: on SIGTERM, or when its time
is over. It runs with a low processor priority: the benchmark measures
what the server does for other users, not how two processes share a core.
"""

import asyncio
import os
import signal
import ssl
import sys
from contextlib import suppress

import orjson
import uvloop

from bench.fairness.attacks import ATTACKS, AttackTarget, repeat_attack

NICENESS = 10


async def attack(name: str, share: int, seconds: float, target: AttackTarget) -> None:
    """Runs the part of the attack of one of `share` processes."""
    connections, run_attack = ATTACKS[name]
    tasks = [
        asyncio.ensure_future(repeat_attack(target, run_attack, number)) for number in range(-(-connections // share))
    ]
    # Connections are aborted at any point, on both sides: their errors are expected.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print('{"ready": true}', flush=True)
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(orjson.dumps(target.responses).decode(), flush=True)


def _build_tls_context(ca_file: str, protocol: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols([protocol])
    return context


def main() -> None:
    os.nice(NICENESS)
    options = orjson.loads(sys.stdin.readline())
    tls_contexts = {protocol: _build_tls_context(options["ca_file"], protocol) for protocol in ("http/1.1", "h2")}
    target = AttackTarget(
        host=options["host"],
        port=options["port"],
        root=options["root"],
        tls_contexts=tls_contexts,
        key=options["key"],
        powerless_key=options["powerless_key"],
    )
    uvloop.run(attack(options["attack"], options["share"], options["seconds"], target))


if __name__ == "__main__":
    main()
