"""The changelog of groups. Light: who only reads tables imports it."""

from sessionlake.warehouse.changelog import OneRowChangelog

GROUPS = OneRowChangelog("group", time="changed_at", counts=("taken_back",))
"""Its batches also count the accepted rows that were taken back."""
