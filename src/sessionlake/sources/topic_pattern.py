"""Topics of a pattern: those that match when a stream starts, with the slots that the checkpoint keeps (`sources/partitions.py`)."""

from collections.abc import Iterable, Sequence

from sessionlake.config.source import SourceSection
from sessionlake.errors import SourceError
from sessionlake.sources.partitions import SLOTS
from sessionlake.warehouse.tables import Tables

_SUFFIX = ".topics"


def matching(source: SourceSection, topics: Iterable[str]) -> list[str]:
    """Return the topics of a cluster that match; SourceError if none does."""
    found = source.matching(topics)
    if not found:
        raise SourceError(
            f"{source.place_at}: {source.topic_pattern!r} matches no topic of {source.bootstrap_servers!r}; correct it, or make the topic first"
        )
    return found


def with_topics(source: SourceSection, known: Sequence[str], found: Sequence[str]) -> SourceSection:
    """Return a section with a pattern's topics: known ones, then new ones; any other section as it is."""
    if source.topic_pattern is None:
        return source
    topics = [*dict.fromkeys((*known, *found))]
    if len(topics) > SLOTS:
        raise SourceError(
            f"{source.place_at}: {source.topic_pattern!r} has matched {len(topics):,} topics, and {SLOTS:,} can be read; read some in another pipeline"
        )
    return source.model_copy(update={"topics": topics})


def known_topics(tables: Tables, checkpoint: str, number: int) -> list[str]:
    """Return the topics that an input has ever read, in the order of their slots."""
    names = tables.names(f"{checkpoint}/sources/{number}")
    counts = [int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]
    return _read(tables, checkpoint, number, max(counts)) if counts else []


def keep_topics(tables: Tables, source: SourceSection, checkpoint: str, number: int) -> None:
    """Note the topics before records of new ones are read; SourceError if another driver has noted others."""
    topics = source.topics or []
    tables.write_text_once(_file(checkpoint, number, len(topics)), "\n".join(topics))
    if _read(tables, checkpoint, number, len(topics)) != topics:
        raise SourceError(f"{source.place_at}: another driver found other topics at the same time; start again")


def _read(tables: Tables, checkpoint: str, number: int, count: int) -> list[str]:
    return (tables.read_text(_file(checkpoint, number, count)) or "").splitlines()


def _file(checkpoint: str, number: int, count: int) -> str:
    return f"{checkpoint}/sources/{number}/{count}{_SUFFIX}"
