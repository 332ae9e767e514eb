"""Who may be evicted, and when: RULES G-11 and DESIGN 5, by the facts that a decision had read."""

from checker_session import group_of

CRITICAL = 2_000_000_000
KEEP = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
AWAY = ("evicting", "evicted", "turning_back")
OVER = ("Succeeded", "Failed")


def protection(pod, priority):
    """Why a pod must not be anybody's victim, from what facts and API objects alike say; empty where it may."""
    if priority >= CRITICAL:
        return f"its priority is {priority}"
    notes = pod.get("annotations") or {}
    for name, value in KEEP.items():
        if notes.get(name) == value:
            return f"it says {name}: {value}"
    return ""


class VictimRules:
    def __init__(self, *args, **more):
        self.gone_for, self.budgets, self.classes, self.asked_for_word = {}, {}, {}, {}
        """Victim → when its preemption ended, or nothing was held any more for whom it was to go; (namespace, name) → budget; PriorityClass → value."""
        super().__init__(*args, **more)

    # -- facts ---------------------------------------------------------------------------------------------------------

    def cluster_budget_observed(self, event):
        key = event["namespace"], event["name"]
        self.budgets[key] = event
        self.known_at["budget", event["namespace"]] = self.seq

    def cluster_budget_gone(self, event):
        self.budgets.pop((event["namespace"], event["name"]), None)
        self.known_at["budget", event["namespace"]] = self.seq

    def cluster_priority_class_observed(self, event):
        self.classes[event["name"]] = event.get("value", 0)
        self.known_at["class", event["name"]] = self.seq

    def cluster_priority_class_gone(self, event):
        self.classes.pop(event["name"], None)
        self.known_at["class", event["name"]] = self.seq

    # -- for somebody --------------------------------------------------------------------------------------------------

    def session_preempted(self, event):
        victim, by = event["pod"], event["by"]
        pod, preemptor = self.pods.get(victim), self.pods.get(by)
        if pod is not None and self.known(victim):
            self.judge_protected(pod, f"pod {pod['name']} is to go for {preemptor['name'] if preemptor else by}")
            self.judge_budget(pod)
            if preemptor is not None and event["action"] == "preempt" and self.known(by):
                self.judge_priority(pod, preemptor)
        super().session_preempted(event)
        if pod is not None and self.known(victim):
            self.judge_minimum(pod, f"pod {pod['name']} is to go for {by}", self.placed)

    def session_preemption_ended(self, event):
        self.gone_for[event["pod"]] = self.at
        super().session_preemption_ended(event)

    def judge_priority(self, pod, preemptor):
        """Within a queue nobody preempts from below, whichever plugins a tier has and whatever their order says: shares choose among equals.
        Where a gang has a class of its own, that counts."""
        mine, theirs = (self.importance(p) for p in (pod, preemptor))
        if mine is not None and theirs is not None and mine > theirs:
            self.tell("protected", f"pod {pod['name']} of priority {mine} is to go for {preemptor['name']} of priority {theirs}: nobody preempts from below")

    def importance(self, pod):
        """Of the pod's gang, or its own; None where that cannot be said for certain."""
        group = group_of(pod)
        said = (self.groups.get(group) or {}).get("priority_class")
        if not said:
            return self.shapes[pod["shape"]].get("priority", 0)
        return self.classes.get(said) if self.known(group, ("class", said)) else None

    def judge_protected(self, pod, what):
        if pod.get("phase") in OVER:
            return
        if why := protection(pod, self.shapes[pod["shape"]].get("priority", 0)):
            self.tell("protected", f"{what}, but {why}")
        elif pod.get("static"):
            self.tell("protected", f"{what}, but it is its kubelet's own")

    def judge_budget(self, pod):
        if not self.known(("budget", pod["namespace"])) or not pod.get("ready"):
            return
        for (namespace, name), budget in self.budgets.items():
            if namespace == pod["namespace"] and budget.get("allowed", 0) == 0 and about(budget, pod):
                self.tell("budget", f"pod {pod['name']} is to go, but its budget {name} allows nothing")

    # -- migrations ----------------------------------------------------------------------------------------------------

    def migration_evicting(self, event):
        super().migration_evicting(event)
        migration = self.migrations.get(event["migration"])
        if migration:
            migration["goes"] = event["deadline"]
            self.judge_eviction_budgets(migration)
        pod = self.pods.get(migration["pod"]) if migration else None
        if pod is None or not self.known(migration["pod"]) or pod.get("deleting") or pod.get("phase") in OVER:
            return
        what = f"migration {event['migration']} evicts {pod['name']}"
        self.judge_protected(pod, what)
        self.judge_word(event["migration"], pod, what)
        if (pod.get("owner") or {}).get("kind") == "DaemonSet":
            self.tell("protected", f"{what}, which a DaemonSet makes again on the same node")
        if migration.get("target"):
            self.judge_place(migration, pod, what)
        self.judge_minimum(pod, what)
        self.judge_pace(migration, what)
        if migration["whole"] and not migration.get("follows"):
            self.judge_whole(migration, what)

    def judge_eviction_budgets(self, migration):
        """By when the evictions were decided (each has as long to be accepted); those that were given up count no more."""
        for budget in self.policy.get("budgets", ()):
            same = sum(
                abs(one["goes"] - migration["goes"]) < budget["within"]
                for one in self.migrations.values()
                if one.get("goes") and not (one["step"] == "failed" and "evicted" not in one["been"])
                and (not budget.get("per") or one["namespace"] == migration["namespace"])
            )  # fmt: skip
            if same > budget["evictions"]:
                self.tell("eviction-budget", f"migration {migration['migration']} is eviction {same} within {budget['within']} ms; budget {budget['name']} allows {budget['evictions']}")

    def migration_consent_asked(self, event):
        self.asked_for_word[event["migration"]] = event["deadline"]

    def judge_word(self, id, pod, what):
        """Nobody goes without the word of a workload that is to be asked, unless its silence is assent."""
        notes = pod.get("annotations") or {}
        if not notes.get("restow.dev/before-move"):
            return
        if id not in self.asked_for_word:
            self.tell("word-first", f"{what}, and its workload was not asked")
        elif notes.get("restow.dev/move-acknowledged") != id and notes.get("restow.dev/on-silence") != "evict":
            self.tell("word-first", f"{what}, and its workload has not agreed")

    def judge_whole(self, migration, what):
        """All of its node have their places, but for those that wait for others to land; and nobody of them is known to stay."""
        for other in self.migrations.values():
            if other is migration or (other["plan"], other["source"]) != (migration["plan"], migration["source"]) or other.get("follows"):
                continue
            pod, step = self.pods.get(other["pod"]), other["step"]
            _key, hold = self.hold_of(other)
            if step == "failed" and self.ended_with[other["migration"]] <= self.read and "evicted" not in other["been"]:
                stays = pod is not None and self.known(other["pod"]) and pod.get("node") == other["source"] and not pod.get("deleting")
                if stays and pod.get("phase") not in OVER:
                    self.tell("whole-nodes", f"{what}, but {pod['name']} stays on {other['source']} ({other.get('why')})")
            elif step in ("planned", "holding") and not other.get("after") and (
                hold is None or (hold.state != "held" and max(hold.moved, hold.left) <= self.read)
            ):
                self.tell("whole-nodes", f"{what}, but migration {other['migration']} of the same node has no place yet")

    def hold_of(self, migration):
        """(place, hold) of a migration, None where there never was one."""
        found = [(key, h) for key, h in self.holds.items() if self.reservations[key[0]]["fact"].get("migration") == migration["migration"]]
        return found[-1] if found else (None, None)

    def judge_place(self, migration, pod, what):
        """There is a place now, it is whole, its node takes the pod, and it is of the pod's size (RULES G-12)."""
        _key, hold = self.hold_of(migration)
        target = migration["target"]
        if hold is None:
            return self.tell("place-first", f"{what}, but nothing was ever held on {target}")
        if hold.state != "held" or hold.lost:
            if max(hold.moved, hold.lost, hold.left) <= self.read:
                self.tell("place-first", f"{what}, but its place on {target} is {'lost' if hold.lost else hold.state}")
            return None
        if self.known(("node", target)) and (why := self.closed(target, self.shapes[pod["shape"]])):
            self.tell("place-first", f"{what} towards {target}, but {why}")
        asked, held = self.shapes[pod["shape"]], self.shapes[hold.shape]
        less = {w: (a, held["requests"].get(w, 0)) for w, a in asked["requests"].items() if a > held["requests"].get(w, 0)}
        if less or (asked.get("devices") or None) != (held.get("devices") or None):
            self.tell("place-first", f"{what}, which asks for {less or asked.get('devices')}, more than is held on {target}")
        return None

    def judge_minimum(self, pod, what, placed=()):
        """Members that serve when all that go are gone. One that was too small before was not made so by us. To a scheduler those count,
        too, that it has given a node (`placed`), as Volcano counts allocated tasks."""
        group = group_of(pod)
        fact = self.groups.get(group)
        if fact is None or not self.known(group):
            return
        serving = [uid for uid, p in self.pods.items() if group_of(p) == group and (p.get("node") or uid in placed) and not p.get("deleting") and p.get("phase") not in OVER]
        away = {m["pod"] for m in self.migrations.values() if m["step"] in AWAY}
        left = [uid for uid in serving if uid not in away and uid not in self.victims]
        need = fact.get("min_member", 1)
        if need > 1 and len(serving) >= need > len(left):
            self.tell("gang-minimum", f"{what}, and gang {'/'.join(group)} has {len(left)} of {need} left")

    # -- one at a time -------------------------------------------------------------------------------------------------

    def controller(self, uid):
        """The uid of the pod's top controller, empty where it has none."""
        owner = (self.pods.get(uid) or {}).get("owner")
        return (self.workloads.get(owner["uid"]) or owner)["uid"] if owner else ""

    def judge_pace(self, migration, what):
        """Of one workload no more are away at once than is said, or else one, or a tenth, rounded down (RULES G-15)."""
        who = migration.get("of")
        said = self.policy.get("maxUnavailable", self.stated.away)
        if not who or not said:
            return
        size = sum(self.controller(uid) == who and pod.get("phase") not in OVER for uid, pod in self.pods.items())
        most = said if isinstance(said, int) else max(1, size * int(said.rstrip("%")) // 100)
        away = sum(m.get("of") == who and m["step"] in AWAY for m in self.migrations.values())
        if away > most:
            self.tell("one-at-a-time", f"{what}, and {away} of {size} pods of its workload are away; allowed: {most}")


def about(budget, pod):
    selector = budget.get("selector")
    if selector is None or selector.get("expressions"):
        return False
    labels = pod.get("labels") or {}
    return all(labels.get(k) == v for k, v in (selector.get("labels") or {}).items())
