"""The garbage collector: what is due."""

from restow.domain.gc.decider import GcDecider

decider = GcDecider()
