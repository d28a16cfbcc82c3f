"""The Delta tables of a warehouse."""
