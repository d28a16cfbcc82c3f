"""The session store: KIP-94's segmented store on rocksdict, one database a shard."""
