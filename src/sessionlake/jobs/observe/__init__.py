"""What Prometheus and `status --watch` are told: by the stream, by the runs of jobs, and from the tables."""
