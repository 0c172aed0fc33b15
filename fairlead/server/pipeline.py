"""The stages that every request passes, in order, and the loop that strings them together.

A stage takes the call and the rest of the pipeline. It answers itself, or it goes on and may look at the reply. What
comes back from the rest is a Reply, or something that will become one and is to be awaited. Most requests are answered
from memory at once, and for these no stage makes a coroutine: who looks at replies does so now if there is one, and
otherwise hands on a coroutine that looks at it later.

`fairlead/app/serving.py` names the stages: measured (the metrics), custom headers, compressed, recorded (the audit
log), failures, deadline, routed, authenticated, flow control, authorized, accountable (the audit log again), and Serve
at the end.
"""

from collections.abc import Awaitable, Callable, Sequence

from fairlead.core.call import Call, Reply

Proceed = Callable[[Call], Awaitable[Reply]]
Stage = Callable[[Call, Proceed], Awaitable[Reply]]


def pipeline(stages: Sequence[Stage], serve: Proceed) -> Proceed:
    """One function that runs the stages from first to last, and `serve` in the end."""
    handler = serve
    for stage in reversed(stages):
        handler = _followed(stage, handler)
    return handler


def _followed(stage: Stage, proceed: Proceed) -> Proceed:
    def handler(call: Call) -> Awaitable[Reply]:
        return stage(call, proceed)

    return handler
