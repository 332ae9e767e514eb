"""How many pods each domain gives away: a pure function of sizes."""

from collections.abc import Iterator


def moves(sizes: list[int], max_skew: int) -> Iterator[tuple[int, int, int]]:
    """(from, to, how many) over domains whose `sizes` ascend, until none is above the average or all are within the skew. No
    domain falls below the average, none rises above it (both rounded up), and each pair comes together by half of what its
    skew has too much. `sizes` are changed. Behaviour of upstream's balanceDomains."""
    total, domains = sum(sizes), len(sizes)
    low, high = 0, domains - 1
    grown = False
    while low < high:
        if sizes[high] * domains <= total:
            high -= 1
        skew = sizes[high] - sizes[low]
        if skew <= max_skew:
            if not grown:
                # Those that follow are no smaller, and `high` stays where it is or comes to a smaller one.
                return
            low, grown = low + 1, False
            continue
        above = sizes[high] - total // domains
        below = -(-total // domains) - sizes[low]
        count = min(above, below, -(-(skew - max_skew) // 2))
        if count <= 0:
            low, grown = low + 1, False
            continue
        sizes[high] -= count
        sizes[low] += count
        grown = True
        yield high, low, count
