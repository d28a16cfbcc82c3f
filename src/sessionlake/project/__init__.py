"""Several pipelines in one process: their order, their separate failures, and a common `status`."""
