"""What a judge says of a run: one broken promise, with the moment at which it broke."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Broken:
    at: float
    """Simulated seconds since the run began."""
    seq: int
    """Of the last commit that the broker had stored; 0 before the first."""
    promise: str
    """A short id that stays the same from release to release, such as `evicted-without-place`."""
    sentence: str
    """Names objects and numbers: who, where, how much."""

    def __str__(self):
        return f"at {self.at:.3f} s, after commit {self.seq}: {self.promise}: {self.sentence}"
