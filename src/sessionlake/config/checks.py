"""What must hold between the values of a config that are right one by one. Every check raises for itself, so that all are told."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from sessionlake.config.jobs import check_quality
from sessionlake.config.names import RESERVED
from sessionlake.config.observed import check_observed
from sessionlake.config.paths import check_store_path
from sessionlake.config.quarantine import RATE, RULE
from sessionlake.config.source import check_references, check_sink, check_source
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.config.load import Config

_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
Check = Callable[[], None]


def checks_of(config: "Config") -> Iterator[Check]:
    """Yield the checks of a config; each raises ConfigError of the first thing that it finds."""
    sides = list(config.inputs.values())
    yield partial(_check_references, config)
    yield from (partial(check_source, side.source) for side in sides)
    yield partial(_check_sink, config)
    yield partial(check_store_path, config.pipeline.store)
    yield config.section.check
    yield partial(_check_quarantine, config)
    if config.ttl is not None:
        yield partial(config.ttl.check, config.sessions)
    yield from (partial(_check_side, config, side) for side in sides)
    yield partial(_check_key, config)
    yield partial(_check_none_computed, config)
    yield from (partial(_check_aggregate, config, name) for name in config.aggregates)
    yield partial(check_quality, config.quality, config.aggregates)
    yield partial(check_observed, config.metrics, config.lineage)
    yield config.serve.check


def _check_references(config: "Config") -> None:
    others = {name: section.model_dump(exclude_unset=True) for name, section in config.other.items()}
    check_references({**config.model_dump(exclude_unset=True, exclude={"other"}), **others})


def _check_side(config: "Config", side: "Config") -> None:
    config.section.check_source(side.source)
    config.section.check_event(side.event)
    if side.event.time is None and not config.section.by_count:
        raise ConfigError(f"{side.event_at}.time: is missing; add it to the config")


def _check_key(config: "Config") -> None:
    if config.section.KEYED and config.event.key is None:
        raise ConfigError("event.key: is missing; add it to the config")


def _check_none_computed(config: "Config") -> None:
    if config.aggregates and not config.section.AGGREGATES:
        raise ConfigError(f"aggregates: stands beside [{config.operator}], which computes none; remove it")


def _check_aggregate(config: "Config", name: str) -> None:
    if not _COLUMN.fullmatch(name) or name.lower() in RESERVED | config.section.RESERVED | _beside(config):
        raise ConfigError(
            f"aggregates.{name}: {name!r} can't name a column of {config.operator}s; write letters, digits and _, a letter first, and none of the fixed columns"
        )
    # Spark does not tell columns apart by case.
    same = next(other for other in config.aggregates if other.lower() == name.lower())
    if same != name:
        raise ConfigError(f"aggregates.{name}: {same!r} is its name but for case; write another one")


def _beside(config: "Config") -> set[str]:
    """Return the columns that rows have by these settings alone."""
    return {*(["open_until"] if config.section.keeps_until else []), *([RULE, RATE] if config.quarantine else [])}


def _check_quarantine(config: "Config") -> None:
    if config.quarantine is not None:
        if config.session is None:
            raise ConfigError(f"quarantine: is for sessions, and this pipeline computes {config.operator}s; remove it")
        config.quarantine.check(config.session)


def _check_sink(config: "Config") -> None:
    sink = config.sink.kafka
    if sink is not None:
        check_sink(sink)
        if config.section.hides_us is not None:
            raise ConfigError(
                "sink.kafka: would never hear of rows that expire, of which pattern 'segments' and ttl.changelog_retention log no deletes; write ttl.pattern = 'index'"
            )
        if sink.emit == "final" and not config.section.CLOSES:
            raise ConfigError(
                f"sink.kafka.emit: 'final' is of rows that close, and those of a [{config.operator}] never do; write 'changes'"
            )
