"""Keys, ids and equal fields whose texts are others since rule 465: what a warehouse of before it has to have built again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sessionlake.columnar.column_types import stored_type, type_name
from sessionlake.columnar.equality import has_other_text, instant
from sessionlake.config.load import Config
from sessionlake.config.names import column_of
from sessionlake.warehouse.batch_commit import BatchCommit


@dataclass(frozen=True)
class OtherText:
    """A key of the config that names a column whose values had other texts."""

    setting: str
    column: str
    type: str
    """The column's type, as users call it."""


def other_texts(config: Config, last: BatchCommit) -> Iterator[OtherText]:
    """Yield the keys of a config by which stored keys and ids had other texts in a commit; none once a batch has the texts of rule 465."""
    if last.settings.by_value:
        return
    known = {name: stored_type(text) for name, text in {**last.settings.types, **last.settings.computed}.items()}
    on_instants = _on_instants(config, known)
    for input_, side in config.inputs.items():
        at = f"{config.operator}.on" if config.section.sides else f"{side.event_at}.key"
        named = [*((at, column) for column in config.keys[input_])]
        named += [(f"{side.event_at}.id", column) for column in side.event.id_columns]
        for setting, column in named:
            type_ = known.get(column_of(input_, column))
            if type_ is None:
                continue
            if has_other_text(type_) or (setting == at and (input_, column) in on_instants):
                yield OtherText(setting, column, type_name(type_))


def _on_instants(config: Config, known: Mapping[str, pa.DataType]) -> set[tuple[str, str]]:
    """Return the dates, each with its input, that a join compares with times."""
    columns: set[tuple[str, str]] = set()
    if not config.section.sides:
        return columns
    (left, ones), (right, others) = config.keys.items()
    for one, other in zip(ones, others, strict=True):
        types = known.get(column_of(left, one)), known.get(column_of(right, other))
        if types[0] is not None and types[1] is not None:
            columns |= {(left, one)} if instant(*types) else set()
            columns |= {(right, other)} if instant(*types[::-1]) else set()
    return columns
