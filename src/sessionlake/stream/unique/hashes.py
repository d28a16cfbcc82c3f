"""The hash of an event's identity: of its input, key and id. Its time is beside it, in stores and in tables."""

import secrets

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.identity import record_ids
from sessionlake.columnar.keyed_hash import SECRET_BYTES, keyed_hashes
from sessionlake.warehouse.batch_commit import BatchCommit


def unique_secret(before: BatchCommit | None) -> str:
    """Return the secret of a pipeline's identities, given the batch before: a new one for the first batch, none if that had none."""
    return secrets.token_hex(SECRET_BYTES) if before is None else before.settings.unique_secret


def id_hashes(keys: pa.Array, ids: pa.Array, number: int, secret: str) -> Ints:
    """Return the hash of each identity; `number` is that of the input.

    Without a secret it is Spark's `xxhash64(event_id, xxhash64(key, number))`. Of that everybody can compute ids of one hash.

    >>> id_hashes(pa.array(["ann"]), pa.array(["order-1"]), 0, "").tolist()
    [9031204105917562359]
    """
    # Many events share a key: each is hashed once.
    coded = keys.dictionary_encode()
    at = coded.indices.to_numpy()
    if not secret:
        of_key = record_ids(coded.dictionary, np.full(len(coded.dictionary), number, np.int64))
        return record_ids(ids, of_key[at])
    # The sum of two such hashes is one, as their secrets are others.
    of_keys = keyed_hashes(coded.dictionary.cast(pa.binary()), f"{secret} key {number}".encode())
    of_ids = keyed_hashes(ids.cast(pa.binary()), f"{secret} id".encode())
    return (of_ids + of_keys[at]).view(np.int64)
