"""The sessionizer: the operator that turns events and corrections into sessions, and the job that runs it."""
