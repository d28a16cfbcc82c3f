"""The operators: each folder has one function that a stream can compute."""
