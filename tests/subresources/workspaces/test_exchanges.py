"""Responses of runners to requests of users: how they are decoded."""

import asyncio
import json
import threading
from typing import Any, cast

import pytest

from fairlead.core.body_errors import MAX_VALUES
from fairlead.core.clock import SystemClock
from fairlead.core.errors import BadGateway
from fairlead.core.json import decode_foreign
from fairlead.links.frames import STDOUT
from fairlead.links.requests import OpenRequest
from fairlead.links.streams import Data, Exit, Message
from fairlead.server.api.actions import ActionRequest
from fairlead.subresources.workspaces.exchanges import ExchangeHandlers
from fairlead.subresources.workspaces.targets import RunnerRequests


class Answer:
    """The requests and the stream of a runner that answers with this."""

    def __init__(self, content: bytes) -> None:
        self._messages: list[Message] = [Data(STDOUT, content), Exit(0)]

    async def open(self, request: object, wanted: OpenRequest) -> "Answer":
        return self

    async def send_eof(self, channel: int) -> None:
        return None

    async def receive(self) -> Message | None:
        return self._messages.pop(0)

    async def reset(self, reason: str) -> None:
        return None


def ask(content: bytes) -> Any:
    handlers = ExchangeHandlers(cast(RunnerRequests, Answer(content)), SystemClock())
    return asyncio.run(handlers.exchange(cast(ActionRequest, None), OpenRequest("state"), dict[str, Any]))


@pytest.mark.parametrize(("values", "is_inline"), [(10, True), (20_000, False)])
def test_a_large_response_is_decoded_outside_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, values: int, is_inline: bool
) -> None:
    threads: list[int] = []

    def decode(data: bytes, max_values: int) -> Any:
        threads.append(threading.get_ident())
        return decode_foreign(data, max_values)

    monkeypatch.setattr("fairlead.core.json.decode_foreign", decode)
    assert len(ask(json.dumps({"report": [[]] * values}).encode())["report"]) == values
    assert [each == threading.get_ident() for each in threads] == [is_inline]


def test_a_response_of_very_many_values_is_refused() -> None:
    with pytest.raises(BadGateway, match=f"more than {MAX_VALUES} values"):
        ask(b'{"report":[' + b"[]," * MAX_VALUES + b"[]]}")
