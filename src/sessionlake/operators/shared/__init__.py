"""Libraries that several operators use: windowing, cleanups, corrections. They know no operator."""
