"""The changelogs of joins of tables. Light: who only reads tables imports it."""

from dataclasses import dataclass

from sessionlake.warehouse.changelog import OneRowChangelog


@dataclass(frozen=True)
class PlacedChangelog(OneRowChangelog):
    """A changelog of rows that the key and further columns name, and whose time changes. All rows are of one part, 0."""

    places: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, ...]:
        """The key and the places."""
        return self.key, *self.places

    @property
    def of_changes(self) -> tuple[str, ...]:
        """No states: a column of that name is the user's."""
        return ("op",)


SIDE_ROWS = PlacedChangelog("side_row", time="changed_at", places=("side", "position"))
"""The tables of both sides' rows, which stores are restored from."""
_POSITIONS = ("left_position", "right_position")
JOINED = PlacedChangelog(
    "joined_row",
    (SIDE_ROWS,),
    time="changed_at",
    places=_POSITIONS,
    numbers=_POSITIONS,
    counts=("taken_back", "without_key"),
)
"""The tables of the results. Their batches also count the accepted rows that were taken back, and those with a null among the equal
fields that no result has."""
