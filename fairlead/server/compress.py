"""Large answers are sent compressed to those who ask for it."""

import gzip
from collections.abc import Awaitable

from fairlead.core.call import Call, Reply
from fairlead.core.workers import COMPUTE
from fairlead.server.pipeline import Proceed

THRESHOLD = 128 * 1024
LEVEL = 1
"""The fastest: on the networks this serves, time is dearer than bytes."""


def compressed(call: Call, proceed: Proceed) -> Awaitable[Reply]:
    """The stage that compresses. It is done in a thread, which lets other requests go on meanwhile."""
    answer = proceed(call)
    if isinstance(answer, Reply) and len(answer.body) <= THRESHOLD:
        return answer
    return _packed(call, answer)


async def _packed(call: Call, answer: Awaitable[Reply]) -> Reply:
    reply = await answer
    if len(reply.body) > THRESHOLD and accepts_gzip(call.headers.get("accept-encoding", "")):
        reply.body = await COMPUTE.run(len(reply.body), gzip.compress, reply.body, LEVEL)
        reply.headers += [("content-encoding", "gzip"), ("vary", "Accept-Encoding")]
    return reply


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header names gzip and does not rule it out with a quality of zero."""
    for entry in header.split(","):
        coding, *parameters = (part.strip().lower() for part in entry.split(";"))
        if coding == "gzip":
            return not any(part.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for part in parameters)
    return False
