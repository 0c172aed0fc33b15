"""A process that sends: chunks of templates in, counts and findings out. Several of them load one server."""

import asyncio
import multiprocessing as mp
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import httpx
import uvloop

from tests.generated.identities import Cast, Identity
from tests.generated.oracle import Oracle
from tests.generated.templates import Template, template
from tests.harness.server_process import Server, trusting
from tests.security import raw_http
from tests.security.api_resources import World
from tests.security.raw_http import Answer, Ask, Line

LINES = 8
"""Connections of one process. One of them speaks HTTP/2."""
SHOWN = 1_500
HTTP2_EVERY = 16
ENOUGH = 40
"""Findings after which a process no longer keeps them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process needs to know. `chunk` is how many templates are done at a time."""

    url: str
    ca_file: str
    seed: str
    chunk: int
    cast: Cast
    world: World


@dataclass(slots=True)
class Outcome:
    """What came of one chunk."""

    chunk: int
    sent: int = 0
    over_http2: int = 0
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)


def work(plan: Plan, chunks: "mp.Queue[int | None]", outcomes: "mp.Queue[Outcome]") -> None:
    """Sends chunk after chunk until there is None. A busy machine may take its time, up to the server's own limit."""
    raw_http.PATIENCE = 70.0
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this one ends it
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(plan, chunks, outcomes))


async def _work(plan: Plan, chunks: "mp.Queue[int | None]", outcomes: "mp.Queue[Outcome]") -> None:
    server = Server(cast(Any, None), plan.url, "", plan.ca_file, Path())
    oracle = Oracle(plan.cast, frozenset(each.plural for each in plan.world.resources if not each.stored))
    lines = [Line(server) for _ in range(LINES - 1)]
    trust = trusting(plan.ca_file, ("h2",))
    async with httpx.AsyncClient(
        base_url=plan.url, verify=trust, http1=False, http2=True, timeout=raw_http.PATIENCE
    ) as http2:
        while (chunk := await asyncio.to_thread(chunks.get)) is not None:
            sender = _Sender(plan, oracle, http2, Outcome(chunk))
            numbers = iter(range(chunk * plan.chunk, (chunk + 1) * plan.chunk))
            await asyncio.gather(*(sender.run(line, numbers) for line in lines))
            outcomes.put(sender.outcome)
    for line in lines:
        await line.hang_up()


class _Sender:
    def __init__(self, plan: Plan, oracle: Oracle, http2: httpx.AsyncClient, outcome: Outcome) -> None:
        self._plan = plan
        self._oracle = oracle
        self._http2 = http2
        self.outcome = outcome

    async def run(self, line: Line, numbers: Iterator[int]) -> None:
        plan = self._plan
        for number in numbers:
            made = template(plan.seed, number, plan.world)
            identities = list(plan.cast.identities)
            Random(number).shuffle(identities)
            by_http2 = number % HTTP2_EVERY == 0 and made.is_polite
            for identity in identities:
                ask = made.sent_by(identity)
                if ask is not None:
                    answer = await (self._over_http2(ask) if by_http2 else line.ask(ask))
                    self._note(made, identity, ask, answer)

    async def _over_http2(self, ask: Ask) -> Answer:
        target = f"{ask.path}?{'&'.join(ask.query)}" if ask.query else ask.path
        fields = [(name, value) for name, value in ask.headers if name.lower() not in ("connection", "upgrade", "host")]
        try:
            request = self._http2.build_request(ask.method, target, headers=fields, content=ask.body or None)
            answer = await self._http2.send(request, stream=True)
        except (httpx.InvalidURL, httpx.LocalProtocolError, ValueError):
            return Answer(-1)  # nothing that this client would send
        except httpx.TransportError as error:
            return Answer(0, body=repr(error).encode())
        self.outcome.over_http2 += 1
        pairs = tuple((name.lower(), value) for name, value in answer.headers.items())
        try:
            is_stream = "content-length" not in answer.headers
            return Answer(answer.status_code, pairs, b"" if is_stream else await answer.aread())
        except httpx.TransportError as error:
            return Answer(0, body=repr(error).encode())
        finally:
            await answer.aclose()

    def _note(self, made: Template, identity: Identity, ask: Ask, answer: Answer) -> None:
        outcome = self.outcome
        if answer.status < 0:
            return
        outcome.sent += 1
        outcome.statuses[identity.name, answer.status] += 1
        if answer.status >= 500:
            outcome.causes[f"{answer.status} {answer.body[:200].decode(errors='replace')}"] += 1
        faults = list(self._oracle.faults(identity, ask, answer))
        if faults and len(outcome.findings) < ENOUGH:
            sent = ask.wire()[:SHOWN].decode("latin-1")
            found = {"template": made.number, "identity": identity.name, "status": answer.status, "faults": faults}
            outcome.findings.append({**found, "request": sent, "answer": answer.body[:400].decode(errors="replace")})
