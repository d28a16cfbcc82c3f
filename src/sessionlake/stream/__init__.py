"""The parts of every stream, whatever its operator: inputs, control input, lock, input log, the run loop."""
