"""Metrics and lineage for Prometheus, OpenLineage and `status`: from the stream, from jobs, and from the tables."""
