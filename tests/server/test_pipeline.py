"""The pipeline: stages in the order they are written, the end in the end."""

from fairlead.core.call import Call, Reply
from fairlead.core.errors import Forbidden
from fairlead.server.api.errors import failures
from fairlead.server.http.pipeline import Proceed, Stage, compressed, custom_headers, deadline, pipeline
from tests.authn.calls import answering, call

END = Reply(200, b"the end")


def noting(name: str, notes: list[str]) -> Stage:
    async def stage(call: Call, proceed: Proceed) -> Reply:
        notes.append(f"{name} in")
        reply = await proceed(call)
        notes.append(f"{name} out")
        return reply

    return stage


async def test_stages_run_from_first_to_last_and_see_the_reply_from_last_to_first() -> None:
    notes: list[str] = []
    run = pipeline([noting("one", notes), noting("two", notes), noting("three", notes)], answering(END))
    assert await run(call()) is END
    assert notes == ["one in", "two in", "three in", "three out", "two out", "one out"]


async def test_without_stages_there_is_only_the_end() -> None:
    assert await pipeline([], answering(END))(call()) is END


async def test_a_stage_that_answers_itself_lets_nothing_further_happen() -> None:
    notes: list[str] = []

    async def refuse(call: Call, proceed: Proceed) -> Reply:
        return Reply(403)

    reply = await pipeline([noting("one", notes), refuse, noting("two", notes)], answering(END))(call())
    assert reply.status == 403
    assert notes == ["one in", "one out"]


async def test_what_a_stage_raises_reaches_only_the_stages_before_it() -> None:
    notes: list[str] = []

    async def refuse(call: Call, proceed: Proceed) -> Reply:
        raise Forbidden("no")

    reply = await pipeline([failures, noting("one", notes), refuse, noting("two", notes)], answering(END))(call())
    assert reply.status == 403
    assert notes == ["one in"]


async def test_every_stage_gets_the_same_call_and_each_call_runs_through_all_of_them() -> None:
    seen: list[Call] = []

    async def note(call: Call, proceed: Proceed) -> Reply:
        seen.append(call)
        return await proceed(call)

    run = pipeline([note, note], answering(END))
    first, second = call("/first"), call("/second")
    await run(first)
    await run(second)
    assert [id(each) for each in seen] == [id(first), id(first), id(second), id(second)]


async def test_what_is_answered_at_once_is_there_without_waiting() -> None:
    stages = [failures, deadline(60), compressed, custom_headers(lambda: {"X-Ours": "yes"})]
    answer = pipeline(stages, lambda call: Reply(200, b"at once"))(call())
    assert isinstance(answer, Reply) and answer.headers == [("x-ours", "yes")]
    assert await answer is answer


async def test_what_goes_wrong_at_once_is_answered_at_once() -> None:
    def refuse(call: Call) -> Reply:
        raise Forbidden("no")

    answer = pipeline([failures, deadline(60)], refuse)(call())
    assert isinstance(answer, Reply) and answer.status == 403
