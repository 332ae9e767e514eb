"""What a seed means, as values: the cluster, and two timed lists, of what users do and of what goes wrong.

A plan is allocated whole before anything runs (`draw`), so that it can be printed, and made smaller (`shrink`): whatever is left out, the
rest stays as it was. An act that finds nothing to act on does nothing.
"""

from typing import Any

import msgspec


class NodeSpec(msgspec.Struct, frozen=True):
    """`cpu` in millicores, `memory` in MiB."""

    name: str
    cpu: int
    memory: int
    gpus: int = 0
    model: str = ""
    zone: str = ""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a user runs. `kind`: Deployment, ReplicaSet, StatefulSet, Job, Gang (a Job of a PodGroup) or Pod."""

    name: str
    kind: str
    replicas: int
    cpu: int = 500
    memory: int = 256
    gpus: int = 0
    milli: int = 0
    """Thousandths of one GPU, instead of whole ones."""
    priority: str = ""
    queue: str = ""
    grace: int = 5
    stops: int = 0
    """Seconds that its pods take to stop, at most their grace; 0: a moment."""
    runs: int = 0
    """Seconds that a pod of a Job runs."""
    budget: str = ""
    """`maxUnavailable` of its PodDisruptionBudget; "" for none."""
    minimum: int = 0
    """Of a gang."""
    scheduler: str = "restow"
    hook: str = ""
    """What it answers when it is asked whether a pod may be moved: agrees, refuses, silent (the pod stays), or assents (silence lets it go); "" where it is
    not to be asked."""


class Act(msgspec.Struct, frozen=True):
    """One thing that is done at one moment: seconds since all services lead."""

    at: float
    what: str
    args: dict[str, Any] = {}

    def __str__(self) -> str:
        said = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.at:9.3f} {self.what} {said}".rstrip()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `seconds`: how long users and faults go on; then comes calm, and the rest is judged."""

    seed: int
    seconds: float
    replicas: int = 1
    """Of each service."""
    nodes: tuple[NodeSpec, ...] = ()
    workloads: tuple[Workload, ...] = ()
    users: tuple[Act, ...] = ()
    faults: tuple[Act, ...] = ()
    lease: str = "on"
    """Whether leaders hold a Kubernetes Lease, or the log alone decides."""
    scheduler: int = 0
    policy: int = 0
    beside: bool = False
    """Whether pods of the stock scheduler are moved, too: `deploy/beside` is applied, and the policy names that scheduler."""
    budgets: bool = False
    """Whether the policy says how many pods may be evicted in a time."""
    lag: float = 60.0
    """Seconds after which an effect is late: less where no fault of the plan holds anybody up."""
    skews: dict[str, float] = {}
    """Replica → seconds by which its clock is ahead from the start."""
    kinds: tuple[str, ...] = ()
    """Of users and of faults, as drawn: no run has all of them (swarm testing)."""
