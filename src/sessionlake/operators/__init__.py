"""What a stream can compute, one folder each."""
