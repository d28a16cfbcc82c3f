"""Threads for answers that take longer than the hand-over to a thread. Slow answers have separate threads and delay no others."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_STORES, _TABLES, _PEERS = 8, 2, 8
T = TypeVar("T")


class Threads:
    """Separate threads for pages of the stores, for the tables, and for questions to other hosts."""

    def __init__(self) -> None:
        self._stores = ThreadPoolExecutor(_STORES, "stores")
        self._tables = ThreadPoolExecutor(_TABLES, "tables")
        self._peers = ThreadPoolExecutor(_PEERS, "peers")

    async def in_stores(self, function: Callable[[], T]) -> T:
        """Return the result of a function that reads a page of the stores."""
        return await asyncio.get_running_loop().run_in_executor(self._stores, function)

    async def in_tables(self, function: Callable[[], T]) -> T:
        """Return the result of a function that reads the tables."""
        return await asyncio.get_running_loop().run_in_executor(self._tables, function)

    async def at_peers(self, function: Callable[[], T]) -> T:
        """Return the result of a function that asks another host."""
        return await asyncio.get_running_loop().run_in_executor(self._peers, function)

    def close(self) -> None:
        """Stop the threads."""
        for pool in (self._stores, self._tables, self._peers):
            pool.shutdown(wait=False, cancel_futures=True)
