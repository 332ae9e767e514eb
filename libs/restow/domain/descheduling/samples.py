"""Metrics that a decision is made on, as its command carries them."""

from restow.contracts.samples import BILLION, STALE, Loads, NodeRatios, Samples

__all__ = ["BILLION", "STALE", "Loads", "NodeRatios", "Samples"]
