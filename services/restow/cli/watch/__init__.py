"""`restow watch`: what Restow would do in a cluster, without doing any of it."""
