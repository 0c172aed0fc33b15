"""Several things at once that fail as one: the first failure ends the others and is the one that is told."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except ExceptionGroup as several:
        # The rest of them are the same trouble, seen over another connection.
        raise several.exceptions[0] from None
