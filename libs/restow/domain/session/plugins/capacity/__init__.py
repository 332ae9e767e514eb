"""Queues with guarantee, deserved and capability, also in a hierarchy."""
