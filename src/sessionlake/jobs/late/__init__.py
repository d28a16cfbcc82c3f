"""Late events and what becomes of them: the ledger, and the job that reprocesses them."""
