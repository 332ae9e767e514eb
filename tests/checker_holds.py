"""What the judge of logs knows of Reservations: the life of a hold, in plain Python, nothing of `restow.domain`.

Rules: a hold is handed over to owners only, while it is held, as often as its policy allows, and within it; one that waits
for room is handed over to nobody until it is ready, and is ready only when all its room is there; what is lent goes to a pod
that ignores Reservations; a dead hold is released within the next commit of the session.

What is held is what the events say, less what facts need: where a node is over-committed, places that wait for room give of
theirs, then nominations, then holds, the latest first, those of migrations last. What comes free goes to nominations first.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from checker_owners import owns, unwanted

GPU = "restow.dev/gpu-milli"
FINAL = ("landed", "failed", "not_recreated")
ON_NODE = ("held", "waiting")
OTHER_THINGS = ("led", "configured", "pod_released", "preemption_ended", "nomination_ended")
"""Of a commit with nothing but these in it nobody expects that it releases holds."""
IGNORED = "scheduling.koordinator.sh/reservation-ignored"


@dataclass
class Hold:
    """One place, since it was placed. `full`: what pods of its shape ask for; `has`: what is kept for it now; `pod`: the owner
    that ended it. `moved`: the sequence of the fact that made it what it is, 0 where a decision did; `lost`: of that which took
    its node."""

    node: str
    shape: str
    full: Counter
    once: bool
    state: str = "held"
    has: Counter = field(default_factory=Counter)
    pod: str = ""
    moved: int = 0
    lost: int = 0


@dataclass
class Draw:
    """What a pod has of a hold, and whether it was ever seen on its node."""

    key: tuple
    node: str
    has: Counter
    bound: bool = False


def without(full, gone):
    return Counter({what: left for what, amount in full.items() if (left := amount - gone.get(what, 0)) > 0})


def cores_of(amounts):
    return {what for what in amounts if isinstance(what, tuple)}


class HoldRules:
    """One part of the judge: `checker.Judge` has the books and says what is broken."""

    def __init__(self):
        super().__init__()
        self.reservations, self.holds = {}, {}
        """uid → what is known of it; (uid, place) → its hold."""
        self.draws, self.drawers = {}, defaultdict(dict)
        """pod → its draw; (uid, place) → pods."""
        self.places_on, self.waiting_on = defaultdict(dict), defaultdict(dict)
        """node → places, as they came, and as they began to wait."""
        self.spent = {}
        """Place that is used once → the pod that was bound there."""
        self.lent = {}
        """pod → places that made room for it in this commit."""
        self.workloads = {}

    def cluster_workload_observed(self, event):
        self.workloads[event["uid"]] = event["owner"]

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
            return None
        if waiting and not record["spec"].get("pre_allocation"):
            self.say(self.seq, f"{key} waits for room, which its Reservation does not allow")
        self.judge_given(key, shape, event)
        self.comes_to(event["node"], shape, f"hold {key}")
        if (migration := record["fact"].get("migration")) and migration in self.migrations:
            if event["node"] != self.migrations[migration]["target"]:
                self.say(self.seq, f"migration {migration} is held on {event['node']}, not on its target")
            self.held_before.add(migration)
        for pod in list(self.drawers.pop(key, ())):
            del self.draws[pod]
        full = self.amounts(shape, event.get("devices", ()), event.get("cores", ()))
        hold = self.holds[key] = Hold(event["node"], shape, full, record["spec"].get("allocate_once", False))
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
        self.keep(key, hold)
        return self.squeeze(hold.node)

    def sits_on(self, key, hold):
        self.places_on[hold.node].pop(key, None)
        self.places_on[hold.node][key] = None

    def session_hold_ready(self, event):
        key = (event["reservation"], event["slot"])
        hold = self.on_node(key, "is ready", "waiting")
        if hold is None:
            return
        why, since = self.dead(self.reservations[key[0]])
        if why and since <= self.read:
            self.say(self.seq, f"{key} is ready, but its Reservation is {why}")
        missing = without(self.wanted(key, hold), hold.has)
        request = self.shapes[hold.shape].get("cores") or {}
        drawn = set().union(*(cores_of(self.draws[pod].has) for pod in self.drawers[key]))
        few = len(cores_of(hold.full) | drawn) < request.get("count", 0)
        if missing or few:
            if self.raised.get(hold.node, 0) <= self.read:
                self.say(self.seq, f"{key} is ready, but lacks {dict(missing) or 'CPUs'}")
            return
        hold.state, hold.moved = "held", 0
        self.waiting_on[hold.node].pop(key, None)

    def session_hold_lent(self, event):
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
            return
        record = self.reservations[key[0]]
        if self.asked(record, event["slot"]) != event["shape"] or hold.shape == event["shape"]:
            if record["accepted_at"] <= self.read:
                self.say(self.seq, f"{key} is resized to {event['shape']}, which is not asked for")
            return
        hold.shape = event["shape"]
        hold.full = self.amounts(hold.shape, event.get("devices", ()), event.get("cores", ()))
        self.want_anew(key, hold)
        if hold.state == "waiting" and hold.moved == self.seq and self.raised.get(hold.node, 0) <= self.read:
            self.say(self.seq, f"{key} is resized to more than is free on {hold.node}")

    def session_handed_over(self, event):
        key, uid = (event["reservation"], event["slot"]), event["pod"]
        hold = self.on_node(key, f"is handed over to {uid}", "held")
        if hold is None:
            return
        record, pod = self.reservations[key[0]], self.pods.get(uid)
        why, since = self.dead(record)
        if why and since <= self.read:
            self.say(self.seq, f"{key} is handed over to {uid}, but its Reservation is {why}")
        if event["node"] != hold.node:
            return self.say(self.seq, f"{key} is handed over to {uid} on {event['node']}, but it is on {hold.node}")
        if not self.waits(uid):
            self.place(uid, event["node"], event.get("devices", ()), event.get("cores", ()))
            return self.overtaken(hold)
        if hold.once and key in self.spent and not self.migration_of(key):
            self.say(self.seq, f"{key} is handed over to {uid}, but {self.spent[key]} was bound there before")
        request = self.amounts(pod["shape"], event.get("devices", ()), event.get("cores", ()))
        draw = self.drawn(hold, request)
        if max(record["accepted_at"], self.known_at[uid]) <= self.read:
            self.judge_owner(key, hold, record, pod)
            self.judge_policy(key, hold, record, uid, request, draw)
        self.judge_given(uid, pod["shape"], event)
        self.draws[uid] = Draw(key, hold.node, draw)
        self.drawers[key][uid] = None
        if hold.once:
            self.leaves(key, hold, "used")
            hold.pod = uid
        else:
            hold.has = without(hold.has, draw)
            self.keep(key, hold)
        self.judge_ports(hold.node, pod["shape"], uid)
        self.place(uid, event["node"], event.get("devices", ()), event.get("cores", ()))
        return self.settle(uid, fact=False)

    def session_hold_released(self, event):
        key = (event["reservation"], event["slot"])
        hold = self.holds.get(key)
        if hold is None or hold.state not in ON_NODE:
            return self.say(self.seq, f"{key} is released, but it is {hold.state if hold else 'unknown'}")
        return self.leaves(key, hold, "released")

    def on_node(self, key, what, *states):
        """The hold of a place that is in one of these states; facts may have made it another one since the decision."""
        hold = self.holds.get(key)
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

    # -- what is held --------------------------------------------------------------------------------------------------

    def wanted(self, key, hold):
        """All that it is of, less what owners have."""
        found = hold.full
        for pod in self.drawers.get(key, ()):
            found = without(found, self.draws[pod].has)
        return found

    @staticmethod
    def drawn(hold, request):
        """Of everything as much as is asked for and held; of all devices together as much as of each."""
        draw = Counter({what: min(amount, hold.has[what]) for what, amount in request.items() if hold.has.get(what)})
        if GPU in draw and any(isinstance(what, int) for what in (*request, *hold.full)):
            draw[GPU] = min(draw[GPU], sum(amount for what, amount in draw.items() if isinstance(what, int)))
        return draw

    def want_anew(self, key, hold):
        """It is to have what it wants now, as far as that is free; a share of a device as a whole or not at all."""
        wanted = self.wanted(key, hold)
        kept = {w: a if isinstance(w, int) and hold.has[w] == a else min(hold.has[w], a) * (not isinstance(w, int)) for w, a in wanted.items()}
        hold.has = Counter({what: amount for what, amount in kept.items() if amount})
        self.keep(key, hold)
        self.fill_hold(key, hold)
        if hold.has != wanted and hold.state == "held":
            self.begins_to_wait(key, hold)

    def begins_to_wait(self, key, hold):
        hold.state, hold.moved = "waiting", self.seq
        self.waiting_on[hold.node][key] = None

    def fill_hold(self, key, hold):
        if hold.lost or any(key in keys for keys in self.lent.values()):
            return
        has = Counter(hold.has)
        self.fill(hold.node, self.wanted(key, hold), has)
        if has != hold.has:
            hold.has = has
            self.keep(key, hold)

    def keep(self, key, hold, lowers=True):
        """In the books is what the hold has."""
        self.enter(key, (hold.node, Counter(hold.has)) if hold.has and not hold.lost else None, lowers)

    def leaves(self, key, hold, state):
        hold.state, hold.has, hold.lost, hold.moved = state, Counter(), 0, 0
        self.places_on[hold.node].pop(key, None)
        self.waiting_on[hold.node].pop(key, None)
        self.keep(key, hold)

    def lose(self, key, hold):
        hold.lost, hold.has = self.seq, Counter()
        self.keep(key, hold)
        self.places_on[hold.node].pop(key, None)
        self.waiting_on[hold.node].pop(key, None)

    def holds_are_lost(self, node):
        for key in list(self.places_on[node]):
            self.lose(key, self.holds[key])

    def top_up_holds(self, node):
        for key in list(self.waiting_on[node]):
            self.fill_hold(key, self.holds[key])

    def squeeze(self, name):
        """Where more is promised than there is, room that is kept for somebody is given up."""
        node = self.nodes.get(name)
        if node is None:
            return None
        room = self.room(node)
        short = {w: over for w, a in self.used[name].items() if not isinstance(w, tuple) and w != "?" and (over := a - room.get(w, 0)) > 0}
        if not short:
            return self.squeeze_cores(name)
        waiting = list(self.waiting_on[name])
        held = [key for key in self.places_on[name] if key not in self.waiting_on[name]]
        moves = [key for key in held if self.is_a_migrations(key)]
        nominated = [uid for uid, n in self.nominations.items() if n["node"] == name]
        for who in [*reversed(waiting), *reversed(nominated), *(k for k in reversed(held) if k not in moves), *reversed(moves)]:
            place = isinstance(who, tuple)
            has = Counter(self.holds[who].has if place else self.nominations[who]["has"])
            gone = {w: has[w] if isinstance(w, int) else min(has[w], over) for w, over in short.items() if has[w] and over > 0}
            if not gone:
                continue
            for what, amount in gone.items():
                short[what] = max(short[what] - amount, 0)
            left = without(has, gone)
            if place:
                self.holds[who].has = left
                self.keep(who, self.holds[who], lowers=False)
                if self.holds[who].state == "held":
                    self.begins_to_wait(who, self.holds[who])
            else:
                self.nominations[who]["has"] = left
                self.used[name].subtract(gone)
        return self.squeeze_cores(name)

    def squeeze_cores(self, name):
        """A CPU that is a pod's is no hold's any more, which is then to get others."""
        for key in list(self.places_on[name]):
            hold = self.holds[key]
            twice = [core for core in cores_of(hold.has) if self.used[name][core] > 1]
            if twice and self.raised.get(name, 0) > self.read:
                for core in twice:
                    del hold.full[core], hold.has[core]
                self.keep(key, hold, lowers=False)
                if hold.state == "held":
                    self.begins_to_wait(key, hold)

    def is_a_migrations(self, key):
        record = self.reservations[key[0]]
        return record["fact"].get("migration", "") in self.migrations

    # -- draws ---------------------------------------------------------------------------------------------------------

    def settle_draw(self, uid, now):
        """A pod has drawn as long as it is on the hold's node, or is to come there."""
        draw, pod = self.draws.get(uid), self.pods.get(uid)
        if draw is None:
            return
        if pod is not None and pod.get("node") == draw.node:
            draw.bound = True
            if self.holds[draw.key].once:
                self.spent[draw.key] = uid
        if now is None or now[0] != draw.node or draw.node not in self.nodes:
            self.comes_back(uid, draw)

    def comes_back(self, uid, draw):
        del self.draws[uid]
        self.drawers[draw.key].pop(uid, None)
        hold = self.holds[draw.key]
        if hold.state in ON_NODE and not hold.lost and hold.node == draw.node:
            self.want_anew(draw.key, hold)
        elif hold.state == "used" and hold.pod == uid and not draw.bound:
            self.holds_again(draw.key, hold, uid)

    def holds_again(self, key, hold, uid):
        """Its only owner was never bound there."""
        hold.pod = ""
        record = self.reservations[key[0]]
        if self.dead(record)[0]:
            hold.state = "released"
            return
        if self.asked(record, key[1]) is None:
            return
        pod = self.pods.get(uid, {})
        if self.migration_of(key) and (pod.get("node") or pod.get("phase") == "Succeeded"):
            hold.pod = uid  # the successor has come, if elsewhere
            return
        taken = [core for core in cores_of(hold.full) if self.used[hold.node][core] > 0]
        for core in taken:
            del hold.full[core]
        hold.moved, hold.state = self.seq, "waiting"
        self.sits_on(key, hold)
        if hold.node not in self.nodes:
            return self.lose(key, hold)
        self.waiting_on[hold.node][key] = None
        return self.want_anew(key, hold)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def judge_owner(self, key, hold, record, pod):
        who = f"{key} is handed over to {pod['pod']}"
        if self.is_a_migrations(key):
            return
        if not owns(record["fact"], record["spec"], pod, self.workloads):
            self.say(self.seq, f"{who}, which does not own it")
        asked, held = self.shapes[pod["shape"]], self.shapes[hold.shape]
        if record["spec"].get("match_policy", "PodSpec") == "PodSpec" and asked.get("spec_digest") != held.get("spec_digest"):
            self.say(self.seq, f"{who}, whose pod spec is another one")
        why = unwanted(record["fact"], record["spec"], self.nodes.get(hold.node), pod, asked, held)
        if why:
            self.say(self.seq, f"{who}, but {why}")

    def judge_policy(self, key, hold, record, uid, request, draw):
        """What is named (Restricted), or everything (Covering), comes from the hold alone."""
        spec, policy = record["spec"], record["spec"].get("allocate_policy", "Aligned")
        named = {what for what, amount in self.shapes[hold.shape]["requests"].items() if amount}
        if policy == "Aligned":
            return
        if policy == "Restricted":
            named = named.intersection(spec.get("restricted") or named)
        else:
            named |= set(request)
        for what, amount in request.items():
            kind = GPU if isinstance(what, int) else "cpu" if isinstance(what, tuple) else what
            if kind in named and what != "pods" and amount > draw.get(what, 0):
                if isinstance(what, tuple) and not cores_of(hold.full):
                    continue
                self.say(self.seq, f"{key} is handed over to {uid}, which gets {amount} of {what}, {draw.get(what, 0)} of it from the hold, which is {policy}")

    def judge_given(self, who, shape, event):
        """As many devices and CPUs as are asked for, none twice."""
        spec = self.shapes.get(shape, {})
        devices, cores = event.get("devices", ()), event.get("cores", ())
        request, count = spec.get("devices") or {"count": 0, "milli": 0}, (spec.get("cores") or {}).get("count", 0)
        right = len({d["index"] for d in devices}) == len(devices) == request["count"] and all(d["milli"] == request["milli"] for d in devices)
        if not right and not event.get("waiting"):
            self.say(self.seq, f"{who} gets other devices than it asks for: {list(devices)}")
        if len(set(cores)) != len(cores) or (len(cores) != count and not event.get("waiting")):
            self.say(self.seq, f"{who} gets other CPUs than it asks for: {list(cores)}")

    def judge_ports(self, node, shape, who):
        """Nobody else has these ports on the node; a hold's are its owners'."""
        mine = self.shapes.get(shape, {}).get("host_ports") or ()
        if not mine or node not in self.nodes:
            return
        for key, (name, _) in list(self.charges.items()):
            if name != node or key == who or isinstance(key, tuple):
                continue
            if self.clash(mine, self.shapes[self.pods[key]["shape"]]) and max(self.known_at[key], self.raised.get(node, 0)) <= self.read:
                self.say(self.seq, f"{who} comes to {node}, where pod {key} has its port")
        for key in list(self.places_on[node]):
            hold = self.holds[key]
            if key == who or key in self.lent.get(who, ()) or hold.moved > self.read or not self.clash(mine, self.shapes[hold.shape]):
                continue
            record, pod = self.reservations[key[0]], self.pods.get(who) if isinstance(who, str) else None
            if pod is None or not (self.is_a_migrations(key) or owns(record["fact"], record["spec"], pod, self.workloads)):
                self.say(self.seq, f"{who} comes to {node}, where {key} has its port")

    @staticmethod
    def clash(mine, spec):
        anywhere = "0.0.0.0"
        for a in mine:
            for b in spec.get("host_ports") or ():
                ips = a.get("ip", anywhere), b.get("ip", anywhere)
                same = (a["port"], a.get("protocol", "TCP")) == (b["port"], b.get("protocol", "TCP"))
                if same and (ips[0] == ips[1] or anywhere in ips):
                    return True
        return False

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
