"""Several pipelines in one process: their order, their failures apart from each other, and what `status` says of all."""
