"""Soft terms and constraints as scores, by kube-scheduler's formulas but in integers and over 0..SCALE."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from restow.domain.topology.asker import Asker
from restow.domain.topology.domains import Domains
from restow.domain.topology.label_classes import Carried

SCALE = 10_000
FRACTION = 32
"""Bits behind the point of a domain's weight."""
_LN_2 = 0xB17217F7D1CF79ABC9E3B39803F2F6AF40F343267298B62D8A0D175B8BAAFA2B
"""The first 256 bits of ln 2 behind the point."""


@lru_cache(maxsize=65_536)
def ln(n: int) -> int:
    """The natural logarithm of `n` >= 1 in units of 2**-FRACTION, rounded down: digit by digit, in integers."""
    exponent, bits = n.bit_length() - 1, 64
    x = (n << bits) >> exponent
    log2 = exponent
    for _ in range(bits):
        x = x * x >> bits
        log2 <<= 1
        if x >> (bits + 1):
            x >>= 1
            log2 |= 1
    return log2 * _LN_2 >> (256 + bits - FRACTION)


def affinity_score(asker: Asker, hits: Iterable[Carried], among: np.ndarray) -> np.ndarray | None:
    """`(nodes,) int64` in 0..SCALE over the rows in `among`, 0 elsewhere; None where all are equal. A row's raw score is
    the weight of each preferred term per pod in its domain that the term is about, and of each running pod's term that is
    about this one: preferred, or required affinity (hardPodAffinityWeight)."""
    sums: dict[Domains, np.ndarray] = {}
    weighed = (
        *((weight, domains, count) for weight, domains, count in asker.preferred if count.rows),
        *((c.term.weight, c.domains, c) for c in hits if c.term.weight and c.rows),
    )
    for weight, domains, count in weighed:
        added = count.per_domain(domains) * weight
        sums[domains] = sums[domains] + added if domains in sums else added
    if not sums or not among.any():
        return None
    raw = np.zeros(len(among), np.int64)
    for domains, total in sums.items():
        raw += total.take(domains.array)
    of = raw[among]
    least, most = int(of.min()), int(of.max())
    if least == most:
        return None
    return np.where(among, (raw - least) * SCALE // (most - least), 0)


def spread_score(asker: Asker, among: np.ndarray) -> np.ndarray | None:
    """`(nodes,) int64` in 0..SCALE over the rows in `among`, 0 elsewhere and where a node lacks a key; None where nothing is
    said. Per ScheduleAnyway constraint, pods in the domain times the logarithm of how many domains there are."""
    if not asker.soft:
        return None
    scored = among & ~np.logical_or.reduce([domains.absent for domains in asker.soft_keys])
    if not scored.any():
        return None
    raw = np.zeros(len(among), np.int64)
    for constraint in asker.soft:
        domains = constraint.domains
        seen = np.zeros(domains.size, bool)
        seen[domains.array[scored]] = True
        weight = ln(int(np.count_nonzero(seen)) + 2)
        raw += constraint.count.per_domain(domains, constraint.eligible).take(domains.array) * weight
        raw += constraint.max_skew - 1 << FRACTION
    rounded = raw + (1 << FRACTION - 1) >> FRACTION
    of = rounded[scored]
    least, most = int(of.min()), int(of.max())
    if most == 0:
        return np.where(scored, SCALE, 0)
    return np.where(scored, (most + least - rounded) * SCALE // most, 0)
