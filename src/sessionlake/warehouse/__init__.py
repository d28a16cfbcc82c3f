"""The Delta tables of a warehouse: schemas, logs, transactions, rows; with Spark and without. The only folder that imports delta.

Two readers share the code for the log (`delta_log`, over the text of commits). `Tables` reads and writes through Spark and
Hadoop. `Lake` reads through deltalake, for commands that start no JVM.
"""
