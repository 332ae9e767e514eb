"""What is held for a slot of a Reservation, and what pods have of it: the judge's own books, nothing of `restow.domain`.

What is held is what the events say, less what facts need: where a node is over-committed, slots that wait for capacity give of
theirs, then nominations, then holds, the latest first, those of migrations last; and after all of them those in which a placeholder stands. What comes free goes to nominations first.
"""

from collections import Counter
from dataclasses import dataclass, field

GPU = "restow.dev/gpu-milli"
ON_NODE = ("held", "waiting")


@dataclass
class Hold:
    """One place, since it was placed. `full`: what pods of its shape ask for; `has`: what is kept for it now; `pod`: the owner
    that ended it. `moved`: the sequence of the fact that made it what it is, 0 where a decision did; `lost`: of that which took
    its node; `left`: of the decision that ended it."""

    node: str
    shape: str
    full: Counter
    once: bool
    state: str = "held"
    has: Counter = field(default_factory=Counter)
    pod: str = ""
    moved: int = 0
    lost: int = 0
    left: int = 0


@dataclass
class Allocation:
    """What a pod has of a hold, and whether it was ever seen on its node."""

    key: tuple
    node: str
    has: Counter
    bound: bool = False


def without(full, gone):
    return Counter({what: left for what, amount in full.items() if (left := amount - gone.get(what, 0)) > 0})


def lacking(wanted, has):
    """Thousandths of devices that are wanted and not there."""
    return sum(max(amount - has.get(what, 0), 0) for what, amount in wanted.items() if isinstance(what, int))


def in_step(wanted, has):
    """Without what it has of all devices together for those that it lacks: others may use that."""
    most = max(wanted.get(GPU, 0) - lacking(wanted, has), 0)
    return without(has, {GPU: has.get(GPU, 0) - most}) if lacking(wanted, has) and has.get(GPU, 0) > most else has


def cores_of(amounts):
    return {what for what in amounts if isinstance(what, tuple)}


class HeldCapacityCheck:
    """One part of the judge; `checker_holds.HoldRules` says what happens."""

    # -- what is held --------------------------------------------------------------------------------------------------

    def wanted(self, key, hold):
        """All that it is of, less what owners have."""
        found = hold.full
        for pod in self.slot_users.get(key, ()):
            found = without(found, self.allocations[pod].has)
        return found

    @staticmethod
    def drawn(hold, request):
        """Of everything as much as is asked for and held; of all devices together as much as of each."""
        draw = Counter({what: min(amount, hold.has[what]) for what, amount in request.items() if hold.has.get(what)})
        if GPU in draw and any(isinstance(what, int) for what in (*request, *hold.full)):
            draw[GPU] = min(draw[GPU], sum(amount for what, amount in draw.items() if isinstance(what, int)))
        return draw

    def want_anew(self, key, hold):
        """It is to have what it wants now, as far as that is free."""
        wanted = self.wanted(key, hold)
        hold.has = in_step(wanted, Counter({what: kept for what, amount in wanted.items() if (kept := min(hold.has[what], amount))}))
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
            self.keep(key, hold, lowers=False)

    def keep(self, key, hold, lowers=True):
        """In the books is what the hold has."""
        self.enter(key, (hold.node, Counter(hold.has)) if hold.has and not hold.lost else None, lowers)

    def leaves(self, key, hold, state):
        hold.state, hold.has, hold.lost, hold.moved, hold.left = state, Counter(), 0, 0, self.seq
        self.places_on[hold.node].pop(key, None)
        self.waiting_on[hold.node].pop(key, None)
        self.keep(key, hold)
        self.bodies_are_charged_anew(key)

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
        """Where more is promised than there is, capacity that is kept for somebody is given up."""
        node = self.nodes.get(name)
        if node is None:
            return None
        capacity = self.capacity(node)
        short = {w: over for w, a in self.used[name].items() if not isinstance(w, tuple) and w != "?" and (over := a - capacity.get(w, 0)) > 0}
        if not short:
            return self.squeeze_cores(name)
        waiting = list(self.waiting_on[name])
        held = [key for key in self.places_on[name] if key not in self.waiting_on[name]]
        moves = [key for key in held if self.is_a_migrations(key)]
        nominated = [uid for uid, n in self.nominations.items() if n["node"] == name]
        order = [*reversed(waiting), *reversed(nominated), *(k for k in reversed(held) if k not in moves), *reversed(moves)]
        for who in sorted(order, key=lambda who: isinstance(who, tuple) and self.stands(who, name)):
            place = isinstance(who, tuple)
            has = Counter(self.holds[who].has if place else self.nominations[who]["has"])
            gone = {w: min(has[w], over) for w, over in short.items() if has[w] and over > 0}
            if not gone:
                continue
            left = in_step(self.wanted(who, self.holds[who]) if place else self.nominations[who]["wanted"], without(has, gone))
            gone = without(has, left)
            for what, amount in gone.items():
                short[what] = max(short.get(what, 0) - amount, 0)
            if place:
                self.holds[who].has = left
                self.keep(who, self.holds[who], lowers=False)
                if self.holds[who].state == "held":
                    self.begins_to_wait(who, self.holds[who])
            else:
                self.nominations[who]["has"] = left
                self.used[name].subtract(gone)
            self.lowered[name] = None
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

    def leaves_cores_to_others(self, hold):
        """Whether others have some of the CPUs that it is to have: where facts have overtaken the decision, these stay theirs."""
        if hold.node not in self.nodes or self.raised.get(hold.node, 0) <= self.read:
            return False
        theirs = [core for core in cores_of(hold.full) if self.used[hold.node][core] > (hold.has[core] > 0)]
        for core in theirs:
            del hold.full[core]
        return bool(theirs)

    def is_a_migrations(self, key):
        record = self.reservations[key[0]]
        return record["fact"].get("migration", "") in self.migrations

    # -- draws ---------------------------------------------------------------------------------------------------------

    def settle_allocation(self, uid, now):
        """A pod has taken as long as it is on the hold's node, or is to come there."""
        draw, pod = self.allocations.get(uid), self.pods.get(uid)
        if draw is None:
            return
        if pod is not None and pod.get("node") == draw.node:
            draw.bound = True
            if self.holds[draw.key].once:
                self.spent[draw.key] = uid
        if now is None or now[0] != draw.node or draw.node not in self.nodes:
            self.comes_back(uid, draw)

    def comes_back(self, uid, draw):
        del self.allocations[uid]
        self.slot_users[draw.key].pop(uid, None)
        hold = self.holds[draw.key]
        if hold.state in ON_NODE and not hold.lost and hold.node == draw.node:
            self.want_anew(draw.key, hold)
        elif hold.state == "used" and hold.pod == uid and not draw.bound:
            self.holds_again(draw.key, hold, uid)

    def holds_again(self, key, hold, uid):
        """Its only owner was never bound there."""
        hold.pod = ""
        record = self.reservations[key[0]]
        if self.dead(record)[0] or record["refused"] > record["accepted"]:
            # Also while a later generation waits to be reviewed: who was refused asks for nothing until one is accepted.
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
        # What its owner had left free there is held once more: a decision that was made before could count on it.
        self.raised[hold.node] = self.seq
        self.waiting_on[hold.node][key] = None
        return self.want_anew(key, hold)
