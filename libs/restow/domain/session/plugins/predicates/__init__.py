"""Which nodes a pod may run on, as kube-scheduler decides it."""
