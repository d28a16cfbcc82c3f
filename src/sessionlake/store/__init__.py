"""Stores: the engine's, KIP-94's segmented store, one database a shard; and those for users. The only folder that opens RocksDB.

The engine's, from the bytes up: `layout` (a value's bytes), `directory` (whose directory it is), `runs` (an immutable file of keys and
values), `levels` (what the runs of a segment say together, and their merging), `files` (all segments, and the commit), `segmented`
(sessions). Such a store is a cache: all of it can be restored from the tables.

`standalone/` has the stores that `sessionlake.stores` offers, which are their users'. They have no other copy, and are RocksDB's:
`database` opens one, `rocks` has segments in it, `buffered` writes that wait for a flush.
"""
