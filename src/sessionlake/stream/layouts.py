"""The layouts that states have from a run's first batch on (docs/rules.md, rule 240)."""

from collections.abc import Callable, Mapping

from sessionlake.aggregates.layouts import Layout
from sessionlake.stream.kind import Kind
from sessionlake.stream.pinned import Pinned


def next_layouts(
    pinned: Pinned | None, kind: Kind, texts: Mapping[str, str], before: Callable[[], Kind]
) -> tuple[Layout, ...]:
    """Return the layouts of states from the next batch on; none while there was only one.

    `kind` has the aggregates `texts`; `before` makes the one that has those of the last batch.
    """
    if pinned is None or {*texts} == {*pinned.texts}:
        return () if pinned is None else pinned.layouts
    layouts = pinned.layouts
    if not layouts:
        first = before()
        layouts = (Layout.of(0, pinned.texts, first.aggregates, _columns(first)),)
    return (*layouts, Layout.of(pinned.next_batch, texts, kind.aggregates, _columns(kind)))


def _columns(kind: Kind) -> list[str]:
    """Return the source's columns that late and archived events have."""
    return [name for spec in kind.inputs.values() for name in spec.columns.inputs]
