"""The keys to forget: as a table to join with, as hashes for the record, and as texts to look for in raw rows."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.joint_keys import parts_of
from sessionlake.config.load import Config
from sessionlake.config.operators import OPERATORS
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


def keys_in_front(config: Config) -> list[str]:
    """Return the columns of a key of several that have the key of rows in front, for example `session_key` of a table of sessions."""
    if not any(side.source.entry.is_pipeline for side in config.inputs.values()):
        return []
    names = {entry.rows.key for entry in OPERATORS.values()}
    return [column for column in config.table_key_columns if column in names]


@dataclass(frozen=True)
class Keys:
    """Distinct keys, ascending."""

    values: tuple[str, ...]
    lines: tuple[int, ...]
    """The line on which each key was given first, counted from 1."""

    @classmethod
    def of(cls, keys: Iterable[str], stored: Callable[[str], str] = str) -> "Keys":
        """Return keys as given, and in the tables' form according to `stored`, without empty keys; JobError if none is left.

        Rows that are kept as they came, for example dead letters, have a number as it was written.
        """
        first: dict[str, int] = {}
        for line, key in enumerate(keys, 1):
            for text in (key, stored(key)):
                first.setdefault(text, line)
        values = tuple(sorted(key for key in first if key))
        if not values:
            raise JobError("keys: none is given; pass --keys-file with a file of a key a line, or - for standard input")
        return cls(values, tuple(first[key] for key in values))

    @property
    def labels(self) -> dict[str, str]:
        """A label for each key, by which people find it in their file: logs must not hold the key."""
        named = zip(self.values, self.lines, self.hashes, strict=True)
        return {key: f"key of line {line:,} (sha256 {sha[:8]})" for key, line, sha in named}

    @property
    def hashes(self) -> list[str]:
        """SHA-256 of each key: job_runs must not hold the keys that a run has removed."""
        return [hashlib.sha256(key.encode()).hexdigest() for key in self.values]

    @property
    def encoded(self) -> list[bytes]:
        """The keys as stores have them, ascending."""
        return sorted(key.encode() for key in self.values)

    def parts(self, fields: int) -> list[tuple[str, ...] | None]:
        """Return each key as the texts of its fields; None if the text has another number of fields. A key of one field is the text itself, for example `ann`. A key of two is a JSON array, for example `["ann", "de"]`."""
        return [(key,) if fields < 2 else parts_of(key, fields) for key in self.values]

    def frame(self, spark: SparkSession, fields: Sequence[Collection[str]], *, columns: bool = False) -> DataFrame:
        """Return a row for each key: the key, its `parts`, and regular expressions that find it in raw rows, in quotes, in statistics, and in conditions as Delta logs them.

        `fields` has the possible names of each field of a key. Raw rows are JSON with these names, or CSV if there are
        no names; in CSV any column may be the key. With `columns` tables have each field as a column, too, of which logs have
        statistics. `word` is for JSON rows that `readable` does not match: not all
        fields can be found in them.
        """
        named = ["|".join(map(written, sorted(names))) for names in fields or [()]]
        heads = [rf"{_QUOTE}(?:{names}){_QUOTE}\s*:" if names else "" for names in named]
        before = [rf"{head}\s*{_QUOTE}?" if head else _IN_CSV for head in heads]
        readable = _together(heads)
        rows = []
        for key, parts in zip(self.values, self.parts(len(fields)), strict=True):
            # A key with another number of fields is in no raw row; its text is searched as it stands.
            texts = parts or (key,) * len(named)
            value = _together([f"{start}{written(text)}{_AFTER}" for start, text in zip(before, texts, strict=True)])
            words = _together(list(map(word, texts)))
            whole = written(key)
            quoted = f"{_QUOTE}{whole}{_END_QUOTE}"
            condition = rf"{_IN_CONDITION}{whole}'?\s*[,)]"
            alone = [text for text in parts or () if text] if columns else []
            statistics = "|".join(dict.fromkeys(map(_in_statistics, (key, *alone))))
            rows.append(
                (key, None if parts is None else list(parts), value, readable, words, quoted, statistics, condition)
            )
        names = ("value", "readable", "word", "quoted", "statistics", "condition")
        return spark.createDataFrame(
            rows, f"key string, parts array<string>, {', '.join(f'{n} string' for n in names)}"
        )


def _together(expressions: Sequence[str]) -> str:
    """Return an expression for texts in which all of some are found, in any order."""
    if len(expressions) == 1:
        return expressions[0]
    return rf"\A(?s:{''.join(f'(?=.*?(?:{one}))' for one in expressions)})"


def _in_statistics(text: str) -> str:
    start = written(_as_statistics_begin(text))
    end = "" if len(start) < len(written(text)) else _AFTER
    return f"{_IN_STATISTICS}{start}{end}"


def _as_statistics_begin(key: str) -> str:
    """Return as much of a key as a file's statistics have at least, whether Delta counts characters or UTF-16 units."""
    return key.encode("utf-16-le")[: 2 * _STATISTICS_LENGTH].decode("utf-16-le", "ignore")


def matching(rows: DataFrame, keys: DataFrame, condition: Column) -> DataFrame:
    """Return the rows for which the condition holds with any key; there are few keys, so each task gets them all."""
    return rows.join(F.broadcast(keys.alias("k")), condition, "left_semi")
