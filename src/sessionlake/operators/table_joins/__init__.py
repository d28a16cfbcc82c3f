"""Joins of tables: the pairs of two inputs' rows with equal fields, which follow both when rows change."""
