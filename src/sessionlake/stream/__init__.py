"""What every stream is made of, whatever it computes: inputs, control input, lock, input log, the run loop."""
