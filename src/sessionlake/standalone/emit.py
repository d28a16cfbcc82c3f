"""When outputs are sent, in the words of the section [emit] of a config."""

from dataclasses import dataclass

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.spec import policies as count_policies
from sessionlake.operators.joins.spec import check_full
from sessionlake.operators.shared.windowing.policies import BATCH, CLOSE, END, OFF, Policies


@dataclass(frozen=True)
class Emit:
    """When outputs are sent. An argument that is None has the default of a config.

    >>> Emit(early="1 minute").of_windows().early
    60000000


    `early`: of windows "off" (the default), "batch" or a period, as in "1 minute"; of joins "batch" (the default) or a period, or
    "off" with `full`. `full`: of windows by time "end" (the default) or "close"; of tumbling and hopping joins by time either, or
    none (the default). `late`: of windows by time a period ("10 seconds" is the default),
    "batch" or "close"; of joins "batch" (the default) or a period. A call of add_message or add_messages is a batch. `tick_offset`: periods begin at
    the epoch + it.
    """

    early: str | None = None
    full: str | None = None
    late: str | None = None
    tick_offset: str = "0 seconds"

    def of_windows(self) -> Policies:
        """Return the policies of windows by time; ConfigError for a word that they do not have."""
        early = _policy("early", self.early or OFF, OFF, BATCH)
        late = _policy("late", self.late or "10 seconds", BATCH, CLOSE)
        full = self._full
        for name, chosen in (("early", early), ("late", late)):
            if full == CLOSE and chosen == BATCH:
                raise ConfigError(
                    f"emit.{name}: 'batch' does not go with full = 'close', which holds windows back; "
                    f"write full = '{END}', or another policy"
                )
        return Policies(early, full, late, self._offset)

    def of_counts(self) -> Policies:
        """Return the policies of windows by count, which are full at once and never late."""
        self._refuse("full", "late", why="is of windows by time, and these are by count")
        return count_policies(_policy("early", self.early or OFF, OFF, BATCH), self._offset)

    def of_joins(self, kind: str, by: str) -> Policies:
        """Return the policies of joins of a kind; ConfigError for a word that they do not have."""
        early, late = _policy("early", self.early or BATCH, OFF, BATCH), _policy("late", self.late or BATCH, BATCH)
        full = None if self.full is None else self._full
        check_full(kind, by, self.early or BATCH, full)
        return Policies(early, full or END, late, self._offset)

    def of_sessions(self) -> None:
        """Refuse all: sessions by time are sent with every change."""
        self._refuse("early", "full", "late", why="is of windows; sessions by time are sent with every change")

    @property
    def _full(self) -> str:
        full = self.full or END
        if full not in (END, CLOSE):
            raise ConfigError(f"emit.full: {full!r} is no policy; write {END!r} or {CLOSE!r}")
        return full

    @property
    def _offset(self) -> int:
        return parse_duration(self.tick_offset, "emit.tick_offset")

    def _refuse(self, *names: str, why: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ConfigError(f"emit.{name}: {getattr(self, name)!r} {why}; leave it out")


def _policy(name: str, text: str, *words: str) -> str | int:
    """Return a policy: one of some words, or a period in microseconds."""
    if text in words:
        return text
    try:
        period = parse_duration(text)
    except ConfigError as error:
        raise ConfigError(
            f"emit.{name}: {text!r} is no policy; write {' or '.join(map(repr, words))}, or a period as in '10 seconds'"
        ) from error
    if not period:
        raise ConfigError(f"emit.{name}: {text!r} is no period; write {BATCH!r} to send changes at once")
    return period
