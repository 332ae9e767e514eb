"""What must be so when faults have stopped and everything has had its time."""

import json
from collections import Counter
from datetime import datetime

from checker import FINAL
from checker_capacity import ON_NODE

from simulation.judging.amounts import GPUS, amounts, requests
from simulation.judging.cluster import APIS, SERVICES, UNENDED, named, node_of, occupies, phase_of, uid_of
from simulation.judging.fit import Capacity, place_all, simple
from simulation.judging.owed import GROUPS, QUEUES, HeldRules, ReclaimRules, note

DAY = 24 * 3600.0
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def moment(text):
    return datetime.fromisoformat(text).timestamp()


def seconds(duration):
    """Of metav1.Duration."""
    found, number = 0.0, ""
    rest = duration
    while rest:
        while rest and (rest[0].isdigit() or rest[0] == "."):
            number, rest = number + rest[0], rest[1:]
        unit = next(u for u in ("ns", "us", "ms", "s", "m", "h") if rest.startswith(u))
        found, number, rest = found + float(number or 0) * UNITS[unit], "", rest[len(unit) :]
    return found


class RestJudge(HeldRules, ReclaimRules):
    """`now`: the API's wall clock in seconds at the moment of rest."""

    def __init__(self, tell, log, cluster, limits, at, now):
        self.tell, self.log, self.cluster, self.limits, self.at, self.now = tell, log, cluster, limits, at, now

    def judge(self):
        self.log.end()
        self.judge_migrations()
        self.judge_reservations()
        self.judge_questions()
        self.judge_leases()
        self.cluster.beside.judge_rest(self.at, self.limits.cleanup)
        self.judge_ends()
        for node in self.cluster.of("nodes").values():
            self.cluster.judge_capacity(node["metadata"]["name"], "at rest")
        self.judge_waiting()
        self.judge_held()

    # -- what is left ----------------------------------------------------------------------------------------------------

    def judge_questions(self):
        """What asked a workload about a move that has ended is taken off its pod."""
        for pod in self.cluster.of("pods").values():
            id = (pod["metadata"].get("annotations") or {}).get("restow.dev/move-requested", "")
            known = self.log.migrations.get(id)
            if id and known is not None and known["step"] in FINAL and not pod["metadata"].get("deletionTimestamp"):
                self.tell("word-first", f"pod {named(pod)} is still asked about migration {id}, which is {known['step']}")

    def judge_migrations(self):
        for reservation in self.cluster.of("reservations.batch.volcano.sh").values():
            name = reservation["metadata"]["name"]
            migration = (reservation["metadata"].get("labels") or {}).get("restow.dev/migration", "")
            known = self.log.migrations.get(migration)
            if name.startswith("restow-") and migration and (known is None or known["step"] in FINAL):
                ended = self.log.ended_at.get(migration, 0.0)
                if self.at - ended > self.limits.cleanup:
                    how = f"{known['step']} for {self.at - ended:.0f} s" if known else "unknown to the log"
                    self.tell("nothing-left", f"Reservation {name} is left, its migration is {how}")
            if name.startswith("restow-slot-") and not self.capacity_is_wanted(name):
                self.tell("nothing-left", f"Reservation {name} is left, and its pod does not wait")
        for pod in self.cluster.of("pods").values():
            waits = not node_of(pod) and not pod["metadata"].get("deletionTimestamp")
            placed = self.log.placed.get(uid_of(pod))
            if waits and placed:
                self.tell("fits-runs", f"pod {named(pod)} was placed on {placed[0]}, and is not bound")

    def capacity_is_wanted(self, name):
        plan = self.log.slots_for.get(name)
        pod = plan and self.cluster.of("pods").get(plan)
        return pod is not None and not node_of(pod)

    def judge_reservations(self):
        for reservation in (obj for api in APIS for obj in self.cluster.of(api).values()):
            meta, spec = reservation["metadata"], reservation.get("spec") or {}
            end = self.expiry(meta, spec)
            if meta.get("deletionTimestamp") or end is None or end > self.now - self.limits.expiry:
                continue
            held = [key for key, hold in self.log.holds.items() if key[0] == meta["uid"] and hold.state in ON_NODE and not hold.lost]
            phase = phase_of(reservation)
            if held:
                self.tell("expired", f"Reservation {named(reservation)} is over for {self.now - end:.0f} s, and holds {len(held)} places")
            elif phase in UNENDED:
                self.tell("expired", f"Reservation {named(reservation)} is over for {self.now - end:.0f} s, and its phase is {phase or 'none'}")

    @staticmethod
    def expiry(meta, spec):
        """RULES G-2: `expires` wins; `ttl: 0` is none; 24 h where neither is set. None: never, or not for us to say."""
        if meta["name"].startswith("restow-"):
            return None
        if spec.get("expires"):
            return moment(spec["expires"])
        ttl = spec.get("ttl")
        if ttl is None:
            return moment(meta["creationTimestamp"]) + DAY
        return moment(meta["creationTimestamp"]) + seconds(ttl) if seconds(ttl) else None

    def judge_leases(self):
        for lease in self.cluster.of("leases").values():
            spec = lease.get("spec") or {}
            # By when it was written: its holder's clock may be wrong.
            late = self.at - self.cluster.renewed_at.get(uid_of(lease), float("-inf"))
            if not spec.get("holderIdentity") or late > 3 * (spec.get("leaseDurationSeconds") or 15):
                self.tell("nothing-left", f"Lease {named(lease)} of {spec.get('holderIdentity') or 'nobody'} was not renewed for {late:.0f} s")

    def judge_ends(self):
        for uid, (when, who, name) in self.cluster.ending.items():
            if uid not in self.cluster.evicted_pods and who.startswith(SERVICES):
                self.tell("decided-effect", f"pod {name} was deleted by {who} at {when:.0f} s, without an eviction")

    # -- who waits ---------------------------------------------------------------------------------------------------------

    def judge_waiting(self):
        if not self.understands():
            return
        slots = self.slots()
        waiting = [p for p in self.cluster.of("pods").values() if self.waits(p)]
        groups = {}
        for pod in waiting:
            group = (pod["metadata"]["namespace"], note(pod, GROUPS))
            groups.setdefault(group if group[1] else uid_of(pod), []).append(pod)
        for group, pods in groups.items():
            self.judge_job(group, pods, slots)

    def understands(self):
        """Not where the configuration has rules of which this knows nothing. Where it says no actions the defaults hold."""
        said = self.log.configuration
        plugins = [plugin for tier in said.get("tiers", ()) for plugin in tier]
        unknown = any(p["name"] == "reserve" or (p.get("arguments") or {}).get("predicate.ProportionalEnable") for p in plugins)
        actions = said.get("actions")
        return not unknown and (not actions or "allocate" in json.dumps(actions))

    def slots(self):
        """Fresh books of nodes on which nothing has become free lately; a claim tried in them is not taken back."""
        pods, found = {}, []
        for pod in self.cluster.of("pods").values():
            if occupies(pod):
                pods.setdefault(node_of(pod), []).append(pod)
        for node in sorted(self.cluster.of("nodes").values(), key=lambda n: n["metadata"]["name"]):
            name = node["metadata"]["name"]
            if self.at - self.cluster.freed_at[name] >= self.limits.runs and name in self.log.nodes:
                found.append((node, pods.get(name, [])))
        return found

    def waits(self, pod):
        if node_of(pod) or pod["metadata"].get("deletionTimestamp") or (pod.get("status") or {}).get("phase", "Pending") != "Pending":
            return False
        return pod["spec"].get("schedulerName") in self.log.ours and self.at - self.cluster.asked_at.get(uid_of(pod), self.at) >= self.limits.runs

    def judge_job(self, group, pods, nodes):
        if not all(simple(pod) for pod in pods) or self.repelled(pods):
            return None
        if isinstance(group, tuple):
            fact = next((g for g in self.cluster.of("podgroups.scheduling.volcano.sh").values() if (g["metadata"]["namespace"], g["metadata"]["name"]) == group), None)
            if fact is None or self.short(group, fact, pods):
                return None
        else:
            fact = None
        queue = ((fact or {}).get("spec") or {}).get("queue") or note(pods[0], QUEUES) or "default"
        total = sum((requests(p) for p in pods), Counter())
        if not self.queue_allows(queue, total):
            return self.judge_reclaim(pods, fact, queue, nodes)
        found = place_all(pods, [Capacity(node, there, self.log) for node, there in nodes])
        if found:
            where = ", ".join(f"{named(p)} on {found[uid_of(p)]}" for p in pods[:3])
            since = max(self.cluster.asked_at[uid_of(p)] for p in pods)
            shared = len(self.cluster.of("queues.scheduling.volcano.sh")) > 1
            return self.tell("deserved" if shared else "fits-runs", f"{len(pods)} pod{'s' if len(pods) > 1 else ''} of queue {queue} would fit ({where}), and waited for {self.at - since:.0f} s")

        return self.judge_reclaim(pods, fact, queue, nodes)

    def short(self, group, fact, pods):
        """Fewer members than the gang needs, or tasks of its own, or not all of them wait for the stated time."""
        members = [
            p for p in self.cluster.of("pods").values()
            if (p["metadata"]["namespace"], note(p, GROUPS)) == group and not p["metadata"].get("deletionTimestamp")
        ]  # fmt: skip
        spec = fact.get("spec") or {}
        late = [p for p in members if not node_of(p) and p not in pods]
        return bool(late) or bool(spec.get("minTaskMember")) or bool(spec.get("minResources")) or len(members) < (spec.get("minMember") or 1)

    def repelled(self, pods):
        """Whether somebody there keeps others away."""
        return any(
            ((p["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
            for p in self.cluster.of("pods").values()
            if occupies(p)
        )

    # -- queues ------------------------------------------------------------------------------------------------------------

    def queue_allows(self, name, asked):
        """Whether the queue certainly may use so much: it stays within its capability and the least that it deserves."""
        queues = {q["metadata"]["name"]: q.get("spec") or {} for q in self.cluster.of("queues.scheduling.volcano.sh").values()}
        if not queues or (set(queues) == {"default"} and not queues["default"].get("capability")):
            return True
        mine = queues.get(name)
        states = {q["metadata"]["name"]: (q.get("status") or {}).get("state", "Open") for q in self.cluster.of("queues.scheduling.volcano.sh").values()}
        if mine is None or states.get(name) != "Open" or any(q.get("parent") or q.get("guarantee") or q.get("deserved") for q in queues.values()):
            return False
        used = self.usage(name) + asked
        whole = sum((amounts((n.get("status") or {}).get("allocatable")) for n in self.cluster.of("nodes").values()), Counter())
        weights = sum(q.get("weight") or 1 for q in queues.values())
        limit = amounts(mine.get("capability"))
        for what, amount in used.items():
            if what in limit and amount > limit[what]:
                return False
            if what in GPUS and what != "nvidia.com/gpu" and len(queues) > 1:
                return False
            if len(queues) > 1 and amount > whole[what] * (mine.get("weight") or 1) // weights:
                return False
        return True

    def usage(self, queue):
        groups = {(g["metadata"]["namespace"], g["metadata"]["name"]): (g.get("spec") or {}).get("queue") for g in self.cluster.of("podgroups.scheduling.volcano.sh").values()}
        used = Counter()
        for pod in self.cluster.of("pods").values():
            if not occupies(pod):
                continue
            own = groups.get((pod["metadata"]["namespace"], note(pod, GROUPS))) or note(pod, QUEUES) or "default"
            if own == queue:
                used += requests(pod)
        return used
