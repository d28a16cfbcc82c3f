"""Redeem dead letters: the job, its ledger, and the rows read again."""
