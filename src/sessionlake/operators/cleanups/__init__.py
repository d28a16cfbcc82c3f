"""What every operator with [ttl] shares: when a cleanup is due, which rows have expired, and what a state says of both."""
