"""Reading the stream of a watch."""

from collections.abc import AsyncIterator
from typing import Any

import orjson

from fairlead.server.api.watch import WatchLimits

LIMITS = WatchLimits(default_seconds=1800, queue_size=100)


def parse_events(chunks: list[bytes]) -> list[tuple[str, Any]]:
    """Type and object of each event. Chunks hold whole lines, each of them one JSON text."""
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    parsed = [orjson.loads(line) for chunk in chunks for line in chunk.splitlines()]
    assert all(set(event) == {"type", "object"} for event in parsed)
    return [(event["type"], event["object"]) for event in parsed]


def describe_events(chunks: list[bytes]) -> list[str]:
    """`ADDED a` and so on; bookmarks and errors by their type alone."""
    return [f"{type} {obj['metadata'].get('name', '')}".strip() for type, obj in parse_events(chunks)]


async def read_all(stream: AsyncIterator[bytes]) -> list[bytes]:
    return [chunk async for chunk in stream]
