"""kubernetes-sigs/descheduler's framework and plugins as a pure core: objects and a policy in, evictions and verdicts out."""
