"""The operators, one entry each. A new operator is a folder under `operators` and an entry here.

Entries name classes and objects as module:name, and `named` imports them when they are needed: operators lie above the config.
Nothing heavy is imported here, because the command line's help and the workers read the entries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from operator import attrgetter
from typing import Any


@dataclass(frozen=True)
class RowNames:
    """The words for an operator's rows, and for asking for them: plain text, because the help must import nothing heavy."""

    command: str
    """The command that looks up a key's rows."""
    list: str
    """The list of rows in answers of the query server, and its path: /v1/<list>."""
    one: str
    """One row, as in messages, and its path in the query server."""
    many: str
    """Several rows, as in messages."""
    computed: str
    """All rows, as in "this pipeline computes ..."."""
    key: str
    """The column of the key."""
    times: tuple[str, str]
    """The placeholders of the command's options --from and --to."""
    one_per_key: bool = False
    """Whether a key has at most one row."""

    @property
    def summary(self) -> str:
        """The command's line in the help."""
        if self.one_per_key:
            return f"Show a key's {self.one} as of the last committed batch."
        return f"Show a key's {self.many} as of the last committed batch, oldest first."


@dataclass(frozen=True)
class OperatorEntry:
    """The places of an operator's parts, and the words for its rows."""

    section: str
    """Name of the config's section that asks for the operator. Several operators may share one: [window] has those by time and by count."""
    model: str
    """Class of that section, an `OperatorSection`, or the union of several in one module."""
    operator: str
    """Function that makes the workers' half, an `engine.operator.Operator`, of a config and its sources; it needs no Spark."""
    changelog: str
    """The `warehouse.changelog.Changelog` of the operator's rows; its module is light."""
    tables: str
    """Function of a config that makes its tables in memory, for runs without Spark: `local.tables.LocalTables`."""
    kind: str
    """The driver's half, a `stream.kind.Kind`, or the `stream.described.Described` from which it derives."""
    rows: RowNames
    """The words for its rows."""
    choice: tuple[str, str] = ("", "")
    """If several operators share the section: the key in it that chooses one, and this one's value. The first one's is the default."""
    recompute: str | None = None
    """Class that computes rows again from the events, a `stream.recompute.Recompute`; None if that is impossible."""
    serving: str | None = None
    """Reader of its rows from the stores of a running stream, a `serve.decoder.Decoder`; None if they are read from the tables only."""
    quality: str | None = None
    """Checks of its further tables, as a function by table; None if it has no such tables. The function gets the rows, and returns them with the columns that suites need, and the types of these columns."""
    suites: str = ""
    """The end of the names of its tables' suites, if another operator's tables have the same names."""
    subtracts: bool = False
    """Whether it can take back rows that it has been given, as a pipeline's results are if they change."""
    deletes: bool = False
    """Whether a row that is taken back deletes the row of its key."""
    topic_tombstones: str | None = None
    """Records of tombstones in the topic of the events, a `stream.topic_tombstones.TopicTombstones`; None if those remove no rows."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """The reason, and the remedy if there is one, for each of CAPABILITIES that the operator lacks; said of "a [section]"."""


CAPABILITIES = ("restating", "redeeming", "recompute")
"""Names of members of an entry or its kind that jobs need. A member is None if an operator lacks it."""
_BY_ORDER = "depends on the order in which messages came, which can't be restored; use `sessionlake rebuild`"
_OPERATORS = "sessionlake.operators"
_WINDOWS = RowNames(
    command="windows",
    list="windows",
    one="window",
    many="windows",
    computed="windows",
    key="window_key",
    times=("Show only windows that end after this time", "Show only windows that begin before this time"),
)


def _described(
    folder: str, operator: str, changelog: str, kind: str | None = None, tables: str | None = None
) -> dict[str, Any]:
    """Return the parts of an operator that is data, a `stream.described.Described`.

    `kind` and `tables` name the classes of a special driver's half and of special tables in memory.
    """
    at = f"{_OPERATORS}.{folder}.operator:{operator}"
    return {
        "operator": f"{at}.of",
        "changelog": f"{_OPERATORS}.{folder}.table:{changelog}",
        "tables": f"{at}.in_memory" if tables is None else f"{_OPERATORS}.{folder}.local_tables:{tables}",
        "kind": at if kind is None else f"{_OPERATORS}.{folder}.kind:{kind}",
    }


OPERATORS = {
    "session": OperatorEntry(
        section="session",
        model=f"{_OPERATORS}.sessions.section:SessionSection",
        **_described("sessions", "Sessionizer", "SESSIONS", "Sessions", "SessionTables"),
        rows=RowNames(
            command="sessions",
            list="sessions",
            one="session",
            many="sessions",
            computed="sessions",
            key="session_key",
            times=(
                "Show only sessions that end at this time or later",
                "Show only sessions that begin before this time",
            ),
        ),
        recompute=f"{_OPERATORS}.sessions.recompute:SessionRecompute",
        serving=f"{_OPERATORS}.sessions.serving:SessionDecoder",
        topic_tombstones=f"{_OPERATORS}.sessions.topic:TOMBSTONES",
    ),
    "window": OperatorEntry(
        section="window",
        model=f"{_OPERATORS}.windows.section:Windows",
        **_described("windows", "Windower", "WINDOWS", "Windows"),
        rows=_WINDOWS,
        choice=("by", "time"),
        recompute=f"{_OPERATORS}.windows.recompute:WindowRecompute",
        serving=f"{_OPERATORS}.windows.serving:WindowDecoder",
    ),
    "count": OperatorEntry(
        section="window",
        model=f"{_OPERATORS}.counts.section:CountedWindows",
        **_described("counts", "CountedWindows", "WINDOWS.changelog"),
        rows=replace(_WINDOWS, computed="windows by count"),
        choice=("by", "count"),
        suites="_by_count",
        lacks={
            "restating": "by count has no late events, so there is nothing to reprocess",
            "redeeming": f"by count {_BY_ORDER}",
            "recompute": f"by count {_BY_ORDER}",
        },
    ),
    "table": OperatorEntry(
        section="table",
        model=f"{_OPERATORS}.keyed.section:TableSection",
        **_described("keyed", "TableKeeper", "TABLE", "KeyedTable", "KeyedTables"),
        rows=RowNames(
            command="table",
            list="rows",
            one="row",
            many="rows",
            computed="a table",
            key="table_key",
            times=(
                "Show the row only if its event is of this time or later",
                "Show the row only if its event is older than this time",
            ),
            one_per_key=True,
        ),
        deletes=True,
        serving=f"{_OPERATORS}.keyed.serving:TableDecoder",
        topic_tombstones=f"{_OPERATORS}.keyed.topic:TOMBSTONES",
        lacks={
            "restating": "has no late events: events within retention are taken in at once, and older ones are dead letters",
            "redeeming": "takes updates in any order: mend the refused updates, and send them to the source again",
            "recompute": "has the latest update of each key, in any order: send missing updates again, or use `sessionlake rebuild`",
        },
    ),
    "group": OperatorEntry(
        section="group",
        model=f"{_OPERATORS}.groups.section:GroupSection",
        **_described("groups", "Groups", "GROUPS.changelog"),
        rows=RowNames(
            command="groups",
            list="groups",
            one="group",
            many="groups",
            computed="groups",
            key="group_key",
            times=(
                "Show the group only if it changed at this time or later",
                "Show the group only if it changed before this time",
            ),
            one_per_key=True,
        ),
        serving=f"{_OPERATORS}.groups.serving:GroupDecoder",
        subtracts=True,
        lacks={
            "restating": "has no late events: all are taken in at once, however old they are",
            "redeeming": "takes events in any order: mend the refused events, and send them to the source again",
            "recompute": "has the events of all time in each row: send missing events again, or use `sessionlake rebuild`",
        },
    ),
    "join": OperatorEntry(
        section="join",
        model=f"{_OPERATORS}.joins.section:JoinSection",
        **_described("joins", "Joiner", "JOINS.changelog", "Joins", "JoinTables"),
        rows=RowNames(
            command="joins",
            list="joins",
            one="pair",
            many="pairs",
            computed="joins",
            key="join_key",
            times=(
                "Show only pairs whose later message is of this time or later",
                "Show only pairs whose later message is older than this time",
            ),
        ),
        quality=f"{_OPERATORS}.joins.quality:CHECKED",
        lacks={"redeeming": _BY_ORDER, "recompute": _BY_ORDER},
    ),
    "table_join": OperatorEntry(
        section="table_join",
        model=f"{_OPERATORS}.table_joins.section:TableJoinSection",
        **_described("table_joins", "TableJoins", "JOINED.changelog"),
        rows=RowNames(
            command="joined",
            list="joined_rows",
            one="joined row",
            many="joined rows",
            computed="a join of tables",
            key="joined_row_key",
            times=(
                "Show only joined rows that changed at this time or later",
                "Show only joined rows that changed before this time",
            ),
        ),
        quality=f"{_OPERATORS}.table_joins.quality:CHECKED",
        subtracts=True,
        lacks={
            "restating": "has no late rows: all are taken in at once, however old they are",
            "redeeming": "takes rows in any order: mend the refused rows, and send them to the source again",
            "recompute": "has the rows of all time: send missing rows again, or use `sessionlake rebuild`",
        },
    ),
    "process": OperatorEntry(
        section="process",
        model=f"{_OPERATORS}.process.section:ProcessSection",
        **_described("process", "Processors", "OUTPUTS.changelog"),
        rows=RowNames(
            command="outputs",
            list="outputs",
            one="output",
            many="outputs",
            computed="outputs of a class",
            key="output_key",
            times=("Show only outputs of this time or later", "Show only outputs that are older than this time"),
        ),
        quality=f"{_OPERATORS}.process.quality:CHECKED",
        lacks={
            "restating": "has no late events: what comes within retention is processed at once, and the rest is in dead_letters",
            "redeeming": _BY_ORDER,
            "recompute": _BY_ORDER,
        },
    ),
}
SECTIONS = tuple(dict.fromkeys(entry.section for entry in OPERATORS.values()))
"""Names of the operators' sections; a config has exactly one."""


def entry_of(section: object) -> OperatorEntry:
    """Return the entry of the operator that an `OperatorSection` asks for: the entry names the module of the section's class."""
    module = type(section).__module__
    return next(entry for entry in OPERATORS.values() if entry.model.startswith(f"{module}:"))


def named(place: str) -> Any:
    """Return the object that module:name names, name perhaps with dots; the module is imported now."""
    module, _, name = place.partition(":")
    return attrgetter(name)(import_module(module))
