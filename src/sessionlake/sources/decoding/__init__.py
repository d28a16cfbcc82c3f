"""Event files and records to typed Arrow rows, each bad row with its reason. None of it needs Spark."""
