"""The recent probes of a cluster, as a short text in its status.

The status is written about every five minutes anyway, and so is this text, with all probes since: the history needs no
writes of its own, and every replica can read it. A sample takes about seven bytes, because the status is part of every
list of clusters: `1763337600/12 5/13 5/!TimedOut 3/14!NotReady` has the seconds since the sample before (the first one,
since 1970), the latency in milliseconds unless there was no response, and the reason of a failure.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_SAMPLES = 120
"""Ten minutes of a healthy cluster."""
MAX_TEXT_LENGTH = 16 * 1024
MAX_LATENCY_MILLISECONDS = 60_000
_SAMPLE = re.compile(r"(\d{1,12})/(\d{1,6})?(?:!([A-Za-z]{1,64}))?")


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """One probe. `time` is in seconds since 1970; `latency` in milliseconds, None if there was no response. Without a
    reason the cluster was ready."""

    time: int
    latency: int | None
    reason: str = ""


def encode_samples(samples: Sequence[ProbeSample]) -> str:
    """The last samples, as text. Times never go back."""
    words, before = [], 0
    for sample in samples[-MAX_SAMPLES:]:
        latency = "" if sample.latency is None else min(max(0, sample.latency), MAX_LATENCY_MILLISECONDS)
        words.append(f"{max(0, sample.time - before)}/{latency}{'!' if sample.reason else ''}{sample.reason}")
        before = max(before, sample.time)
    return " ".join(words)


def decode_samples(text: object) -> list[ProbeSample]:
    """The samples of a text; none if it is not valid."""
    if not isinstance(text, str) or len(text) > MAX_TEXT_LENGTH:
        return []
    try:
        return list(_decode(text))[-MAX_SAMPLES:]
    except ValueError:
        return []


def _decode(text: str) -> Iterator[ProbeSample]:
    time = 0
    for word in text.split():
        match = _SAMPLE.fullmatch(word)
        if match is None:
            raise ValueError(word)
        time += int(match[1])
        yield ProbeSample(time, None if match[2] is None else int(match[2]), match[3] or "")
