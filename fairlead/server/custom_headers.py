"""Headers of the installation's own on every answer, as the Config has them: for browsers and proxies."""

from collections.abc import Awaitable, Callable, Mapping

from fairlead.core.call import Call, Reply
from fairlead.server.pipeline import Proceed, Stage


def custom_headers(headers: Callable[[], Mapping[str, str]]) -> Stage:
    """The stage that adds them. It stands outermost, so that refusals have them, too."""

    def stage(call: Call, proceed: Proceed) -> Awaitable[Reply]:
        answer = proceed(call)
        return _with(headers(), answer) if isinstance(answer, Reply) else later(answer)

    async def later(answer: Awaitable[Reply]) -> Reply:
        reply = await answer
        return _with(headers(), reply)

    return stage


def _with(wanted: Mapping[str, str], reply: Reply) -> Reply:
    if wanted:
        said = {name.lower() for name, _ in reply.headers}
        added = [(name.lower(), value) for name, value in wanted.items() if name.lower() not in said]
        reply.headers = [*reply.headers, *added]
    return reply
