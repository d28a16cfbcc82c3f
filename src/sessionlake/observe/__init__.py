"""What Prometheus, OpenLineage and `status` are told: by the stream, by the runs of jobs, and from the tables."""
