"""Capacity that is kept free in windows of time (seed 001)."""
