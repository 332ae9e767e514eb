"""Who has to go for whom: what `preempt` and `reclaim` share.

`claimers` says who may take, `victims` finds the cheapest set that makes room on a node (`ranking` and `crowd` tell where to look
first), `claim` takes it as a whole or not at all, and `coming` is what rows will have free once those who were told to go are
gone.
"""
