"""What was worked out of pods that take the places of others, as far as it is kept: of each pod with each request there would be too much, where nearly each pod asks for something else."""

import numpy as np

UNKNOWN = -(1 << 43)
KEPT = 1 << 20
"""Of so many exchanges it is kept at most: the last one of each slot."""


def mixed(numbers: np.ndarray) -> np.ndarray:
    """`uint64`: their bits well mixed (SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


class Swaps:
    """By a key for each exchange: of its row and who is `there` (a number that looks like chance), the pod that leaves it, and the kind that comes. All `(exchanges,)`."""

    def __init__(self, pods: int, kinds: int) -> None:
        self._pods, self._kinds = pods, kinds
        self._last = np.uint64((1 << (min(KEPT, pods * kinds) - 1).bit_length()) - 1)
        self.forget()

    def forget(self) -> None:
        slots = int(self._last) + 1
        self._keys, self._gains = np.zeros(slots, np.uint64), np.zeros(slots, np.int64)

    def keys(self, rows: np.ndarray, there: np.ndarray, pods: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """`uint64`, never 0."""
        which = ((rows * self._pods + pods) * self._kinds + kinds + 1).astype(np.uint64)
        return mixed(there + which * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)

    def known(self, keys: np.ndarray) -> np.ndarray:
        """What each gains, `UNKNOWN` where that is not kept."""
        slots = self._slots(keys)
        return np.where(self._keys[slots] == keys, self._gains[slots], UNKNOWN)

    def keep(self, keys: np.ndarray, gains: np.ndarray) -> None:
        slots = self._slots(keys)
        self._keys[slots], self._gains[slots] = keys, gains

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        return (keys >> np.uint64(1)) & self._last
