"""Whom a pod may push aside, and where that hurts least (plugin DefaultPreemption)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from restow.kubesim.objects import Obj, dig
from restow.kubesim.pdb import matching_budgets
from restow.kubesim.podstate import condition_of, is_deleting, labels_of, seconds_of, uid_of
from restow.kubesim.stock.book import nominated_to, priority_of
from restow.kubesim.stock.filters import Attempt, No
from restow.kubesim.stock.usage import Held
from restow.kubesim.store import Store

REASON = "PreemptionByScheduler"
_BASE = 1 << 31
"""Added to each victim's priority before they are summed: of negative ones, too, fewer are better."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The node that becomes free for the pod when these are gone."""

    node: str
    victims: tuple[Obj, ...]
    violations: int

    @property
    def harm(self) -> tuple[int, int, int, int, float]:
        """Less is better: budgets violated, the highest priority, their sum, how many, how young the highest are."""
        priorities = [priority_of(v) for v in self.victims]
        highest = max(priorities)
        oldest = min(_started(v) for v in self.victims if priority_of(v) == highest)
        return self.violations, highest, sum(p + _BASE for p in priorities), len(priorities), -oldest


def may_preempt(attempt: Attempt, refused: Mapping[str, No]) -> bool:
    """Not with policy Never, and not while those that it pushed aside are still going."""
    if attempt.pod["spec"].get("preemptionPolicy") == "Never":
        return False
    name = nominated_to(attempt.pod)
    usage = attempt.book.usages.get(name)
    if usage is None or (name in refused and not refused[name].helps):
        return True
    return not any(_goes(held.pod) and priority_of(held.pod) < attempt.priority for held in usage.pods.values())


def _goes(pod: Obj) -> bool:
    said = condition_of(pod, "DisruptionTarget")
    return is_deleting(pod) and said is not None and said.get("reason") == REASON


def plan(attempt: Attempt, refused: Mapping[str, No], store: Store) -> Plan | None:
    """The least harmful way to make a node fit, or None."""
    found = [
        one for name, no in refused.items() if no.helps and name in attempt.book.usages and (one := _on(attempt, name, store)) is not None
    ]  # fmt: skip
    return min(found, key=lambda one: one.harm, default=None)


def _on(attempt: Attempt, name: str, store: Store) -> Plan | None:
    """All of lower priority go; then as many as possible stay, the most important first, those with a spent budget before others."""
    usage = attempt.book.usages[name].copy()
    lower = [held for held in usage.pods.values() if priority_of(held.pod) < attempt.priority]
    if not lower:
        return None
    for held in lower:
        usage.drop(uid_of(held.pod))
        attempt.change(held.pod, usage.node, -1)
    victims: list[Held] = []
    violations = 0
    fits = attempt.crowded(usage) is None
    if fits:
        lower.sort(key=lambda held: (-priority_of(held.pod), _started(held.pod)))
        violating, others = _by_budget(lower, store)
        for held in [*violating, *others]:
            usage.give_back(held)
            attempt.change(held.pod, usage.node, 1)
            if attempt.crowded(usage) is not None:
                usage.drop(uid_of(held.pod))
                attempt.change(held.pod, usage.node, -1)
                victims.append(held)
                violations += held in violating
        gone = victims
    else:
        gone = lower
    for held in gone:
        attempt.change(held.pod, usage.node, 1)
    return Plan(name, tuple(held.pod for held in victims), violations) if fits and victims else None


def _by_budget(pods: list[Held], store: Store) -> tuple[list[Held], list[Held]]:
    """Those whose end a PodDisruptionBudget would not allow any more, and the others."""
    left: dict[str, int] = {}
    violating: list[Held] = []
    others: list[Held] = []
    for held in pods:
        broken = False
        for budget in matching_budgets(store, held.pod) if labels_of(held.pod) else ():
            if held.pod["metadata"]["name"] in dig(budget, "status", "disruptedPods", default={}):
                continue
            uid = uid_of(budget)
            left[uid] = left.get(uid, dig(budget, "status", "disruptionsAllowed", default=0)) - 1
            broken = broken or left[uid] < 0
        (violating if broken else others).append(held)
    return violating, others


def _started(pod: Obj) -> float:
    """A pod that has not started is the youngest."""
    started = (pod.get("status") or {}).get("startTime")
    return seconds_of(started) if started else float("inf")
