"""An independent judge of an exported log: its own small fold in plain Python, nothing of `restow.domain`.

`check(file)` reads every commit of a `.jsonl.zst` export and asserts, after each event: no node, resource or device is
promised twice; nobody is evicted before a landing slot was held; what `landed` is where the plan said; no pod is placed twice
at the same time. At the end no dead hold may be left, and every migration is over. Holds: `checker_holds.py`; gangs, queues,
preemption and starving jobs: `checker_session.py`; the steps of migrations: `checker_migrations.py`.

`python tests/checker.py FILE` does it by hand.
"""

import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import zstandard
from checker_beside import BesideRules
from checker_capacity import ON_NODE
from checker_holds import FINAL, HoldRules
from checker_migrations import MigrationRules
from checker_session import SessionRules

GPU = "restow.dev/gpu-milli"
OVER = ("Succeeded", "Failed")


@dataclass
class Report:
    """`broken`: sentences that begin with a sequence. `overtaken`: over-commitment that facts brought about by themselves, or
    that came between a decision's read and its commit; nobody's fault, and never seen where all pods are ours."""

    broken: list[str] = field(default_factory=list)
    overtaken: list[str] = field(default_factory=list)
    events: Counter = field(default_factory=Counter)
    leaders: Counter = field(default_factory=Counter)
    commits: int = 0
    holds_left: int = 0

    @property
    def ok(self):
        return not self.broken and not self.overtaken


def records(path):
    """(sequence, family, read, time, events) of every commit; events as plain values."""
    from restow.contracts.codec import decode  # here alone: the judge itself knows nothing of Restow

    with Path(path).open("rb") as file:
        raw = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    for line in raw.splitlines()[1:]:
        record = json.loads(line)
        body = record["body"]
        decode(json.dumps(body).encode())  # a commit of the contract, or an exception
        events = [event for decision in body["decisions"] for event in decision["events"]]
        yield record["seq"], record["family"], int(record["headers"]["restow-read"]), events


def check(path, *, deletions_after_plan=False, nobody_else_deletes=False):
    """`deletions_after_plan`: others delete pods, too, after the first plan. `nobody_else_deletes`: from the beginning every
    pod that is deleted is a migration's or somebody's victim."""
    return check_records(records(path), Judge(strict=not deletions_after_plan, planned=nobody_else_deletes))


def check_records(commits, judge=None):
    """The same of (sequence, family, read, events) from anywhere."""
    judge = judge or Judge()
    expected = None
    for seq, family, read, events in commits:
        if expected is not None and seq != expected:
            judge.say(seq, f"sequence {expected} is missing")
        expected = seq + 1
        judge.commit(seq, family, read, events)
    judge.end()
    return judge.report


