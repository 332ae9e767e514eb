"""Queues share the cluster by their weights."""
