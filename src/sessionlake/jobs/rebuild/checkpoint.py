"""The checkpoint of a rebuilt warehouse: a copy of the old one as of a batch, so that no input is read twice or left out."""

from sessionlake.jobs.rebuild.archive import Archive
from sessionlake.warehouse.tables import Tables


def copy_checkpoint(tables: Tables, archive: Archive, checkpoint: str) -> str:
    """Copy the positions after the archive's batch into a new checkpoint; return the text of its file of offsets.

    The table of corrections is new, so its position is left out: the stream reads the table from the beginning.
    Files that sources have planned since do no harm: the next batch takes them.
    """
    old, batch_id = archive.checkpoint, archive.batch.batch_id
    for source in tables.names(f"{old}/sources"):
        for name in tables.names(f"{old}/sources/{source}"):
            if name.partition(".")[0].isdigit():
                tables.copy(f"{old}/sources/{source}/{name}", f"{checkpoint}/sources/{source}/{name}")
    # Spark asks for the positions of the batch before the last one, too.
    for batch in (batch_id - 1, batch_id):
        text = tables.read_text(f"{old}/offsets/{batch}")
        if text is not None:
            tables.write_text_once(f"{checkpoint}/offsets/{batch}", without_corrections(text))
    # Without this file Spark runs the batch again, and the driver sees that it is committed.
    if str(batch_id) in tables.names(f"{old}/commits"):
        tables.copy(f"{old}/commits/{batch_id}", f"{checkpoint}/commits/{batch_id}")
    return without_corrections(archive.offsets)


def without_corrections(offsets: str) -> str:
    r"""Return the text of a file of offsets without the position in the control input, which is its last line.

    >>> without_corrections('v1\n{"batchTimestampMs":1}\n{"logOffset":3}\n{"reservoirVersion":7}')
    'v1\n{"batchTimestampMs":1}\n{"logOffset":3}\n-'
    """
    return "\n".join([*offsets.splitlines()[:-1], "-"])
