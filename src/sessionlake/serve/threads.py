"""The threads that answer what takes longer than handing it to one: the slow ones keep none of the others waiting."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_STORES, _TABLES, _PEERS = 8, 2, 8
T = TypeVar("T")


class Threads:
    """Threads for pages of the stores, for anything of the tables, and for questions to other hosts."""

    def __init__(self) -> None:
        self._stores = ThreadPoolExecutor(_STORES, "stores")
        self._tables = ThreadPoolExecutor(_TABLES, "tables")
        self._peers = ThreadPoolExecutor(_PEERS, "peers")

    async def in_stores(self, function: Callable[[], T]) -> T:
        """Return what a function returns that reads a page of the stores."""
        return await asyncio.get_running_loop().run_in_executor(self._stores, function)

    async def in_tables(self, function: Callable[[], T]) -> T:
        """Return what a function returns that reads the tables."""
        return await asyncio.get_running_loop().run_in_executor(self._tables, function)

    async def at_peers(self, function: Callable[[], T]) -> T:
        """Return what a function returns that asks another host."""
        return await asyncio.get_running_loop().run_in_executor(self._peers, function)

    def close(self) -> None:
        """Let go of them."""
        for pool in (self._stores, self._tables, self._peers):
            pool.shutdown(wait=False, cancel_futures=True)
