"""The pipeline: stages in the order they are written, the end in the end."""

from fairlead.core.call import Call, Reply
from fairlead.core.errors import Forbidden
from fairlead.server.api.errors import render_errors
from fairlead.server.http.pipeline import Handler, Stage, build_pipeline, compress, custom_headers_stage, deadline_stage
from tests.harness.calls import answering, call

END = Reply(200, b"the end")


def noting(name: str, notes: list[str]) -> Stage:
    async def stage(call: Call, proceed: Handler) -> Reply:
        notes.append(f"{name} in")
        reply = await proceed(call)
        notes.append(f"{name} out")
        return reply

    return stage


async def test_stages_run_from_first_to_last_and_see_the_reply_from_last_to_first() -> None:
    notes: list[str] = []
    run = build_pipeline([noting("one", notes), noting("two", notes), noting("three", notes)], answering(END))
    assert await run(call()) is END
    assert notes == ["one in", "two in", "three in", "three out", "two out", "one out"]


async def test_without_stages_there_is_only_the_end() -> None:
    assert await build_pipeline([], answering(END))(call()) is END


async def test_a_stage_that_answers_itself_lets_nothing_further_happen() -> None:
    notes: list[str] = []

    async def refuse(call: Call, proceed: Handler) -> Reply:
        return Reply(403)

    reply = await build_pipeline([noting("one", notes), refuse, noting("two", notes)], answering(END))(call())
    assert reply.status == 403
    assert notes == ["one in", "one out"]


async def test_what_a_stage_raises_reaches_only_the_stages_before_it() -> None:
    notes: list[str] = []

    async def refuse(call: Call, proceed: Handler) -> Reply:
        raise Forbidden("no")

    reply = await build_pipeline([render_errors, noting("one", notes), refuse, noting("two", notes)], answering(END))(
        call()
    )
    assert reply.status == 403
    assert notes == ["one in"]


async def test_every_stage_gets_the_same_call_and_each_call_runs_through_all_of_them() -> None:
    seen: list[Call] = []

    async def note(call: Call, proceed: Handler) -> Reply:
        seen.append(call)
        return await proceed(call)

    run = build_pipeline([note, note], answering(END))
    first, second = call("/first"), call("/second")
    await run(first)
    await run(second)
    assert [id(each) for each in seen] == [id(first), id(first), id(second), id(second)]


async def test_what_is_answered_at_once_is_there_without_waiting() -> None:
    stages = [render_errors, deadline_stage(60), compress, custom_headers_stage(lambda: {"X-Ours": "yes"})]
    answer = build_pipeline(stages, lambda call: Reply(200, b"at once"))(call())
    assert isinstance(answer, Reply) and answer.headers == [("x-ours", "yes")]
    assert await answer is answer


async def test_what_goes_wrong_at_once_is_answered_at_once() -> None:
    def refuse(call: Call) -> Reply:
        raise Forbidden("no")

    answer = build_pipeline([render_errors, deadline_stage(60)], refuse)(call())
    assert isinstance(answer, Reply) and answer.status == 403
