"""The connection to the server is dialed again for ever, with growing random delays."""

import asyncio

import pytest

from fairlead.runner.connection import ConnectionLost, keep_connected, next_delay


class FakeDialer:
    """Connections that last as long as `durations` says; the last one lasts for ever."""

    def __init__(self, *durations: float) -> None:
        self.durations = list(durations)
        self.dialed_at: list[float] = []

    async def serve(self) -> None:
        self.dialed_at.append(asyncio.get_running_loop().time())
        if not self.durations:
            await asyncio.Event().wait()
        await asyncio.sleep(self.durations.pop(0))
        raise ConnectionLost("the server is away")


def longest(low: float, high: float) -> float:
    assert low == 0.5
    return high


async def test_delays_double_up_to_half_a_minute_and_start_over_after_a_stable_connection() -> None:
    dialer = FakeDialer(*[0.0] * 8, 100.0)
    work = asyncio.create_task(keep_connected(dialer, longest))
    await asyncio.sleep(1000)
    work.cancel()
    delays = [after - before for before, after in zip(dialer.dialed_at, dialer.dialed_at[1:], strict=False)]
    assert delays == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30, 101])


def test_delays_are_random_between_the_limits() -> None:
    delays = [next_delay(failures) for failures in range(1, 50) for _ in range(20)]
    assert all(0.5 <= delay <= 30 for delay in delays)
    assert len(set(delays)) > 900
