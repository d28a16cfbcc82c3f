"""Stores on rocksdict: the engine's, KIP-94's segmented store, one database a shard; and those for users. The only folder that opens RocksDB.

The engine's, from the bytes up: `layout` (a value's bytes), `directory` (whose directory it is), `database` (a RocksDB database, the
only module that opens one), `rocks` (segments as column families), `segmented` (sessions). Such a store is a cache: all of it can be restored from the tables.
`standalone/` has the stores that `sessionlake.stores` offers, which are their users'.
"""
