"""Pipelines in Python: the sections of a config as classes, made of the registries of operators, sources and aggregates."""
