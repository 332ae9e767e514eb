"""How many volumes of each CSI driver a node has, each volume once however many pods use it."""

import numpy as np

from restow.contracts.ids import NodeName
from restow.domain.state import ClusterState

Volume = tuple[str, str]
"""CSI driver and volume handle."""
UNLIMITED = 1 << 40


class Attached:
    """Counts and limits by driver, `(nodes,) int64`."""

    def __init__(self) -> None:
        self._size = 0
        self._users: dict[Volume, dict[int, int]] = {}
        self._counts: dict[str, np.ndarray] = {}
        self._limits: dict[str, np.ndarray] = {}
        self._limited: dict[int, tuple[str, ...]] = {}

    def grow(self, size: int) -> None:
        """There are more rows."""
        self._size = size

    def limit(self, state: ClusterState, row: int, node: NodeName) -> None:
        """The limits of a row are those of this node."""
        for driver in self._limited.pop(row, ()):
            self._limits[driver][row] = UNLIMITED
        fact = state.csi_nodes.get(node) if node else None
        if fact is None or not fact.limits:
            return
        for driver, most in fact.limits.items():
            self._sized(self._limits, driver, UNLIMITED)[row] = most
        self._limited[row] = tuple(fact.limits)

    def change(self, volume: Volume, row: int, sign: int) -> None:
        """One user of the volume on this row more or less."""
        rows = self._users.setdefault(volume, {})
        before = rows.get(row, 0)
        after = before + sign
        if after:
            rows[row] = after
        else:
            del rows[row]
            if not rows:
                del self._users[volume]
        if (before == 0) != (after == 0):
            self._sized(self._counts, volume[0], 0)[row] += sign

    def beyond(self, wanted: set[Volume]) -> np.ndarray:
        """`(nodes,) bool`: rows where these volumes would be more than a driver's limit."""
        failing = np.zeros(self._size, bool)
        drivers = {driver for driver, _ in wanted} & self._limits.keys()
        for driver in sorted(drivers):
            volumes = [v for v in wanted if v[0] == driver]
            more = np.full(self._size, len(volumes), np.int64)
            for volume in volumes:
                for row in self._users.get(volume, ()):
                    more[row] -= 1
            total = self._sized(self._counts, driver, 0) + more
            failing |= (more > 0) & (total > self._sized(self._limits, driver, UNLIMITED))
        return failing

    def image(self) -> tuple:
        """All that is kept, to compare with another index."""
        counts = {driver: {r: n for r, n in enumerate(c.tolist()) if n} for driver, c in self._counts.items()}
        limits = {driver: {r: n for r, n in enumerate(c.tolist()) if n != UNLIMITED} for driver, c in self._limits.items()}
        return self._users, {d: c for d, c in counts.items() if c}, {d: c for d, c in limits.items() if c}

    def _sized(self, arrays: dict[str, np.ndarray], driver: str, fill: int) -> np.ndarray:
        found = arrays.get(driver)
        if found is None or len(found) < self._size:
            grown = np.full(self._size, fill, np.int64)
            if found is not None:
                grown[: len(found)] = found
            found = arrays[driver] = grown
        return found
