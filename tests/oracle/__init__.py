"""The slow and obvious scheduler that the session is compared with.

It shares nothing with the session but the words of the contract: plain dicts and loops, one pod after another, one node
after another. What kube-scheduler decides is written down here a second time, from its documented behaviour.
"""
