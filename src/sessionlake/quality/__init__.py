"""Data quality: suites of Great Expectations over pinned tables, each answered by a single aggregate query."""
