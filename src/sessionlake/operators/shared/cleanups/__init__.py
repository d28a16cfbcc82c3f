"""The shared part of operators with [ttl]: when a cleanup is due, which rows have expired, and the state of both."""
