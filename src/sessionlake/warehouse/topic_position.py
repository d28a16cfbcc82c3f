"""How far the topic of [sink.kafka] is, by numbered files next to the pipeline's checkpoint: the last file counts, and no broker is asked.

Other sinks that can't hold their own position have such files, too. Light: `status` reads them without Spark.
"""

import json
from functools import partial

from sessionlake.config.config import Config
from sessionlake.errors import PipelineStateError
from sessionlake.warehouse.delta_log import LogFiles


def newest_record(files: LogFiles, folder: str) -> str | None:
    """Return the text of the newest file; None if there is none."""
    while True:
        numbers = recorded(files, folder)
        if not numbers:
            return None
        text = files.read_text(f"{folder}/{numbers[-1]}")
        if text is not None:
            return text
        # Another process has gone on since the files were listed.


def recorded(files: LogFiles, folder: str, suffix: str = "") -> list[int]:
    """Return the numbers of the files in a folder whose names have a suffix, in order."""
    names = (name.removesuffix(suffix) for name in files.names(folder) if name.endswith(suffix))
    return sorted(int(name) for name in names if name.isdigit())


TRANSACTIONS, FINAL, FROM_VERSION = "kafka-transactions", "final", "from_version"
_ID_LENGTH = 22


def published_in(config: Config) -> str:
    """Return the folder in which `publish` records how far it is."""
    return f"{config.checkpoint}-publish"


def from_version(files: LogFiles, checkpoint: str) -> int:
    """Return the version of the changelog with which a checkpoint's stream begins."""
    text = files.read_text(f"{checkpoint}/{FROM_VERSION}")
    if text is None:
        raise PipelineStateError(
            f"publish: {checkpoint!r} lacks its file {FROM_VERSION}; delete the folder to start again"
        )
    return int(text)


def published_version(files: LogFiles, config: Config) -> int:
    """Return the version of the changelog up to which its batches are in the topic; -1 if nothing is."""
    if config.sink.kafka is not None and config.sink.kafka.transactions:
        return noted_version(files, config)
    checkpoint = newest_checkpoint(files, config)
    if checkpoint is None:
        return -1
    if config.publishes_final:
        return _version_in(files, f"{checkpoint}/{FINAL}")
    committed = recorded(files, f"{checkpoint}/stream/commits")
    offsets = files.read_text(f"{checkpoint}/stream/offsets/{committed[-1]}") if committed else None
    if offsets is None:
        return -1
    reached = json.loads(offsets.splitlines()[2])
    # The index is the number of the version's taken files; a negative index means none.
    return int(reached["reservoirVersion"]) - (int(reached["index"]) < 0)


def noted_version(files: LogFiles, config: Config) -> int:
    """Return the version of the changelog that a topic with transactions has at least; -1 if nothing is noted."""
    return _version_in(files, f"{published_in(config)}/{TRANSACTIONS}")


def newest_checkpoint(files: LogFiles, config: Config) -> str | None:
    """Return the checkpoint with which the config's topic, as it was made last, is published; None if it never was."""
    sink, root = config.sink.kafka, published_in(config)
    if sink is None:
        return None
    of_topic = [name for name in files.names(root) if name[:-_ID_LENGTH] == f"{sink.topic}-"]
    return max((f"{root}/{name}" for name in of_topic), key=partial(from_version, files), default=None)


def _version_in(files: LogFiles, folder: str) -> int:
    text = newest_record(files, folder)
    return -1 if text is None else int(json.loads(text)["version"])
