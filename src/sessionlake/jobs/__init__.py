"""Jobs: each a function that the command line, spark-submit and tests call alike."""
