"""Late events and their outcomes: the ledger, and the job that reprocesses them."""
