"""What the jobs share by which an event comes once more: reprocess_late, redeem and backfill."""
