"""The Delta tables of a warehouse: schemas, logs, transactions, rows; with Spark and without. The only folder that imports delta.

Two readers share what the log says (`delta_log`, over the text of commits): `Tables`, through Spark and Hadoop, which writes
too, and `Lake`, through deltalake, for commands that start no JVM.
"""
