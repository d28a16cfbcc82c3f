"""Stores: the engine's, KIP-94's segmented store, one database a shard; and those for users. The only folder that opens RocksDB.

The engine's, from the bytes up: `layout` (a value's bytes), `directory` (whose directory it is), `engines` (what keeps segments),
`segmented` (sessions). Such a store is a cache: all of it can be restored from the tables. The engine `files` is made of `runs` (an
immutable file of keys and values), `levels` (what the runs of a segment say together, and their merging) and `files` (all segments,
and the commit). The engine `rocksdb` is made of `database` (which opens RocksDB), `rocks` (segments in it) and `rocks_view`.

`standalone/` has the stores that `sessionlake.stores` offers, which are their users'. They have no other copy, and are RocksDB's;
`buffered` has writes that wait for a flush.
"""