class Judge(BesideRules, HoldRules, SessionRules, MigrationRules):
    def __init__(self, strict=True, planned=False):
        super().__init__()
        self.report, self.strict = Report(), strict
        self.seq = self.read = 0
        self.shapes, self.nodes, self.pods, self.placed = {}, {}, {}, {}
        self.numa, self.device_objects = {}, {}
        self.used = defaultdict(Counter)
        """node → resource, device index or (`cpu`, number) → amount promised to pods and holds."""
        self.charges = {}
        """pod uid, or (reservation, slot) → (node, amounts)."""
        self.raised = {}
        """node → sequence of the last fact that took capacity from it."""
        self.migrations = {}
        self.proposals = {}
        self.held_before = set()
        self.planned = planned

    def say(self, seq, what):
        self.report.broken.append(f"{seq}: {what}")

    def commit(self, seq, family, read, events):
        self.seq, self.read = seq, read
        self.report.commits += 1
        if not 0 <= read < seq:
            self.say(seq, f"it was decided at {read}, which is not before it")
        for event in events:
            kind = event["type"]
            self.report.events[kind] += 1
            if kind.partition(".")[0] != family:
                self.say(seq, f"{kind} in a commit of {family}")
            rule = getattr(self, kind.replace(".", "_"), None)
            if rule is not None:
                rule(event)
            elif kind.endswith(".led"):
                self.report.leaders[family] += 1
                if event["epoch"] != self.report.leaders[family]:
                    self.say(seq, f"epoch {event['epoch']} of {family} follows {self.report.leaders[family] - 1}")
            self.top_up()
        self.holds_after(family, events)
        self.commit_ends()

    # -- who has what ------------------------------------------------------------------------------------------------

    def amounts(self, shape, devices, cores=()):
        spec = self.shapes[shape]
        found = Counter({what: amount for what, amount in spec["requests"].items() if amount})
        for share in devices:
            found[share["index"]] += share["milli"]
        for core in cores:
            found["cpu", core] += 1
        if spec.get("devices") and not devices:
            found["?"] += 1
        return found

    def enter(self, key, new, lowers=True):
        """Write into the books what somebody has, `(node, amounts)` or None. What it has more than before of is answered."""
        old = self.charges.pop(key, None)
        if old is not None:
            self.used[old[0]].subtract(old[1])
            if lowers:
                self.lowered[old[0]] = None
        if new is None:
            return []
        self.charges[key] = new
        self.used[new[0]].update(new[1])
        before = old[1] if old is not None and old[0] == new[0] else {}
        more = [what for what, amount in new[1].items() if amount > before.get(what, 0)]
        if more and isinstance(key, tuple):
            self.judge_node(new[0], key, more)
        return more

    def judge_node(self, name, key, only=None, fact=False):
        """Of what was raised `only`: others may have been over-committed by facts before. `fact`: no decision has raised it."""
        node = self.nodes.get(name)
        if node is None:
            return
        capacity = self.capacity(node)
        for what, amount in self.used[name].items():
            if only is not None and what not in only:
                continue
            if amount > capacity.get(what, 0) and what != "?":
                sentence = f"{name} has {capacity.get(what, 0)} of {what!s}, {amount} are promised (last to {key})"
                if self.raised.get(name, 0) <= self.read and not fact:
                    self.say(self.seq, sentence)
                elif not isinstance(key, tuple):
                    self.report.overtaken.append(f"{self.seq}: {sentence}")

    def capacity(self, node):
        name = node["name"]
        said = self.device_objects.get(name)
        devices = range(node.get("devices", 0)) if said is None else [g["index"] for g in said if g.get("healthy", True)]
        topology = self.numa.get(name) or node.get("cpus") or ()
        cores = [cpu[0] for cpu in topology] or [what[1] for what in self.used[name] if isinstance(what, tuple)]
        return node["allocatable"] | dict.fromkeys(devices, 1000) | {("cpu", core): 1 for core in cores}

    def settle(self, uid, *, fact):
        """A pod is charged what facts and decisions say; what it drew of a hold and does not use comes back to that."""
        old, new = self.charges.get(uid), self.charge_of(uid)
        if old != new and old is not None:
            self.enter(uid, None)
        self.settle_allocation(uid, new)
        if old == new or new is None:
            return
        self.enter(uid, new)
        before = old[1] if old is not None and old[0] == new[0] else {}
        more = [what for what, amount in new[1].items() if amount > before.get(what, 0)]
        if fact and more:
            self.raised[new[0]] = self.seq
        if more and fact:
            self.squeeze(new[0])
        if more:
            self.judge_node(new[0], uid, more)
        self.squeeze(new[0])

    def charge_of(self, uid):
        pod, placement = self.pods.get(uid), self.placed.get(uid)
        if pod is None or pod.get("phase", "Pending") in OVER:
            return None
        node = pod.get("node") or (placement[0] if placement else None)
        if node is None or self.is_body(uid, node):
            return None
        planned = placement if placement and placement[0] == node else (node, (), ())
        return node, self.amounts(pod["shape"], pod.get("devices") or planned[1], pod.get("cores") or planned[2])

    def waits(self, uid):
        """Whether the session may find a node for it."""
        pod = self.pods.get(uid)
        if pod is None or pod.get("deleting") or pod.get("node"):
            return False
        if pod.get("gated") and not (pod.get("landing") and self.is_theirs(pod["shape"])):
            return False
        return pod.get("phase", "Pending") == "Pending" and uid not in self.placed

    # -- facts -------------------------------------------------------------------------------------------------------

    def cluster_node_observed(self, event):
        name, old = event["name"], self.nodes.get(event["name"])
        if old is not None and old.get("uid") != event.get("uid"):
            self.node_is_gone(name)
            self.holds_are_lost(name)
            self.raised[name] = self.seq
        self.nodes[name] = event
        self.known_at["node", name] = self.seq
        if old is None or any(old.get(what) != event.get(what) for what in ("allocatable", "devices", "cpus")):
            self.raised[name] = self.seq
        self.node_changes(name)

    def node_changes(self, name):
        self.lowered[name] = None
        self.squeeze(name)
        self.judge_node(name, "the node itself", fact=True)

    def cluster_node_gone(self, event):
        self.node_is_gone(event["name"])
        self.holds_are_lost(event["name"])
        self.raised[event["name"]] = self.seq
        self.nodes.pop(event["name"], None)

    def cluster_numa_observed(self, event):
        self.numa[event["node"]] = event.get("cpus", ())
        self.raised[event["node"]] = self.seq

    def cluster_numa_gone(self, event):
        self.numa.pop(event["node"], None)
        self.raised[event["node"]] = self.seq

    def cluster_device_observed(self, event):
        self.device_objects[event["node"]] = event.get("gpus", ())
        self.raised[event["node"]] = self.seq
        self.node_changes(event["node"])

    def cluster_device_gone(self, event):
        self.device_objects.pop(event["node"], None)
        self.raised[event["node"]] = self.seq
        self.node_changes(event["node"])

    def cluster_shape_declared(self, event):
        self.shapes[event["shape"]] = event["spec"]

    def cluster_pod_observed(self, event):
        self.moved(event["pod"], event)

    def cluster_pod_changed(self, event):
        if event["pod"] in self.pods:
            before = self.pods[event["pod"]]
            kept = ("shape", "name", "namespace", "labels", "annotations", "owner", "gated", "landing")
            now = {k: before[k] for k in kept if k in before} | event
            self.moved(event["pod"], now)

    def moved(self, uid, now):
        before = self.pods.get(uid, {})
        if before.get("node") and now.get("node") != before["node"]:
            self.say(self.seq, f"pod {now['name']} went from {before['node']} to {now.get('node')}")
        self.heard_of(uid, now)
        self.pods[uid] = now
        self.note_body(uid, now)
        if now.get("deleting") and not before.get("deleting"):
            self.ended(uid, now["name"])
        if now.get("node") and not before.get("node"):
            self.changes_places(uid, now)
        self.place_comes_back(uid, now)
        self.settle(uid, fact=True)

    def cluster_pod_gone(self, event):
        pod = self.pods.get(event["pod"])
        if pod is not None and not pod.get("deleting"):
            self.ended(event["pod"], pod["name"])
        self.heard_of(event["pod"], None)
        self.note_body(event["pod"], None)
        self.pods.pop(event["pod"], None)
        self.placed.pop(event["pod"], None)
        self.heirs.pop(event["pod"], None)
        self.settle(event["pod"], fact=True)

    def ended(self, uid, name):
        """Nobody else deletes pods after the first plan, so whatever ends then was evicted by a migration, or for somebody who
        waits for its capacity. The fact may come late: after a list, what is gone is known last, and the API's word (`Gone`) was
        taken before."""
        if not (self.strict and self.planned) or self.goes_for_somebody(uid) or self.is_our_own(uid):
            return
        steps = [m["step"] for m in self.migrations.values() if m["pod"] == uid]
        evicted = any(m.get("evicted") for m in self.migrations.values() if m["pod"] == uid)
        if not evicted and not any(step in ("evicting", "aborting") for step in steps):
            self.say(self.seq, f"pod {name} was ended, but its migrations are {steps or 'none'}")

    # -- session -----------------------------------------------------------------------------------------------------

    def place(self, uid, node, devices, cores=()):
        """Whether the placement counts: facts that came in between may have overtaken it."""
        if uid in self.placed:
            self.say(self.seq, f"pod {uid} is placed on {node}, and was placed on {self.placed[uid][0]} already")
        elif not self.waits(uid):
            return False
        self.lent.pop(uid, None)
        self.denominate(uid)
        self.placed[uid] = (node, devices, cores)
        self.reserved.pop(uid, None)
        self.was_placed(uid)
        return True

    def session_pod_placed(self, event):
        uid, node = event["pod"], event["node"]
        if uid in self.pods:
            self.comes_to(node, self.pods[uid]["shape"], f"pod {uid}", uid)
        if self.waits(uid):
            self.judge_given(uid, self.pods[uid]["shape"], event)
            self.judge_ports(node, self.pods[uid]["shape"], uid)
        if self.place(uid, node, event.get("devices", ()), event.get("cores", ())):
            self.lowered[node] = None
            self.settle(uid, fact=False)

    def session_pod_released(self, event):
        if self.placed.pop(event["pod"], None) is None and event["pod"] in self.pods:
            self.say(self.seq, f"pod {event['pod']} is released without having been placed")
        self.settle(event["pod"], fact=False)

    # -- the end -----------------------------------------------------------------------------------------------------

    def end(self):
        for key, why, _ in self.dead_holds():
            self.say(self.seq, f"at the end {key} is still held; {why}")
        for key, hold in self.holds.items():
            if hold.state in ON_NODE:
                self.report.holds_left += 1
                migration = self.migrations.get(self.reservations[key[0]]["fact"].get("migration", ""))
                if migration and migration["step"] in FINAL and not self.dead(self.reservations[key[0]])[0]:
                    self.say(self.seq, f"at the end {key} is still held; its Reservation is of a finished migration")
        for id, migration in self.migrations.items():
            if migration["step"] not in FINAL:
                self.say(self.seq, f"at the end migration {id} is {migration['step']}")
        # What was promised was judged then: what is too much now, facts have brought about.
        for name in self.used:
            self.judge_node(name, "the end", fact=True)


if __name__ == "__main__":
    report = check(sys.argv[1])
    print(f"{report.commits} commits, {sum(report.events.values())} events, {sum(report.leaders.values())} leaders")
    for sentence in (report.broken + report.overtaken)[:40]:
        print(sentence)
    sys.exit(0 if report.ok else 1)
