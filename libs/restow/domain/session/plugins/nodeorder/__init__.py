"""Which of the nodes is preferred, as kube-scheduler scores them."""
