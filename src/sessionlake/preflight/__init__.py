"""What can be told of a pipeline before a JVM starts: everything that is wrong with it, what is probably not meant, what it will do."""
