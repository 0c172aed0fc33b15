"""The probes of a cluster in the last day, by quarters of an hour, as a short text in its status.

Like the recent probes (`probe_history.py`), it is written with the status, and every replica can read it. A quarter
takes about 15 bytes: `1763337600/180/2520/52 900/184!9~4/2700/61` has the start, in seconds since the quarter before
(the first one, since 1970), the number of probes, how many of them failed (`!`) and how many had no response (`~`), if
any, and the sum of all latencies and the highest one, in milliseconds.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fairlead.domain.probe_history import ProbeSample

QUARTER_SECONDS = 900
MAX_QUARTERS = 96
"""A day."""
MAX_DAY_TEXT_LENGTH = 8 * 1024
_QUARTER = re.compile(r"(\d{1,12})/(\d{1,6})(?:!(\d{1,6}))?(?:~(\d{1,6}))?/(\d{1,12})/(\d{1,6})")


@dataclass(frozen=True, slots=True)
class ProbeQuarter:
    """The probes of a quarter of an hour, from `time`, in seconds since 1970. Latencies are in milliseconds."""

    time: int
    probes: int = 0
    failed: int = 0
    silent: int = 0
    """Probes without a response, which have no latency."""
    total_latency: int = 0
    max_latency: int = 0

    @property
    def mean_latency(self) -> int | None:
        """None if there was no response."""
        responses = self.probes - self.silent
        return round(self.total_latency / responses) if responses > 0 else None

    def with_sample(self, sample: ProbeSample) -> "ProbeQuarter":
        latency = sample.latency or 0
        return ProbeQuarter(
            time=self.time,
            probes=self.probes + 1,
            failed=self.failed + bool(sample.reason),
            silent=self.silent + (sample.latency is None),
            total_latency=self.total_latency + latency,
            max_latency=max(self.max_latency, latency),
        )


def add_samples(quarters: Sequence[ProbeQuarter], samples: Iterable[ProbeSample]) -> list[ProbeQuarter]:
    """The quarters of the day that ends with the last sample."""
    by_start = {quarter.time: quarter for quarter in quarters}
    for sample in samples:
        start = sample.time - sample.time % QUARTER_SECONDS
        by_start[start] = by_start.get(start, ProbeQuarter(start)).with_sample(sample)
    if not by_start:
        return []
    oldest = max(by_start) - (MAX_QUARTERS - 1) * QUARTER_SECONDS
    return [by_start[start] for start in sorted(by_start) if start >= oldest]


def encode_day(quarters: Sequence[ProbeQuarter]) -> str:
    return " ".join(_encode(quarters[-MAX_QUARTERS:]))


def _encode(quarters: Sequence[ProbeQuarter]) -> Iterator[str]:
    before = 0
    for each in quarters:
        failed = f"!{each.failed}" if each.failed else ""
        silent = f"~{each.silent}" if each.silent else ""
        yield f"{each.time - before}/{each.probes}{failed}{silent}/{each.total_latency}/{each.max_latency}"
        before = each.time


def decode_day(text: object) -> list[ProbeQuarter]:
    """The quarters of a text; none if it is not valid."""
    if not isinstance(text, str) or len(text) > MAX_DAY_TEXT_LENGTH:
        return []
    try:
        return list(_decode(text))[-MAX_QUARTERS:]
    except ValueError:
        return []


def _decode(text: str) -> Iterator[ProbeQuarter]:
    time = 0
    for word in text.split():
        match = _QUARTER.fullmatch(word)
        if match is None:
            raise ValueError(word)
        time += int(match[1])
        yield ProbeQuarter(
            time=time,
            probes=int(match[2]),
            failed=int(match[3] or 0),
            silent=int(match[4] or 0),
            total_latency=int(match[5]),
            max_latency=int(match[6]),
        )
