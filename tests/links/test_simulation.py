"""The protocol in simulations from a seed. A failure prints the seed, and the command that replays it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.properties import at_least, examples
from tests.links.simulation import AGENT, SERVER, SMALL_SIZES, Plan, Simulation, simulate

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=examples(60))
@given(SEEDS)
async def test_every_request_ends_once_and_with_its_own_answer(seed: int) -> None:
    simulation = await simulate(seed, Plan())
    assert simulation.carried > 0


async def test_a_connection_that_is_cut_after_any_byte_ends_every_request_once() -> None:
    whole = await simulate(1, Plan(requests=3, sizes=SMALL_SIZES))
    assert whole.carried > 500
    outcomes: Counter[str] = Counter()
    for cut in range(1, whole.carried):
        outcomes.update((await simulate(1, Plan(cut, requests=3, sizes=SMALL_SIZES))).outcomes.values())
    assert outcomes["reset"] and outcomes["complete"]


@settings(max_examples=examples(60))
@given(SEEDS, st.integers(1, 3_000_000))
async def test_a_large_transfer_may_be_cut_anywhere(seed: int, cut: int) -> None:
    await simulate(seed, Plan(cut))


@pytest.mark.parametrize("hostile", [SERVER, AGENT], ids=["server", "agent"])
@settings(max_examples=at_least(100))
@given(seed=SEEDS)
async def test_a_hostile_end_leaves_nothing_open_and_nothing_unbounded(hostile: int, seed: int) -> None:
    await simulate(seed, Plan(hostile=hostile, requests=5))


async def test_a_simulation_replays_from_its_seed() -> None:
    first, second = [await simulate(7, Plan(hostile=AGENT)) for _ in range(2)]
    assert (first.outcomes, first.carried, first.now) == (second.outcomes, second.carried, second.now)


async def test_a_failure_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Simulation) -> None:
        raise AssertionError("a stream is left")

    monkeypatch.setattr(Simulation, "check", fail)
    with pytest.raises(AssertionError) as failure:
        await simulate(5, Plan(300, AGENT))
    assert failure.value.__notes__ == [
        "replay it: .venv/bin/python -m tests.links.simulation 5 --cut 300 --hostile agent"
    ]
