"""Planted faults: one line each, in session, fold, saga, cache and collector, that the simulator must find.

Each is found in its file by the text of the old line: where others have changed that, `test_planted.py` says so. They are tried in a
copy of the tree, never in the tree itself, in worlds that are about such things (`focus`). A seed that the unchanged tree does not
pass says nothing and is left out. What survives all seeds means that a checker or a world is missing.

`python -m simulation.planted [NAME...] [--seeds N] [--first SEED]`: apply, run, print the table.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOMAIN = "libs/restow/domain"
SEEDS = 12


@dataclass(frozen=True)
class Planted:
    """`old` stands exactly once in `file`, below the domain. `world`: of `focus.KINDS`, where it should show. `breaks`: what no longer
    holds, in a sentence."""

    name: str
    part: str
    world: str
    file: str
    old: str
    new: str
    breaks: str

    @property
    def path(self):
        return f"{DOMAIN}/{self.file}"

    def applied(self, text):
        count = text.count(self.old)
        if count != 1:
            raise LookupError(f"{self.name}: the line to change stands {count} times in {self.path}; allowed: once")
        return text.replace(self.old, self.new)


PLANTED = (
    # -- session -------------------------------------------------------------------------------------------------------
    Planted(
        "capacity-for-half", "session", "too_small", "session/placer.py",
        "            fits &= free[:, column] >= amount\n", "            fits &= free[:, column] >= amount // 2\n",
        "A pod comes to a node that has half of what it asks for.",
    ),
    Planted(
        "ranked-too-high", "session", "ends", "session/placer.py",
        "            if free[column] < amount:\n", "            if free[column] + amount < amount:\n",
        "A node that has filled up meanwhile is ranked as if it were free.",
    ),
    Planted(
        "device-with-half", "session", "ends", "device_choice.py",
        "for i, share in enumerate(free) if share >= request.milli)", "for i, share in enumerate(free) if share * 2 >= request.milli)",
        "A pod gets a device that has half of what it asks for.",
    ),
    Planted(
        "all-devices-for-one", "fold", "device_in_use", "node_table.py",
        "if (least := min(amount - missing if c == gpus else amount, free[c])) > 0", "if (least := min(amount, free[c])) > 0",
        "Who waits for a device keeps others from those that are free.",
    ),
    Planted(
        "cordon-overlooked", "session", "ends", "predicates.py",
        "    if reason := repelled(shape, node, on, tolerate):\n", "    if (reason := repelled(shape, node, on, tolerate)) and not node.unschedulable:\n",
        "Pods and holds come to cordoned nodes.",
    ),
    Planted(
        "capability-unasked", "session", "queues", "session/plugins/proportion/plugin.py",
        "        if capability and (column := beyond(used, items, capability)) is not None:\n",
        "        if False and (column := beyond(used, items, capability)) is not None:\n",
        "A queue uses more than its capability.",
    ),
    Planted(
        "gang-one-short", "session", "gangs", "session/plugins/gang.py",
        "    return INCOMPLETE if job.short() else \"\"\n", "    return INCOMPLETE if job.short(1) else \"\"\n",
        "A gang starts with one member too few.",
    ),
    Planted(
        "gang-unprotected", "session", "preempts", "session/plugins/gang.py",
        "job.ready - job.need - len(going))]", "job.ready - len(going))]",
        "A gang at its minimum loses members to others.",
    ),
    Planted(
        "any-priority-goes", "session", "unequal", "session/preemption/victims.py",
        "        return self.session.job_priority(uid) > job.priority\n", "        return self.session.job_priority(uid) > job.priority + 2_000_000_000\n",
        "Pods of a higher priority go for those of a lower one.",
    ),
    Planted(
        "budget-unasked", "session", "preempts", "session/guard.py",
        "        if not state.budgets:\n", "        if state.budgets or not state.budgets:\n",
        "A pod is chosen as a victim whose budget allows nothing.",
    ),
    Planted(
        "nothing-reclaimed", "session", "reclaims", "session/plugins/proportion/plugin.py",
        "            if may_lose(have, items, self.deserved.get(queue, {}), asked, self._guarantees.get(queue, {})):\n",
        "            if not may_lose(have, items, self.deserved.get(queue, {}), asked, self._guarantees.get(queue, {})):\n",
        "A queue that deserves more waits for one that has too much.",
    ),
    Planted(
        "nothing-released", "session", "reserves", "session/hold_releases.py",
        "in nsmallest(limit, state.to_release.items())", "in nsmallest(0, state.to_release.items())",
        "What is asked back stays held.",
    ),
    Planted(
        "nominees-overlooked", "session", "strangers", "session/plugins/predicates/nominees.py",
        "        self.active = bool(state.nominees)\n", "        self.active = False\n",
        "Pods come where another scheduler has just preempted their like, and are preempted again, without end.",
    ),
    Planted(
        "device-guessed", "session", "strangers", "unsaid_devices.py",
        "    found = state.table.unsaid > 0\n", "    found = state.table.unsaid < 0\n",
        "Devices are named, and shares given, beside strangers of whom nobody knows which they have.",
    ),
    Planted(
        "ungated-unnominated", "session", "beside", "../kube/beside.py",
        '{"status": {"nominatedNodeName": node}}', '{"status": {}}',
        "Who takes a slot beside another scheduler loses its gate, and was never nominated.",
    ),
    Planted(
        "guard-stays", "session", "beside", "beside.py",
        "return state.stand_ins.get(key) != pod or not may_guard(", "return state.stand_ins.get(key) != pod and not may_guard(",
        "The old node is kept for ever for a pod that has moved.",
    ),
    # -- fold ----------------------------------------------------------------------------------------------------------
    Planted(
        "finished-pods-use-capacity", "fold", "ends", "charges.py",
        " or known.live.phase in OVER or (pod in self", " or (pod in self",
        "Pods that have ended keep their capacity, others wait beside it.",
    ),
    Planted(
        "released-but-charged", "fold", "moves", "held_capacity.py",
        "        if key in self.held_on.get(slot.node, ()):\n            self.charge_slot(slot, -1)\n",
        "        if key in self.held_on.get(slot.node, ()):\n            self.charge_slot(slot, 0)\n",
        "The capacity of a hold that was given up is nobody's for ever.",
    ),
    Planted(
        "freed-unnoticed", "fold", "ends", "charges.py",
        "        self.drop_in(self.on_node, charge.node, pod)\n        self.capacity_epoch += 1\n",
        "        self.drop_in(self.on_node, charge.node, pod)\n        self.capacity_epoch += 0\n",
        "Nobody who waits is looked at again when a pod ends.",
    ),
    Planted(
        "node-unnoticed", "fold", "too_small", "evolve/cluster.py",
        "    rejections.changed_on(state, event.name)\n    state.capacity_epoch += 1\n", "    rejections.changed_on(state, event.name)\n    state.capacity_epoch += 0\n",
        "Nobody who waits is looked at again when a node comes back.",
    ),
    Planted(
        "holds-on-lost-nodes", "fold", "reserves", "evolve/lost_nodes.py",
        "    for key in list(state.held_on.get(name, ())):\n        _lose_hold(state, name, key)\n",
        "    for key in list(state.held_on.get(name, ()))[:0]:\n        _lose_hold(state, name, key)\n",
        "What was held on a node that is gone stays held.",
    ),
    Planted(
        "held-ones-not-asked-back", "fold", "reserves", "evolve/reservation_slots.py",
        "        elif slot.phase in ON_NODE and (uid, name) not in state.to_release:\n",
        "        elif slot.phase is SlotPhase.WAITING and (uid, name) not in state.to_release:\n",
        "A Reservation that ends keeps what it holds.",
    ),
    Planted(
        "waiting-holds-forgotten", "fold", "waits", "evolve/reservation_slots.py",
        "    state.put_slot((uid, name), slot)\n    state.capacity_epoch += 1\n", "    state.put_slot((uid, name), slot)\n    state.drop(state.slot_queue, (uid, name))\n",
        "Places of a Reservation never come into the session's queue.",
    ),
    Planted(
        "hold-for-the-dead", "fold", "ended", "evolve/holds.py",
        "    found = _slot_of(state, event, SlotPhase.PENDING)\n    if", "    found = _slot_of(state, event, SlotPhase.PENDING, SlotPhase.FAILED)\n    if",
        "A hold that was chosen while its Reservation ended stays.",
    ),
    Planted(
        "once-is-twice", "fold", "reserves", "allocations.py",
        "        elif slot.phase is SlotPhase.USED and slot.pod == pod and not allocation.bound:\n", "        elif slot.phase is SlotPhase.USED and slot.pod == pod:\n",
        "What may be used once is held again when its pod has ended.",
    ),
    Planted(
        "device-too-early", "fold", "shares", "held_capacity.py",
        "lacking, free, shares, self._gpus)\n", "lacking, free, [1000] * 256, self._gpus)\n",
        "Who waits for capacity gets a device that is still in use.",
    ),
    Planted(
        "unplaced-are-forgotten", "fold", "ends", "state.py",
        "            if pod not in self.queue and pod not in self.parked and pod not in self.nominations:\n",
        "            if pod not in self.pods and pod not in self.parked and pod not in self.nominations:\n",
        "No pod comes into the session's queue.",
    ),
    # -- saga ----------------------------------------------------------------------------------------------------------
    Planted(
        "eviction-first", "saga", "moves", "migration/holds.py",
        "    return _has(state, migration, SlotPhase.HELD)\n", "    return True\n",
        "A pod is evicted before its place is held.",
    ),
    Planted(
        "word-unasked", "saga", "asks", "migration/consents.py",
        "    return known.given > 0 if known is not None else hook_of(state, migration) is None\n", "    return known is None or known.given >= 0\n",
        "A pod is evicted although its workload has not agreed.",
    ),
    Planted(
        "gated-for-an-hour", "saga", "away", "landing_gate.py",
        "LEASE, RENEWED = 180_000, 30_000\n", "LEASE, RENEWED = 3_600_000, 30_000\n",
        "With Restow away, what controllers of pods under way make is gated for an hour.",
    ),
    Planted(
        "question-left", "saga", "asks", "migration/consents.py",
        "    if migration.step in FINAL and requested(state, migration.move.pod) == migration.id:\n", "    if not migration.step:\n",
        "What asks a workload about a move stays on its pod when the move is over.",
    ),
    Planted(
        "evicted-for-free", "fold", "budgeted", "evolve/budgets.py",
        "    state.put(times, record.id, record.evicting)\n", "    pass\n",
        "What is evicted is charged to no eviction budget.",
    ),
    Planted(
        "half-a-node", "saga", "whole", "migration/limits.py",
        "        if not self.whole.all_hold(migration) or not self.whole.all_agree(migration):\n", "        if not self.whole.all_agree(migration):\n",
        "Pods leave a node that is to be emptied wholly, while others have no place yet.",
    ),
    Planted(
        "lost-target", "saga", "whole", "migration/holds.py",
        "    return target_lost(state, migration.move.target, migration.shape)\n", "    return None\n",
        "A pod is evicted towards a node that was cordoned or lost.",
    ),
    Planted(
        "landed-unready", "saga", "moves", "evolve/cluster.py",
        "    elif live.ready and uid in state.successors:\n", "    elif uid in state.successors:\n",
        "A move is reported as landed before its successor is ready.",
    ),
    Planted(
        "no-way-back", "saga", "moves", "migration/saga.py",
        "        (f.EVICTION_REFUSED, Then.ABORTING),\n", "        (f.EVICTION_REFUSED, Then.FAILED),\n",
        "A refused eviction is rolled back without the mark that stops a late one.",
    ),
    Planted(
        "late-for-ever", "saga", "leavers", "migration/saga.py",
        "        (f.NOBODY_CAME, Then.NOT_RECREATED),\n", "        (f.NOBODY_CAME, Then.WAITS),\n",
        "A migration whose pod nobody makes again never ends.",
    ),
    Planted(
        "all-at-once", "saga", "spreads", "migration/limits.py",
        "        if why := spare.too_many(who, uid, self._workloads[who] + more):\n",
        "        if why := spare.too_many(who, uid, self._workloads[who] + more - 9):\n",
        "All pods of a workload are moved at once.",
    ),
    Planted(
        "gang-minimum-unasked", "saga", "gang_moves", "migration/limits.py",
        "        if group is not None and not _has_ended(state, migration) and (why := spare.too_few(group, uid)):\n",
        "        if group is not None and _has_ended(state, migration) and (why := spare.too_few(group, uid)):\n",
        "Members of a gang at its minimum are moved.",
    ),
    Planted(
        "holds-left-behind", "saga", "moves", "evolve/migration.py",
        "        if to is not Step.LANDED and record.reservation in state.reservations:\n", "        if to is Step.LANDED and record.reservation in state.reservations:\n",
        "The hold of a move that failed is asked back late.",
    ),
    Planted(
        "guard-unmade", "saga", "beside", "beside.py",
        "not has_fallen(state.live_of(pod)) and state.pods[pod].fact.nominated == migration.move.source\n",
        "not has_fallen(state.live_of(pod)) and state.pods[pod].fact.nominated == migration.move.source or not pod\n",
        "Nobody keeps the old node while its pod is moved beside another scheduler.",
    ),
    # -- reservation cache ---------------------------------------------------------------------------------------------
    Planted(
        "ttl-of-hours", "cache", "reserves", "reservation/validate.py",
        "return bounded(created + spec.ttl) if", "return bounded(created + spec.ttl * 3600) if",
        "A Reservation holds long after its time.",
    ),
    Planted(
        "never-reviewed", "cache", "reserves", "reservation/decider.py",
        "for uid in due[:AT_ONCE]]", "for uid in due[:0]]",
        "No Reservation is ever accepted, and nothing says so.",
    ),
    Planted(
        "silent-at-the-end", "cache", "reserves", "reservation/decider.py",
        "return record is not None and not record.gone and (", "return record is not None and not record.gone and not record.expired and (",
        "A Reservation that has expired is Available in the API.",
    ),
    Planted(
        "anybody-owns", "cache", "reserves", "reservation/owner_matching.py",
        "    return rule.selector is None or selects(rule.selector, pod.labels)\n", "    return True\n",
        "A pod takes a hold that it does not own.",
    ),
    # -- collector -----------------------------------------------------------------------------------------------------
    Planted(
        "expiry-an-hour-late", "collector", "reserves", "gc/agenda.py",
        "    return record.expires, e.Expired(uid)\n", "    return Millis(record.expires + 3_600_000), e.Expired(uid)\n",
        "A Reservation holds for an hour after its time.",
    ),
    Planted(
        "all-have-finished", "collector", "reserves", "gc/agenda.py",
        "    finished = phase is not None and phase.phase in FINISHED\n", "    finished = phase is not None\n",
        "Reservations in use are collected, and none expires.",
    ),
    Planted(
        "orphans-with-parents", "collector", "moves", "gc/agenda.py",
        "        if migration is not None and migration.step not in FINAL:\n", "        if migration is None:\n",
        "The holds of moves under way are collected.",
    ),
    Planted(
        "expired-unheard", "collector", "reserves", "evolve/gc.py",
        '    cancel(state, event.reservation, "Expired")\n', '    state.drop(state.available, event.reservation)\n',
        "An expiry is in the log, and nothing is released.",
    ),
)  # fmt: skip


# -- trying one ------------------------------------------------------------------------------------------------------------


def plant(one, folder):
    """A copy of what a run needs, with the fault in it; a whole one where there is none."""
    for name in ("libs", "services", "deploy", "tests/simulation"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    for path in (ROOT / "tests").glob("checker*.py"):
        shutil.copy(path, folder / "tests")
    if one is not None:
        path = folder / one.path
        path.write_text(one.applied(path.read_text()))


def run_seeds(world, seeds, stop):
    """In the tree that this process was started in; a line for each."""
    from simulation.focus import focus
    from simulation.runner import Options, run_one

    for seed in seeds:
        result = run_one(focus(world, seed), Options(limit=40))
        first = result.broken[0] if result.broken else (0, 0, "", "")
        told = {"seed": seed, "promise": first[2], "sentence": first[3][:300], "cpu": round(result.cpu, 1), "migrations": result.landed}
        print("= " + json.dumps(told), flush=True)
        if stop and result.broken:
            return


def _run(folder, world, seeds, stop=True):
    """The results of these seeds in that tree, up to the first that breaks anything."""
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / name) for name in ("libs", "services", "tests"))}
    said = [sys.executable, "-m", "simulation.planted", "--run", f"{world}:{','.join(map(str, seeds))}", *(["--all"] if not stop else [])]
    run = subprocess.run(said, cwd=folder, env=told, capture_output=True, text=True, check=False)
    lines = [json.loads(line[2:]) for line in run.stdout.splitlines() if line.startswith("= ")]
    if not lines:
        raise RuntimeError(f"no seed was run:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return lines


@dataclass
class Found:
    planted: Planted
    seed: int = 0
    after: int = 0
    promise: str = ""
    sentence: str = ""


class Whole:
    """The tree as it is: which seeds break something there, too. Each is run once."""

    def __init__(self, folder=ROOT):
        self._folder, self._known, self._turn = folder, {}, threading.Lock()

    def breaks(self, world, seed):
        with self._turn:
            if (world, seed) not in self._known:
                self._known[world, seed] = bool(_run(self._folder, world, [seed])[-1]["promise"])
            return self._known[world, seed]


def find(one, seeds, whole=None):
    """The first of these seeds that breaks a promise in the mutated tree, and none in the whole one; and after how many."""
    whole = whole or Whole()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        plant(one, Path(folder))
        tried, left = 0, list(seeds)
        while left:
            told = _run(Path(folder), one.world, left)
            last = told[-1]
            tried += len(told)
            if not last["promise"]:
                break
            if not whole.breaks(one.world, last["seed"]):
                return Found(one, last["seed"], tried, last["promise"], last["sentence"])
            left = left[left.index(last["seed"]) + 1 :]
    return Found(one, after=tried)


def table(rows):
    lines = ["| planted in | fault | what it breaks | found by | after seeds |", "|---|---|---|---|---|"]
    for row in rows:
        found = f"`{row.promise}`" if row.promise else "**nobody**"
        lines.append(f"| {row.planted.part} | `{row.planted.name}` | {row.planted.breaks} | {found} | {row.after} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python -m simulation.planted", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="which; all where none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="at most so many seeds each (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="faults tried at once (%(default)s)")
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        world, _, seeds = args.run.partition(":")
        run_seeds(world, [int(seed) for seed in seeds.split(",")], not args.all)
        return 0
    unknown = set(args.names) - {one.name for one in PLANTED}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; allowed: {', '.join(one.name for one in PLANTED)}")
    chosen = [one for one in PLANTED if not args.names or one.name in args.names]
    rows, began = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as whole, ThreadPoolExecutor(args.jobs) as pool:
        plant(None, Path(whole))
        known, seeds = Whole(Path(whole)), range(args.first, args.first + args.seeds)
        for done in as_completed([pool.submit(find, one, seeds, known) for one in chosen]):
            rows.append(row := done.result())
            said = f"{row.promise} with seed {row.seed}, after {row.after}: {row.sentence[:160]}" if row.promise else f"NOT FOUND in {row.after} seeds"
            print(f"{time.monotonic() - began:6.0f} s  {row.planted.name}: {said}", flush=True)
    print(table(sorted(rows, key=lambda row: PLANTED.index(row.planted))))
    return 0 if all(row.promise for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
