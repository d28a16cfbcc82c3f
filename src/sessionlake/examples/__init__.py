"""The demo on real commit events: the data, the stream and all jobs in one command."""
