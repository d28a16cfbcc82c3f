"""Lookups: each event gets columns of the table row with its key (docs/lookups.md; docs/rules.md, rules 280 to 283)."""
