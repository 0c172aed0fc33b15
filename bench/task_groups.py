"""Runs coroutines concurrently: the first failure cancels the others and is raised."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def run_together(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except ExceptionGroup as group_error:
        # The others are usually the same failure on another connection.
        raise group_error.exceptions[0] from None
