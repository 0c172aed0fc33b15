"""The stages that every request passes, in order, and the loop that strings them together.

A stage takes the call and the rest of the pipeline. It answers itself, or it goes on and may look at the reply. A stage
that does not look at it needs no `async`: it hands back what the rest of the pipeline is going to answer, and every
request is spared a coroutine.

`fairlead/app/serving.py` names the stages: measured (the metrics), custom headers, compressed, recorded (the audit
log), failures, deadline, routed, authenticated, authorized, accountable (the audit log again), and Serve at the end.
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
