"""The judge's parts. They know the seeds' and RULES.md's rules and nothing of `restow`: only JSON, of the log and of the API."""
