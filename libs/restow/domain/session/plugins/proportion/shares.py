"""Water filling: how much of one resource each queue deserves, by weight. Pure arithmetic in integers."""

from collections.abc import Mapping


class Claim:
    """One queue's claim to one resource: its weight (above 0), the `least` that it is guaranteed, and the `most` that it wants
    and may have, which is not below `least`."""

    __slots__ = ("least", "most", "weight")

    def __init__(self, weight: int, least: int, most: int) -> None:
        self.weight, self.least, self.most = weight, least, max(least, most)


def fill(total: int, claims: Mapping[str, Claim]) -> dict[str, int]:
    """What each deserves of `total`: the same level of water for all, times the weight, but at least `least` and at most
    `most`. All of it is given away as long as anybody wants more, but for a rest of less than one unit a queue, which is
    nobody's: so equals get the same, whatever their names are and in whichever order they come. Where guarantees are above
    the total, each gets its guarantee.

    Exact: the level is where the sum fits, found by freezing those whom their bounds keep off it, the side that weighs more
    first (as the flexible lengths of CSS are resolved). Volcano adds portions in rounds, with rounding errors, and what it
    gives depends on the order of a map. O(queues²) at worst, O(queues) mostly."""
    got: dict[str, int] = {}
    left = dict(claims)
    rest = total
    while left:
        weights = sum(claim.weight for claim in left.values())
        # How far its bounds keep each off its portion, times the sum of weights.
        off: dict[str, int] = {}
        for name, claim in left.items():
            portion = rest * claim.weight
            bound = min(max(portion, claim.least * weights), claim.most * weights)
            off[name] = bound - portion
        balance = sum(off.values())
        if not balance:
            return got | {name: (rest * left[name].weight + off[name]) // weights for name in left}
        for name, by in off.items():
            if by * balance > 0:
                claim = left.pop(name)
                got[name] = claim.least if by > 0 else claim.most
                rest -= got[name]
    return got
