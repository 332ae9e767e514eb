"""The optimizing planner: a search over where pods could be, on a session of the scheduler that decides nothing.

`world` is the cluster as pods are thought to be moved (charged in place, taken back at the end); `value` says what a node is
worth by the objective, `ranking` where a pod goes best; `search` empties what is cheapest to empty, with chains of pods that make
capacity for each other, and `improve` takes parts of that back and tries again; `order` says what must have left before what can
arrive; `demand` frees capacity for pods that wait. Everything is counted in steps of search and in integers.
"""

from restow.domain.defragmentation.optimizing.demand import plan_demand
from restow.domain.defragmentation.optimizing.plan import plan

__all__ = ["plan", "plan_demand"]
