"""Test windows and aggregates in milliseconds, without Spark."""

from sessionlake.testing.harness import Output, SessionizerHarness

__all__ = ["Output", "SessionizerHarness"]
