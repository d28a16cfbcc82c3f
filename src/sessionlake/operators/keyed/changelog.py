"""The changelog of keyed tables, and the names of their numbers. Light: who only reads tables imports it."""

from sessionlake.warehouse.changelog import KeyedChangelog

TABLE = KeyedChangelog("table", time="event_time", counts=("changed", "superseded", "unchanged"))
