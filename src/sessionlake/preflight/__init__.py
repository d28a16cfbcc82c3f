"""Checks of a pipeline before a JVM starts: its problems, its warnings, and a summary of the pipeline."""
