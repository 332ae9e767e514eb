"""Words for tests of descheduling: a policy in few words, and what it does to a state."""

from typing import Any

from domain.build import NOW

from restow.contracts.samples import Samples
from restow.contracts.values import OwnerRef
from restow.domain.descheduling.interpreter import Outcome
from restow.domain.descheduling.model import Policy
from restow.domain.descheduling.policy import load
from restow.domain.migration.run_once import carried_out
from restow.domain.state import ClusterState

HOUR = 3_600_000
WEB = OwnerRef("ReplicaSet", "web", "uid-web", "apps/v1")


def profile(plugin: str = "PodLifeTime", args: dict[str, Any] | None = None, evictor: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One plugin and the evictor; PodLifeTime takes whatever is older than a minute."""
    if args is None:
        args = {"maxPodLifeTimeSeconds": 60} if plugin == "PodLifeTime" else {}
    configs = [{"name": "DefaultEvictor", "args": evictor or {}}, {"name": plugin, "args": args}]
    return {
        "name": more.pop("name", "default"),
        "pluginConfig": configs,
        "plugins": {more.pop("point", "deschedule"): {"enabled": [plugin]}, **more},
    }


def policy(*profiles: dict[str, Any], **limits: Any) -> Policy:
    said = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": list(profiles) or [profile()]}
    return load(said | limits)


def evaluate(state: ClusterState, what: Policy, now: int, samples: Samples | None = None) -> Outcome:
    """What the policy evicts where nothing can be held."""
    return carried_out(state, what, now, samples).outcome


def evicted(state: ClusterState, what: Policy, now: int = NOW + HOUR, samples: Samples | None = None) -> list[str]:
    return [one.pod for one in evaluate(state, what, now, samples).evictions]


def why(outcome: Outcome) -> dict[str, str]:
    """The rule that keeps each pod."""
    return {verdict.pod: verdict.why.partition(":")[0] for verdict in outcome.verdicts}
