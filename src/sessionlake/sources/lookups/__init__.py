"""Lookups: each event gets columns of the row of a table that has its key (docs/lookups.md; docs/rules.md, rules 280 to 283)."""
