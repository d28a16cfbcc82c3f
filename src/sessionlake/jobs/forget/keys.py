"""The keys to forget: as a table to join with, as hashes for the record, and as texts to look for in raw rows."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.errors import JobError

# Delta cuts texts in a file's statistics after this many characters.
_STATISTICS_LENGTH = 32
_AFTER = r"""(?:\s*["',;|:\]}\t\\]|\s*$)"""
_IN_CSV = r"""(?:^|["',;|\t]\s*)"""
# A number among statistics is no key, unless it stands in a text: after a name whose quotes are escaped.
_IN_STATISTICS = r"""(?:["',;|\t]\s*|\\":\s*)"""
_IN_CONDITION = r"(?:[=(,]\s*'?)"
_QUOTE = r"""["']"""


@dataclass(frozen=True)
class Keys:
    """Distinct keys, ascending."""

    values: tuple[str, ...]

    @classmethod
    def of(cls, keys: Iterable[str]) -> "Keys":
        """Return keys as they are, less those that are empty; JobError where none is left."""
        values = tuple(sorted({key for key in keys if key}))
        if not values:
            raise JobError("keys: none is given; pass --keys-file with a file of a key a line, or - for standard input")
        return cls(values)

    @property
    def hashes(self) -> list[str]:
        """SHA-256 of each key: job_runs must not hold what a run has removed."""
        return [hashlib.sha256(key.encode()).hexdigest() for key in self.values]

    @property
    def encoded(self) -> list[bytes]:
        """The keys as stores have them, ascending."""
        return sorted(key.encode() for key in self.values)

    @property
    def written(self) -> dict[str, list[str]]:
        """Each key as JSON may write it."""
        return {
            key: sorted({key, *(json.dumps(key, ensure_ascii=a)[1:-1] for a in (True, False))}) for key in self.values
        }

    def frame(self, spark: SparkSession, field: str | None) -> DataFrame:
        """Return a row a key: the key, and regular expressions for it in raw rows, in quotes, in statistics, and in conditions as Delta logs them.

        Raw rows are JSON whose key is in `field`, or (None) CSV, of which any field counts.
        """
        before = _IN_CSV if field is None else rf"{_QUOTE}{_quoted(field)}{_QUOTE}\s*:\s*{_QUOTE}?"
        rows = []
        for key, texts in self.written.items():
            whole, start = _any(texts), _any([text[:_STATISTICS_LENGTH] for text in texts])
            end = "" if len(key) > _STATISTICS_LENGTH else _AFTER
            quoted = rf"{_QUOTE}{whole}[\"'\\]"
            condition = rf"{_IN_CONDITION}{whole}'?\s*[,)]"
            rows.append((key, f"{before}{whole}{_AFTER}", quoted, f"{_IN_STATISTICS}{start}{end}", condition))
        names = ("key", "value", "quoted", "statistics", "condition")
        return spark.createDataFrame(rows, ", ".join(f"{name} string" for name in names))


def _any(texts: list[str]) -> str:
    return f"(?:{'|'.join(map(_quoted, texts))})"


def _quoted(text: str) -> str:
    return "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"


def matching(rows: DataFrame, keys: DataFrame, condition: Column) -> DataFrame:
    """Return the rows for which the condition holds with any key; there are few keys, so each task gets them all."""
    return rows.join(F.broadcast(keys.alias("k")), condition, "left_semi")
