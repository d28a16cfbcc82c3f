"""The session store: KIP-94's segmented store on rocksdict, one database a shard. The only folder that opens RocksDB.

From the bytes up: `layout` (a value's bytes), `directory` (whose directory it is), `rocks` (segments as column families),
`segmented` (sessions), `interface` (the calls of KIP-94). A store is a cache: all of it can be restored from the tables.
"""
