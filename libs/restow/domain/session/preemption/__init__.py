"""Who has to go for whom: what `preempt` and `reclaim` share.

`claims` says who may take, and takes it as a whole or not at all; `victims` finds the cheapest set that frees capacity on a node (`evictable`
tells where to look first), and `future_idle` is what rows will have free once those who were told to go are gone.
"""
