"""The keys to forget: as a table to join with, as hashes for the record, and as texts to look for in raw rows."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.errors import JobError
from sessionlake.jobs.forget.texts import word, written

# Delta cuts texts in a file's statistics after this many characters.
_STATISTICS_LENGTH = 32
# A backslash may begin an escape of the text's own next character, unless a quote follows.
_END_QUOTE = r"""\\*["']"""
_AFTER = rf"""(?:\s*{_END_QUOTE}|\s*[,;|:\]}}\t]|\s*$)"""
_IN_CSV = r"""(?:^|["',;|\t]\s*)"""
# A number among statistics is no key, unless it stands in a text: after a name whose quotes are escaped.
_IN_STATISTICS = r"""(?:["',;|\t]\s*|\\":\s*)"""
_IN_CONDITION = r"(?:[=(,]\s*'?)"
_QUOTE = r"""["']"""


@dataclass(frozen=True)
class Keys:
    """Distinct keys, ascending."""

    values: tuple[str, ...]
    lines: tuple[int, ...]
    """Where each was given first, counted from 1."""

    @classmethod
    def of(cls, keys: Iterable[str]) -> "Keys":
        """Return keys as they are, less those that are empty; JobError where none is left."""
        first: dict[str, int] = {}
        for line, key in enumerate(keys, 1):
            first.setdefault(key, line)
        values = tuple(sorted(key for key in first if key))
        if not values:
            raise JobError("keys: none is given; pass --keys-file with a file of a key a line, or - for standard input")
        return cls(values, tuple(first[key] for key in values))

    @property
    def labels(self) -> dict[str, str]:
        """What names each key to people, who find it in their file: logs must not hold the key."""
        named = zip(self.values, self.lines, self.hashes, strict=True)
        return {key: f"key of line {line:,} (sha256 {sha[:8]})" for key, line, sha in named}

    @property
    def hashes(self) -> list[str]:
        """SHA-256 of each key: job_runs must not hold what a run has removed."""
        return [hashlib.sha256(key.encode()).hexdigest() for key in self.values]

    @property
    def encoded(self) -> list[bytes]:
        """The keys as stores have them, ascending."""
        return sorted(key.encode() for key in self.values)

    def frame(self, spark: SparkSession, *fields: str) -> DataFrame:
        """Return a row a key: the key, and regular expressions for it in raw rows, in quotes, in statistics, and in conditions as Delta logs them.

        Raw rows are JSON whose key is in one of the fields, or (none) CSV, of which any field counts. `word` is for rows of JSON
        in which no such field can be found: those that `readable` does not match.
        """
        named = "|".join(map(written, fields))
        readable = rf"{_QUOTE}(?:{named}){_QUOTE}\s*:" if fields else ""
        before = rf"{readable}\s*{_QUOTE}?" if fields else _IN_CSV
        rows = []
        for key in self.values:
            whole, start = written(key), written(_as_statistics_begin(key))
            end = "" if len(start) < len(whole) else _AFTER
            quoted = f"{_QUOTE}{whole}{_END_QUOTE}"
            condition = rf"{_IN_CONDITION}{whole}'?\s*[,)]"
            statistics = f"{_IN_STATISTICS}{start}{end}"
            rows.append((key, f"{before}{whole}{_AFTER}", readable, word(key), quoted, statistics, condition))
        names = ("key", "value", "readable", "word", "quoted", "statistics", "condition")
        return spark.createDataFrame(rows, ", ".join(f"{name} string" for name in names))


def _as_statistics_begin(key: str) -> str:
    """Return as much of a key as a file's statistics have at least, whether Delta counts characters or UTF-16 units."""
    return key.encode("utf-16-le")[: 2 * _STATISTICS_LENGTH].decode("utf-16-le", "ignore")


def matching(rows: DataFrame, keys: DataFrame, condition: Column) -> DataFrame:
    """Return the rows for which the condition holds with any key; there are few keys, so each task gets them all."""
    return rows.join(F.broadcast(keys.alias("k")), condition, "left_semi")
