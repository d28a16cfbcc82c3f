"""What the DAG files share: the operator that runs a pipeline on Spark, and their defaults. Imports neither sessionlake nor Spark."""
