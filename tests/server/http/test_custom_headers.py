"""Headers of the installation's own."""

from fairlead.core.call import Call, Reply
from fairlead.core.errors import NotFound
from fairlead.server.api.errors import render_errors
from fairlead.server.http.pipeline import build_pipeline, custom_headers_stage
from tests.harness.calls import call


async def test_every_answer_carries_them_and_they_can_change() -> None:
    wanted: dict[str, str] = {}

    async def serve(call: Call) -> Reply:
        return Reply(200, headers=[("x-known", "ours")])

    handle = build_pipeline((custom_headers_stage(lambda: wanted),), serve)
    assert (await handle(call("/"))).headers == [("x-known", "ours")]
    wanted.update({"X-Added": "a", "X-Known": "theirs"})
    assert (await handle(call("/"))).headers == [("x-known", "ours"), ("x-added", "a")]


async def test_refusals_carry_them_too() -> None:
    async def serve(call: Call) -> Reply:
        raise NotFound("nothing here")

    handle = build_pipeline((custom_headers_stage(lambda: {"X-A": "b"}), render_errors), serve)
    reply = await handle(call("/"))
    assert (reply.status, ("x-a", "b") in reply.headers) == (404, True)
