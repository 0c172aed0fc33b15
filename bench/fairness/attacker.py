"""A process of the attacker: `python -m bench.fairness.attacker`, with one line of JSON on its standard input.

It says `{"ready": true}` when it has begun, and what was answered when it ends: on SIGTERM, or by itself when its time
is over. It runs with the lowest claim on the processor but one that an ordinary user would give it: what is measured is
what the server does for others meanwhile, not how two processes share a core.
"""

import asyncio
import os
import signal
import ssl
import sys
from contextlib import suppress

import orjson
import uvloop

from bench.fairness.attacks import ATTACKS, World, attack_for_ever

NICENESS = 10


async def attack(name: str, share: int, seconds: float, world: World) -> None:
    """One of `share` processes that make the attack together."""
    connections, way = ATTACKS[name]
    tasks = [asyncio.ensure_future(attack_for_ever(world, way, number)) for number in range(-(-connections // share))]
    # Connections are torn down in the middle of everything, on both sides: nobody wants to read about each.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print('{"ready": true}', flush=True)
    with suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(orjson.dumps(world.answers).decode(), flush=True)


def _trusting(ca_file: str, protocol: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols([protocol])
    return context


def main() -> None:
    os.nice(NICENESS)
    asked = orjson.loads(sys.stdin.readline())
    trust = {protocol: _trusting(asked["ca_file"], protocol) for protocol in ("http/1.1", "h2")}
    world = World(asked["host"], asked["port"], asked["root"], trust, asked["key"], asked["powerless_key"])
    uvloop.run(attack(asked["attack"], asked["share"], asked["seconds"], world))


if __name__ == "__main__":
    main()
