"""Stores with one row for each entry, which users open through `sessionlake.stores` (docs/stores.md).

From the bytes up: `keys` (bytes of a row's key), `families` (a RocksDB database), `segmented`, `memory` (rows as bytes, on
disk and in memory), `logged` (the same, with a log of changes), `serdes`, `iterators`, and the stores that users hold, one module
a kind: `key_value`, `windows`, `sessions`. The engine's stores, of packed values, are the folder above.
"""
