"""Who follows the results of a pipeline: the pipelines behind it and its sinks, how far each is, and a stream that waits for them."""
