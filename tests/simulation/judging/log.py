"""The judge of the log, commit by commit: `tests/checker.py` has the books; here are the rules that it lacks."""

import json

from checker import FINAL, Judge
from checker_capacity import ON_NODE

from simulation.judging.promises import promise_of
from simulation.judging.victims import VictimRules
from simulation.judging.writers import WriterRules


class LogJudge(VictimRules, WriterRules, Judge):
    """`tell(promise, sentence)` is told what is broken. `moments`: sequence → simulated time of its commit."""

    def __init__(self, tell, limits):
        self.tell, self.stated = tell, limits
        super().__init__(strict=False)
        self.at, self.moments = 0.0, {0: 0.0}
        self.was_ready = {}
        """Pod → the node on which it was ready."""
        self.decided_for, self.denominated_at = {}, {}
        """Pod → nodes that were ever decided for it; pod → when what was held for it was last given up."""
        self.waiting = {}
        """Plans that wait for a person."""
        self.configuration, self.policy, self.slots_for = {}, {}, {}
        """What the session and what the descheduler is configured with; Reservation `restow-capacity-...` → the pod that it is for."""
        self.ended_at, self.ended_with, self.expires = {}, {}, {}
        """Migration → when it ended, and with which commit; Reservation → when it expires, as it was accepted."""
        self.expired_at = {}
        """Reservation → when the collector said that its time is over."""

    def say(self, seq, what):
        self.tell(promise_of(what), what)

    def stored(self, at, seq, family, headers, body):
        if not self.in_order(at, seq):
            return
        self.at, self.moments[seq] = at, at
        if "restow-read" not in headers or "decisions" not in body:
            return  # not ours: void, and counted by the fold
        read = int(headers["restow-read"])
        events = [event for decision in body["decisions"] for event in decision["events"]]
        self.seq, self.read = seq, read
        self.judge_writer(family, headers.get("ce-source", ""), events)
        self.commit(seq, family, read, [dict(event) for event in events])
        self.report.overtaken.clear()
        for id, migration in self.migrations.items():
            if migration["step"] in FINAL:
                self.ended_at.setdefault(id, at)

    def reservation_accepted(self, event):
        super().reservation_accepted(event)
        self.expires[event["reservation"]] = event.get("expires", 0)

    # -- what was decided ------------------------------------------------------------------------------------------------

    def place(self, uid, node, devices, cores=()):
        self.decided_for.setdefault(uid, []).append(node)
        return super().place(uid, node, devices, cores)

    def denominate(self, uid):
        if uid in self.nominations:
            self.denominated_at[uid] = self.at
            for victim in self.nominations[uid]["victims"]:
                if self.victims.get(victim) == uid:
                    self.gone_for[victim] = self.at
        super().denominate(uid)

    def migration_planned(self, event):
        super().migration_planned(event)
        if event.get("mode"):
            self.waiting[event["plan"]] = event
        else:
            self.begins(event)

    def migration_plan_approved(self, event):
        super().migration_plan_approved(event)
        self.begins(self.waiting.pop(event["plan"], {}))

    def begins(self, event):
        for move in event.get("moves", ()):
            if (migration := self.migrations.get(move["migration"])) is not None:
                migration["been"] = ["planned"]
                migration["plan"], migration["whole"] = event["plan"], event.get("whole", False)
                migration["of"] = self.controller(move["pod"])
        for capacity in event.get("slots", ()):
            self.slots_for[capacity["name"]] = capacity["pod"]

    def session_configured(self, event):
        super().session_configured(event)
        self.configuration = json.loads(event["text"])

    def migration_configured(self, event):
        super().migration_configured(event)
        self.policy = json.loads(event["text"])

    def step(self, event, *allowed):
        migration = super().step(event, *allowed)
        if migration:
            migration["been"].append(migration["step"])
            migration["why"] = event.get("reason", "")
            if migration["step"] in FINAL:
                migration["ended"] = True
                self.ended_with[migration["migration"]] = self.seq
        return migration

    def moved(self, uid, now):
        if now.get("ready"):
            self.was_ready[uid] = now.get("node")
        super().moved(uid, now)

    def migration_landed(self, event):
        super().migration_landed(event)
        if self.was_ready.get(event["pod"]) != event["node"]:
            self.tell("saga-order", f"migration {event['migration']} landed on {event['node']}, where pod {event['pod']} was never ready")

    def gc_expired(self, event):
        self.expired_at[event["reservation"]] = self.at
        super().gc_expired(event)

    # -- what is taken away ----------------------------------------------------------------------------------------------

    def gc_collected(self, event):
        """An object is taken away that has ended: a user's whose places are all used or given up, ours of a migration that is over."""
        uid = event["reservation"]
        record = self.reservations.get(uid)
        if record is not None and self.known(("reservation", uid)) and not self.dead(record)[0]:
            id, name = record["fact"].get("migration", ""), record["fact"].get("name", uid)
            migration = self.migrations.get(id)
            held = [key for key, hold in self.holds.items() if key[0] == uid and hold.state in ON_NODE]
            if event["reason"] == "Orphaned" and migration is not None and "ended" not in migration:
                self.tell("ended-only", f"Reservation {name} is collected, and its migration is {migration['step']}")
            elif event["reason"] == "Retention" and held:
                self.tell("ended-only", f"Reservation {name} is collected, and holds {len(held)} places")
        super().gc_collected(event)

    # -- where somebody comes to ---------------------------------------------------------------------------------------

    def known(self, *what):
        """Whether all facts about these were in the log when the decision was made."""
        return all(self.known_at[one] <= self.read for one in what)

    def cluster_node_gone(self, event):
        super().cluster_node_gone(event)
        self.known_at["node", event["name"]] = self.seq

    def session_pod_placed(self, event):
        if self.waits(event["pod"]):
            self.judge_open(event["node"], self.pods[event["pod"]]["shape"], f"pod {event['pod']}")
        super().session_pod_placed(event)

    def session_handed_over(self, event):
        if self.waits(event["pod"]):
            self.judge_open(event["node"], self.pods[event["pod"]]["shape"], f"pod {event['pod']}", of_hold=True)
        super().session_handed_over(event)

    def session_hold_placed(self, event):
        if event.get("shape") in self.shapes:
            self.judge_open(event["node"], event["shape"], f"hold {event['reservation']} {event['slot']}")
        super().session_hold_placed(event)

    def judge_open(self, name, shape, who, of_hold=False):
        """Not what came between the decision's read and its commit: that, facts undo."""
        if not self.known(("node", name)):
            return
        if why := self.closed(name, self.shapes[shape], of_hold):
            self.tell("open-node", f"{who} comes to {name}, but {why}")

    def closed(self, name, spec, of_hold=False):
        """Why the node does not take pods of this shape, by the facts of the log; empty where it does."""
        node = self.nodes.get(name)
        if node is None:
            return "it is not there"
        if not node.get("ready", True) and not self.tolerates(spec, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}):
            return "it is not ready"
        if node.get("unschedulable") and not self.tolerates(spec, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}):
            return "it is cordoned"
        for taint in node.get("taints") or ():
            if taint["effect"] in ("NoSchedule", "NoExecute") and not self.tolerates(spec, taint):
                return f"its taint {taint['key']} is not tolerated"
        labels = node.get("labels") or {}
        if not of_hold and any(labels.get(k) != v for k, v in (spec.get("node_selector") or {}).items()):
            return "it is not selected"
        return ""

    @staticmethod
    def tolerates(spec, taint):
        def one(t):
            if (t.get("effect") and t["effect"] != taint["effect"]) or (t.get("key") and t["key"] != taint["key"]):
                return False
            if t.get("operator", "Equal") == "Equal":
                return bool(t.get("key")) and t.get("value", "") == taint.get("value", "")
            return t["operator"] == "Exists" or bool(t.get("key"))  # Gt, Lt: not claimed

        return any(one(t) for t in spec.get("tolerations") or ())
