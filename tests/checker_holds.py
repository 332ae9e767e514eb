"""What the judge of logs knows of Reservations: the life of a hold, in plain Python, nothing of `restow.domain`.

Rules: a hold is handed over to owners only, while it is held, as often as its policy allows, and within it; one that waits
for capacity is handed over to nobody until it is ready, and is ready only when all its capacity is there; what is lent goes to a pod
that ignores Reservations; a dead hold is released within the next commit of the session; what was used is held again only where
the successor of a move failed before it was ready.

Who may have what: `checker_policy.py`, `checker_owners.py`; what is held: `checker_capacity.py`.
"""

from collections import Counter, defaultdict

from checker_capacity import ON_NODE, Allocation, HeldCapacityCheck, Hold, cores_of, without
from checker_policy import HandOverRules

FINAL = ("landed", "failed", "not_recreated", "removed")
OTHER_THINGS = ("led", "configured", "pod_released", "preemption_ended", "nomination_ended", "nominations_checked", "owners_unlisted", "let_go_refused")
"""Of a commit with nothing but these in it nobody expects that it releases holds."""
IGNORED = "scheduling.koordinator.sh/reservation-ignored"


class HoldRules(HeldCapacityCheck, HandOverRules):
    """One part of the judge: `checker.Judge` has the books and says what is broken."""

    def __init__(self):
        super().__init__()
        self.reservations, self.holds = {}, {}
        """uid → what is known of it; (uid, place) → its hold."""
        self.allocations, self.slot_users = {}, defaultdict(dict)
        """pod → its draw; (uid, place) → pods."""
        self.places_on, self.waiting_on = defaultdict(dict), defaultdict(dict)
        """node → places, as they came, and as they began to wait."""
        self.spent = {}
        """Place that is used once → the pod that was bound there."""
        self.heirs = {}
        """Pod that got the place of a move under way, and was never ready there → that place."""
        self.lent = {}
        """pod → places that freed capacity for it in this commit."""
        self.void = {}
        """Place → the last commit in which holding it was void, and so whatever the same commit counts on."""
        self.void_on = {}
        """Node → the last commit in which a hold on it was neither handed over nor made another size, as facts came first: whoever is held there by
        the same commit afterwards, is not."""
        self.workloads = {}

    def cluster_workload_observed(self, event):
        self.workloads[event["uid"]] = event.get("owner")

    def cluster_workload_gone(self, event):
        self.workloads.pop(event["uid"], None)

    # -- Reservations ------------------------------------------------------------------------------------------------

    def cluster_reservation_observed(self, event):
        known = self.reservations.setdefault(
            event["reservation"],
            {"dead": "", "at": 0, "accepted": 0, "accepted_at": 0, "refused": 0, "refused_at": 0, "revision": 0, "spec": None},
        )
        if (old := known.get("fact")) is not None:
            same = old.get("generation", 1) == event.get("generation", 1)
            other = (old.get("spec"), old.get("invalid")) != (event.get("spec"), event.get("invalid"))
            known["revision"] = known["revision"] + other if same else 0
        known["fact"] = event
        self.known_at["reservation", event["reservation"]] = self.seq
        if event.get("deleting"):
            self.die(event, "deleting")

    def cluster_reservation_gone(self, event):
        self.die(event, "gone")

    def gc_expired(self, event):
        self.die(event, "expired")

    def gc_collected(self, event):
        self.die(event, "collected")

    def die(self, event, why):
        record = self.reservations.get(event["reservation"])
        if record is not None and not record["dead"]:
            record.update(dead=why, at=self.seq)

    def is_about(self, event):
        """The Reservation as it is now, None where the review was of something else."""
        record = self.reservations.get(event["reservation"])
        if record is None:
            return None
        now = record["fact"].get("generation", 1), record["revision"]
        return record if now == (event["generation"], event.get("revision", 0)) else None

    def reservation_accepted(self, event):
        record = self.is_about(event)
        if record is not None and record["fact"].get("spec") and not record["dead"]:
            record.update(accepted=event["generation"], accepted_at=self.seq, spec=record["fact"]["spec"])

    def reservation_refused(self, event):
        record = self.is_about(event)
        if record is not None:
            least = min(record["accepted"], event["generation"] - 1)
            record.update(refused=event["generation"], refused_at=self.seq, accepted=least)

    def dead(self, record):
        """Why nothing may be held for it, and since which sequence; ("", 0) where that is not so."""
        if record["dead"]:
            return record["dead"], record["at"]
        now = record["fact"].get("generation", 1)
        if record["refused"] >= now and record["refused"] > record["accepted"]:
            return "refused", record["refused_at"]
        return "", 0

    def asked(self, record, slot):
        """The shape that a place is asked for in, None where it is not asked for."""
        task, _, number = slot.rpartition("-")
        for said in (record["spec"] or {}).get("tasks", ()):
            if said["name"] == task and int(number) < said["replicas"]:
                return said["shape"]
        return None

    def migration_of(self, key):
        """The migration that is under way, and whose hold this is."""
        record = self.reservations.get(key[0])
        migration = self.migrations.get(record["fact"].get("migration", "")) if record else None
        return migration if migration and migration["step"] not in FINAL else None

    # -- what the session says of holds --------------------------------------------------------------------------------

    def session_hold_placed(self, event):
        uid, key = event["reservation"], (event["reservation"], event["slot"])
        record, known, waiting = self.reservations.get(uid), self.holds.get(key), event.get("waiting", False)
        if known is not None and known.state in ON_NODE:
            return self.say(self.seq, f"{key} is held twice")
        if known is not None and known.state == "used":
            return self.say(self.seq, f"{key} is held again, but it is used")
        why, since = self.dead(record) if record else ("unknown", 0)
        shape = self.asked(record, event["slot"]) if record and record["accepted"] else None
        if why or shape is None or event.get("shape", shape) != shape:
            if record is None or max(since, record["accepted_at"], record["refused_at"]) <= self.read:
                self.say(self.seq, f"{key} is held, but its Reservation is {why or 'not for that'}")
            self.void[key] = self.seq
            return None
        if self.void_on.get(event["node"]) == self.seq:
            self.void[key] = self.seq
            return None
        if waiting and not record["spec"].get("pre_allocation"):
            self.say(self.seq, f"{key} waits for room, which its Reservation does not allow")
        self.judge_given(key, shape, event)
        self.comes_to(event["node"], shape, f"hold {key}")
        if (migration := record["fact"].get("migration")) and migration in self.migrations:
            if event["node"] != self.migrations[migration]["target"]:
                self.say(self.seq, f"migration {migration} is held on {event['node']}, not on its target")
            self.held_before.add(migration)
        for pod in list(self.slot_users.pop(key, ())):
            del self.allocations[pod]
        full = self.amounts(shape, event.get("devices", ()), event.get("cores", ()))
        hold = self.holds[key] = Hold(event["node"], shape, full, record["spec"].get("allocate_once", False))
        short = self.leaves_cores_to_others(hold)
        self.spent.pop(key, None)
        self.sits_on(key, hold)
        if waiting:
            hold.state = "waiting"
        if event["node"] not in self.nodes:
            return self.lose(key, hold)
        if waiting:
            self.waiting_on[hold.node][key] = None
            return self.want_anew(key, hold)
        self.judge_ports(hold.node, shape, key)
        hold.has = Counter(full)
        if short or self.awaits_body(key, shape):
            # Its capacity is there, and it waits for its placeholder; or it is to get other CPUs.
            self.begins_to_wait(key, hold)
            hold.moved = 0
        self.keep(key, hold)
        self.bodies_are_charged_anew(key)
        return self.squeeze(hold.node)

    def sits_on(self, key, hold):
        self.places_on[hold.node].pop(key, None)
        self.places_on[hold.node][key] = None

    def session_hold_ready(self, event):
        key = (event["reservation"], event["slot"])
        hold = self.on_node(key, "is ready", "waiting")
        if hold is None or self.lost_its_body(key, hold):
            return
        why, since = self.dead(self.reservations[key[0]])
        if why and since <= self.read:
            self.say(self.seq, f"{key} is ready, but its Reservation is {why}")
        missing = without(self.wanted(key, hold), hold.has)
        request = self.shapes[hold.shape].get("cores") or {}
        drawn = set().union(*(cores_of(self.allocations[pod].has) for pod in self.slot_users[key]))
        few = len(cores_of(hold.full) | drawn) < request.get("count", 0)
        if missing or few:
            if self.raised.get(hold.node, 0) <= self.read:
                self.say(self.seq, f"{key} is ready, but lacks {dict(missing) or 'CPUs'}")
            return
        self.judge_body(key, hold)
        hold.state, hold.moved = "held", 0
        self.waiting_on[hold.node].pop(key, None)

    def session_hold_borrowed(self, event):
        key, pod = (event["reservation"], event["slot"]), self.pods.get(event["pod"])
        hold = self.on_node(key, f"is lent to {event['pod']}", *ON_NODE)
        if hold is None or not self.waits(event["pod"]):
            return
        if (pod.get("labels") or {}).get(IGNORED) != "true":
            self.say(self.seq, f"{key} is lent to pod {event['pod']}, which does not ignore Reservations")
        if hold.state == "held":
            hold.state, hold.moved = "waiting", 0
            self.waiting_on[hold.node][key] = None
        hold.has = Counter(dict.fromkeys(cores_of(hold.has), 1))
        self.lent.setdefault(event["pod"], []).append(key)
        self.keep(key, hold, lowers=False)

    def session_hold_resized(self, event):
        key = (event["reservation"], event["slot"])
        hold = self.on_node(key, "is resized", *ON_NODE)
        if hold is None:
            return self.stays(self.holds.get(key))
        record = self.reservations[key[0]]
        if self.asked(record, event["slot"]) != event["shape"] or hold.shape == event["shape"]:
            if record["accepted_at"] <= self.read:
                self.say(self.seq, f"{key} is resized to {event['shape']}, which is not asked for")
            return self.stays(hold)
        if self.void_on.get(hold.node) == self.seq:
            return None
        hold.shape = event["shape"]
        hold.full = self.amounts(hold.shape, event.get("devices", ()), event.get("cores", ()))
        short = self.leaves_cores_to_others(hold)
        self.want_anew(key, hold)
        if short and hold.state == "held":
            self.begins_to_wait(key, hold)
        if hold.state == "waiting" and hold.moved == self.seq and self.raised.get(hold.node, 0) <= self.read:
            self.say(self.seq, f"{key} is resized to more than is free on {hold.node}")

    def session_handed_over(self, event):
        key, uid = (event["reservation"], event["slot"]), event["pod"]
        hold = self.on_node(key, f"is handed over to {uid}", "held")
        if hold is None:
            return self.stays(self.holds.get(key))
        record, pod = self.reservations[key[0]], self.pods.get(uid)
        why, since = self.dead(record)
        if why and since <= self.read:
            self.say(self.seq, f"{key} is handed over to {uid}, but its Reservation is {why}")
        if event["node"] != hold.node:
            return self.say(self.seq, f"{key} is handed over to {uid} on {event['node']}, but it is on {hold.node}")
        if not self.waits(uid):
            self.place(uid, event["node"], event.get("devices", ()), event.get("cores", ()))
            return self.stays(hold)
        if hold.once and key in self.spent and not self.migration_of(key):
            self.say(self.seq, f"{key} is handed over to {uid}, but {self.spent[key]} was bound there before")
        request = self.amounts(pod["shape"], event.get("devices", ()) or self.of_hold(hold, pod["shape"]), event.get("cores", ()))
        draw = self.drawn(hold, request)
        told = self.known_at["reservation", key[0]], self.known_at["node", hold.node]
        if max(record["accepted_at"], self.known_at[uid], *told) <= self.read:
            self.judge_owner(key, hold, record, pod)
            self.judge_policy(key, hold, record, uid, request, draw)
        self.judge_given(uid, pod["shape"], event)
        self.allocations[uid] = Allocation(key, hold.node, draw)
        self.slot_users[key][uid] = None
        if hold.once:
            self.leaves(key, hold, "used")
            hold.pod = uid
            if self.migration_of(key):
                self.heirs[uid] = key
        else:
            hold.has = without(hold.has, draw)
            self.keep(key, hold)
        self.judge_ports(hold.node, pod["shape"], uid)
        self.place(uid, event["node"], event.get("devices", ()), event.get("cores", ()))
        return self.settle(uid, fact=False)

    def of_hold(self, hold, shape):
        """What a pod that is told no devices takes of a hold's: whole ones, as many as it asks for."""
        count = (self.shapes[shape].get("devices") or {}).get("count", 0)
        whole = sorted(what for what, amount in hold.has.items() if isinstance(what, int) and amount >= 1000)
        return [{"index": index, "milli": 1000} for index in whole[:count]]

    def changes_places(self, uid, now):
        """Of equal pods of one controller each may come to the place of another one that is not bound yet: each has the other's from then on (docs/beside.md)."""
        key = self.heirs.get(uid)
        if key is None or self.holds[key].node == now["node"]:
            return
        for other, theirs in self.heirs.items():
            pod = self.pods.get(other, {})
            waits = other != uid and self.holds[theirs].node == now["node"] and not pod.get("node") and not pod.get("deleting")
            alike = all(pod.get(what) == now.get(what) for what in ("shape", "owner", "namespace"))
            if waits and alike and other in self.allocations and uid in self.allocations and not self.is_kept(theirs):
                return self.change_places(uid, key, other, theirs)

    def is_kept(self, key):
        """Whether a placeholder is in this place still."""
        pods = [self.pods[body] for body in self.bodies.get(key, ()) if body in self.pods]
        return any(not pod.get("deleting") and pod.get("phase", "Pending") not in ("Succeeded", "Failed") for pod in pods)

    def change_places(self, one, key, other, theirs):
        for uid in (one, other):
            self.enter(uid, None, lowers=False)
        self.heirs[one], self.heirs[other] = theirs, key
        self.holds[key].pod, self.holds[theirs].pod = other, one
        self.placed[one], self.placed[other] = self.placed[other], self.placed[one]
        had = {uid: self.allocations.pop(uid) for uid in (one, other)}
        for uid, draw in ((one, had[other]), (other, had[one])):
            self.slot_users[draw.key] = {uid: None}
            self.allocations[uid] = Allocation(draw.key, draw.node, draw.has)
        if (charge := self.charge_of(other)) is not None:
            self.enter(other, charge)

    def place_comes_back(self, uid, now):
        """Whom the kubelet rejects, or who fails before it was ready, gives the place of its move to the next one (docs/migrations.md, `landed`).
        One that was deleted before does not; nor does it matter what becomes of the pod once it has failed."""
        key = self.heirs.get(uid)
        if key is None:
            return
        hold = self.holds[key]
        failed = now.get("phase") == "Failed" and not now.get("deleting")
        if failed or (now.get("ready") and now.get("node") == hold.node):
            del self.heirs[uid]
        if failed and hold.state == "used" and hold.pod == uid and self.migration_of(key):
            hold.state = "given back"

    def session_hold_released(self, event):
        key = (event["reservation"], event["slot"])
        hold = self.holds.get(key)
        if hold is None or hold.state not in ON_NODE:
            return self.say(self.seq, f"{key} is released, but it is {hold.state if hold else 'unknown'}")
        return self.leaves(key, hold, "released")

    def on_node(self, key, what, *states):
        """The hold of a place that is in one of these states; facts may have made it another one since the decision."""
        hold = self.holds.get(key)
        if self.void.get(key) == self.seq:
            return None  # nor is there an earlier hold of it that this could be about
        if hold is None:
            return self.say(self.seq, f"{key} {what}, but it is unknown")
        if hold.state not in states or hold.lost:
            if max(hold.moved, hold.lost) <= self.read:
                self.say(self.seq, f"{key} {what}, but it is {'lost' if hold.lost else hold.state}")
            return self.overtaken(hold)
        return hold

    def overtaken(self, hold):
        """Facts came before a decision, which is void now: so may be others, of the same commit, that counted on it."""
        self.raised[hold.node] = self.seq

    def stays(self, hold):
        """A decision to end it, or to make it another one, is void: it keeps what it has."""
        if hold is not None and hold.state in ON_NODE and not hold.lost:
            self.void_on[hold.node] = self.seq
            self.overtaken(hold)

    # -- at the end of a commit ----------------------------------------------------------------------------------------

    def holds_after(self, family, events):
        """What was lent went to its pod; what is dead was released."""
        for uid, keys in self.lent.items():
            if not self.known_at[uid] > self.read:
                self.say(self.seq, f"{keys[0]} is lent to pod {uid}, which does not come")
            self.lowered.update(dict.fromkeys(self.holds[key].node for key in keys))
        if self.lent:
            self.lent.clear()
            self.top_up()
        if family != "session" or all(event["type"].partition(".")[2] in OTHER_THINGS for event in events):
            return
        for key, why, since in self.dead_holds():
            if since <= self.read:
                self.say(self.seq, f"{key} is not released; {why}")

    def dead_holds(self):
        """(place, why, since) of what is held for nobody."""
        for key, hold in self.holds.items():
            if hold.state not in ON_NODE:
                continue
            record = self.reservations[key[0]]
            why, since = self.dead(record)
            if why:
                yield key, f"its Reservation is {why}", since
            elif hold.lost:
                yield key, "its node is gone", hold.lost
            elif record["accepted"] and self.asked(record, key[1]) is None:
                yield key, "it is not asked for any more", record["accepted_at"]
