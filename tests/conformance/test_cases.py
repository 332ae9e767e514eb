"""Upstream's behaviour, case by case: objects and a policy in, evictions out (../shared/conformance, whose README has the form).

Every case goes the whole way: JSON → wire form → facts → fold → policy → evaluate.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conformance.world import samples_of, state_of, time_of

from restow.contracts.values import Taint, Toleration
from restow.domain.descheduling.interpreter import Run
from restow.domain.descheduling.model import EVICTOR
from restow.domain.descheduling.plugins import PLUGINS
from restow.domain.descheduling.policy import PolicyError, load, read, written
from restow.domain.migration.run_once import carried_out
from restow.domain.predicates import tolerates

CASES = Path(__file__).resolve().parents[3] / "shared" / "conformance"

ON_PURPOSE: dict[str, tuple[int | None, str]] = {
    "dup-17": (2, "a pod is evicted once, however many owners it has: upstream asks the API once for each owner reference"),
}
"""Case → what ours evicts (None: the policy is refused), and why."""


def cases() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*.json")):
        found += [pytest.param(one, id=one["id"]) for one in json.loads(path.read_text())["cases"]]
    return found or [pytest.param(None, id="none", marks=pytest.mark.skip(reason=f"{CASES} is not there"))]


ALL = cases()


def only(*fields: str) -> list[Any]:
    return [c for c in ALL if c.values[0] is None or all(f in c.values[0] for f in fields)]


def needs_plugins(policy: dict[str, Any]) -> None:
    asked = {config["name"] for profile in policy.get("profiles", ()) for config in profile.get("pluginConfig", ())}
    for profile in policy.get("profiles", ()):
        for point in profile.get("plugins", {}).values():
            asked.update(point.get("enabled", ()))
    if missing := asked - {EVICTOR, *PLUGINS}:
        pytest.skip(f"not registered yet: {', '.join(sorted(missing))}")


@pytest.mark.parametrize("case", only("nodes", "policy"))
def test_evictions(case):
    needs_plugins(case["policy"])
    expected, _ = ON_PURPOSE.get(case["id"], (case["expect"]["evicted"], ""))
    if expected is None:
        with pytest.raises(PolicyError):
            load(case["policy"])
        return
    policy, state, now = load(case["policy"]), state_of(case), time_of(case)
    outcome = carried_out(state, policy, now, samples_of(case, state, policy, now)).outcome
    names = [f"{state.pods[e.pod].fact.namespace}/{state.pods[e.pod].fact.name}" for e in outcome.evictions]
    said = f"{case['title']}: {names}; {outcome.skipped or Counter(v.why for v in outcome.verdicts)} {outcome.warnings}"
    assert len(outcome.evictions) == expected, said
    expect = case["expect"]
    bare = {name.partition("/")[2] for name in names}
    if expect["podNames"] is not None:
        assert set(expect["podNames"]) <= bare, said
        assert expect["podNamesMode"] != "exact" or set(expect["podNames"]) == bare, said
    if observed := expect.get("observed"):
        assert set(observed["always"]) <= set(names), said
        assert not observed["stable"] or set(observed["ever"]) == set(names), said
    assert len(set(names)) == expect.get("distinctPods", len(names)), said


@pytest.mark.parametrize("case", [c for c in only("nodes") if c.values[0] is None or "pods" in c.values[0]["expect"]])
def test_what_the_evictor_says_of_each_pod(case):
    needs_plugins(case["policy"])
    state = state_of(case)
    policy = load(case["policy"])
    run = Run(state, policy, time_of(case))
    assert not run.skipped
    (filters,) = run.filters
    ask = filters.evictor.evictable if case["expect"]["stage"] == "filter" else filters.evictor.fits
    said = {f"{pod.fact.namespace}/{pod.fact.name}": ask(uid) for uid, pod in state.pods.items()}
    assert {name: not said[name] for name in case["expect"]["pods"]} == case["expect"]["pods"], (case["title"], said)


@pytest.mark.parametrize("case", [c for c in only("expect") if c.values[0] is None or "error" in c.values[0]["expect"]])
def test_policies(case):
    needs_plugins(case["policy"])
    if case["expect"]["error"] is not None:
        with pytest.raises(PolicyError) as refused:
            read(case["policy"])
        assert "; allowed: " in str(refused.value)
        return
    policy = read(case["policy"])
    if (result := case["expect"].get("result")) is not None:
        head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
        assert written(policy) == head | result
    assert read(written(policy)) == policy


@pytest.mark.parametrize("case", only("taint"))
def test_tolerations(case):
    assert tolerates((Toleration(**case["toleration"]),), Taint(**case["taint"])) is case["expect"]["tolerated"]
