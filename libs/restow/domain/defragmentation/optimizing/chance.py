"""Numbers that look like chance: a generator of our own, so that the same state gives the same plan everywhere."""

_MULTIPLIER, _INCREMENT, _MASK = 6364136223846793005, 1442695040888963407, (1 << 64) - 1


class Chance:
    """Numbers that look like chance and are always the same."""

    def __init__(self) -> None:
        self._state = 42

    def below(self, n: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        return (self._state >> 33) % n

    def some(self, items: list[int], count: int) -> list[int]:
        """So many of them, in some order."""
        left = items[:]
        chosen: list[int] = []
        while left and len(chosen) < count:
            at = self.below(len(left))
            left[at], left[-1] = left[-1], left[at]
            chosen.append(left.pop())
        return chosen
