"""Joins of two streams in windows of time or of counts: the pairs of messages with equal fields that lie near one another."""
