"""DefaultEvictor: which pods may be evicted at all (filter), and which would find another node (preEvictionFilter)."""
