"""Keyed tables: the latest row of each key."""
