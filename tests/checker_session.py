"""What the judge of logs knows of gangs, queues, preemption and starving jobs: in plain Python, nothing of `restow.domain`.

Rules: what a nomination holds counts as promised; a commit leaves no half gang; a victim has somebody who waits for its capacity;
nobody else comes to a node that is reserved for a starving job's task; placements leave queues within their capability.
"""

import json
from collections import Counter, defaultdict

from checker_capacity import GPU, cores_of, lacking, without

GROUP_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
QUEUE_NAMES = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
TASK_NAME = "volcano.sh/task-spec"
OVER = ("Succeeded", "Failed")


class SessionRules:
    """One half of the judge: `checker.Judge` has the books (`used`, `charges`, `pods`, `placed`) and says what is broken."""

    def __init__(self):
        self.groups, self.queues = {}, {}
        self.nominations = {}
        """pod → node, what it wants, what it has, its victims."""
        self.victims, self.evicted = {}, set()
        """pod → for whom it is to go; and those that have begun to go as somebody's victims."""
        self.reserved = {}
        """pod → (node, since which sequence)."""
        self.lowered = {}
        """Nodes on which something may have come free in this event, in order."""
        self.known_at = defaultdict(int)
        """Sequence of the last fact about a pod, a group, a queue."""
        self.placed_now, self.victims_now, self.queues_now = {}, {}, {}
        self.gangs, self.limits, self.ours = True, True, ("restow",)

    # -- configuration -----------------------------------------------------------------------------------------------

    def session_configured(self, event):
        said = json.loads(event["text"])
        plugins = {p["name"]: p.get("enabled", {}) for tier in said.get("tiers", ()) for p in tier}
        self.ours = tuple(said.get("schedulerNames", self.ours))
        self.gangs = "gang" in plugins and plugins["gang"].get("enableJobReady", True)
        self.limits = any(n in plugins and plugins[n].get("enableAllocatable", True) for n in ("proportion", "capacity"))

    # -- facts -------------------------------------------------------------------------------------------------------

    def cluster_pod_group_observed(self, event):
        key = event["namespace"], event["name"]
        self.groups[key] = event
        self.known_at[key] = self.seq

    def cluster_pod_group_gone(self, event):
        key = event["namespace"], event["name"]
        self.groups.pop(key, None)
        self.known_at[key] = self.seq

    def cluster_queue_observed(self, event):
        self.queues[event["name"]] = event
        self.known_at["queue"] = self.seq

    def cluster_queue_gone(self, event):
        self.queues.pop(event["name"], None)
        self.known_at["queue"] = self.seq

    def heard_of(self, uid, pod):
        """A fact about a pod: what is held for it ends when it does not wait any more."""
        self.known_at[uid] = self.seq
        for known in (pod, self.pods.get(uid)):
            if known is not None and (group := group_of(known)) is not None:
                self.known_at[group] = self.seq
        waits = pod is not None and not pod.get("node") and not pod.get("deleting") and pod.get("phase", "Pending") == "Pending"
        if not waits or pod.get("gated"):
            self.denominate(uid)
            self.reserved.pop(uid, None)
        if pod is None or pod.get("deleting"):
            if uid in self.victims:
                self.evicted.add(uid)
            if pod is None:
                self.victims.pop(uid, None)

    def node_is_gone(self, name):
        for uid in [uid for uid, n in self.nominations.items() if n["node"] == name]:
            self.denominate(uid)
        for uid in [uid for uid, (node, _) in self.reserved.items() if node == name]:
            del self.reserved[uid]

    # -- nominations -------------------------------------------------------------------------------------------------

    def session_nominated(self, event):
        uid, pod = event["pod"], self.pods.get(event["pod"])
        self.denominate(uid)
        waits = pod is not None and not (pod.get("node") or pod.get("deleting")) and pod.get("phase", "Pending") == "Pending"
        if not waits or uid in self.placed or event["node"] not in self.nodes:
            if self.known_at[uid] <= self.read and self.raised.get(event["node"], 0) <= self.read:
                self.say(self.seq, f"room on {event['node']} is held for pod {uid}, which does not wait for any")
            for victim in event.get("victims", ()):
                if self.victims.get(victim) == uid:
                    del self.victims[victim]
            return
        wanted = self.amounts(pod["shape"], event.get("devices", ()), event.get("cores", ()))
        for key in self.places_on[event["node"]]:
            # Those of a hold whose hand-over was void are not for it.
            wanted = without(wanted, dict.fromkeys(cores_of(self.holds[key].has), 1))
        self.nominations[uid] = {"node": event["node"], "wanted": wanted, "has": Counter(), "victims": event.get("victims", ())}
        self.lowered[event["node"]] = None

    def session_nomination_ended(self, event):
        if event["pod"] not in self.nominations and self.known_at[event["pod"]] <= self.read:
            self.say(self.seq, f"what is held for pod {event['pod']} ends, but nothing is held for it")
        self.denominate(event["pod"])

    def denominate(self, uid):
        """Nothing is held for it any more, and who was to go for it stays."""
        nomination = self.nominations.pop(uid, None)
        if nomination is None:
            return
        self.used[nomination["node"]].subtract(nomination["has"])
        self.lowered[nomination["node"]] = None
        for victim in nomination["victims"]:
            if self.victims.get(victim) == uid:
                del self.victims[victim]

    def top_up(self):
        """After an event: what is free on a node is held for those who are nominated on it, then for slots that wait there,
        first come, first served."""
        nodes = list(self.lowered)
        self.lowered.clear()
        for name in nodes:
            if name not in self.nodes:
                continue
            for nomination in self.nominations.values():
                if nomination["node"] == name:
                    before = Counter(nomination["has"])
                    self.fill(name, nomination["wanted"], nomination["has"])
                    self.used[name].update(nomination["has"] - before)
            self.top_up_holds(name)

    def fill(self, name, wanted, has):
        """More of what is wanted: as much as is free, of CPUs what is named. Of all devices together so much stays as its own devices lack."""
        capacity = self.capacity(self.nodes[name])
        for what, amount in sorted(wanted.items(), key=lambda item: item[0] == GPU):
            free = max(capacity.get(what, 0) - self.used[name][what], 0)
            missing = amount - has[what] - (lacking(wanted, has) if what == GPU else 0)
            if what == "?" or missing <= 0:
                continue
            has[what] += missing if isinstance(what, tuple) else min(missing, free)

    # -- victims -----------------------------------------------------------------------------------------------------

    def session_preempted(self, event):
        if event["pod"] in self.charges:
            self.victims[event["pod"]] = event["by"]
            self.victims_now[event["pod"]] = event["by"]

    def session_preemption_ended(self, event):
        self.victims.pop(event["pod"], None)

    def goes_for_somebody(self, uid):
        """Whether its end is a preemption's doing."""
        return uid in self.evicted or (uid in self.victims and self.victims[uid] in self.nominations)

    # -- starving jobs -----------------------------------------------------------------------------------------------

    def session_task_reserved(self, event):
        if event["node"] in self.nodes and event["pod"] not in self.placed:
            self.reserved[event["pod"]] = event["node"], self.seq

    def session_task_unreserved(self, event):
        self.reserved.pop(event["pod"], None)

    def comes_to(self, node, shape, who, uid=None):
        """Somebody is placed on a node: nobody who asks for anything comes where a starving job's task waits."""
        spec = self.shapes.get(shape, {})
        modest = not spec.get("devices") and not any(v for k, v in spec.get("requests", {}).items() if k != "pods")
        own = uid is not None and (self.reserved.get(uid, ("",))[0] == node or self.nominations.get(uid, {}).get("node") == node)
        for pod, (name, since) in self.reserved.items():
            if name == node and since <= self.read and not modest and not own:
                self.say(self.seq, f"{who} comes to {node}, which is reserved for pod {pod}")

    # -- at the end of a commit --------------------------------------------------------------------------------------

    def was_placed(self, uid):
        pod = self.pods[uid]
        if (group := group_of(pod)) is not None:
            self.placed_now[group] = None
        self.queues_now[self.queue_of(pod)] = uid

    def commit_ends(self):
        for uid, by in self.victims_now.items():
            if uid in self.victims and by not in self.nominations:
                self.say(self.seq, f"pod {uid} is to go for {by}, which nothing is held for")
        for group in self.placed_now if self.gangs else ():
            self.judge_gang(group)
        for queue in self.queues_now if self.limits else ():
            self.judge_queue(queue)
        for kept in (self.placed_now, self.victims_now, self.queues_now):
            kept.clear()

    def judge_gang(self, group):
        fact = self.groups.get(group)
        if fact is None or self.known_at[group] > self.read:
            return
        have, tasks = 0, Counter()
        for uid, pod in self.pods.items():
            if group_of(pod) == group and self.counts(uid, pod):
                have += 1
                tasks[pod.get("annotations", {}).get(TASK_NAME, "")] += 1
        name = "/".join(group)
        if have < (need := fact.get("min_member", 1)):
            self.say(self.seq, f"gang {name} needs {need} pods together, and has {have}")
        for task, need in fact.get("min_task_member", {}).items():
            if tasks[task] < need:
                self.say(self.seq, f"gang {name} needs {need} pods of task {task} together, and has {tasks[task]}")

    def counts(self, uid, pod):
        phase = pod.get("phase", "Pending")
        if phase == "Succeeded":
            return True
        return phase != "Failed" and not pod.get("deleting") and bool(pod.get("node") or uid in self.placed)

    def judge_queue(self, queue):
        """Only of what was placed: facts may lead to more, and nobody is evicted for that alone."""
        if self.known_at["queue"] > self.read or any(self.known_at[u] > self.read for u in self.charges if isinstance(u, str)):
            return
        above, path = queue, []
        while above and above not in path:
            path.append(above)
            above = self.queues.get(above, {}).get("parent", "")
        for name in path:
            capability = self.queues.get(name, {}).get("capability", {})
            used = self.usage(name) if capability else {}
            asked = self.shapes[self.pods[self.queues_now[queue]]["shape"]]["requests"]
            for what, most in capability.items():
                if asked.get(what) and used[what] > most:
                    self.say(self.seq, f"queue {name} may use {most} of {what}, and uses {used[what]}")

    def usage(self, queue):
        """Of a queue and those below it: terminating pods and victims do not count."""
        used = Counter()
        for key, (_, amounts) in self.charges.items():
            if isinstance(key, str):
                pod = self.pods[key]
                if pod.get("deleting") or key in self.victims or self.shapes[pod["shape"]].get("scheduler") not in self.ours:
                    continue
                own = self.queue_of(pod)
            else:
                fact = self.reservations[key[0]]["fact"]
                own = "" if fact.get("migration") else (fact.get("spec") or {}).get("queue") or "default"
            if own and self.is_below(own, queue):
                used.update(amounts)
        return used

    def is_below(self, name, queue):
        seen = []
        while name and name not in seen:
            if name == queue:
                return True
            seen.append(name)
            name = self.queues.get(name, {}).get("parent", "")
        return False

    def queue_of(self, pod):
        fact = self.groups.get(group_of(pod))
        said = fact.get("queue", "") if fact is not None else named(pod, QUEUE_NAMES)
        return said or "default"


def named(pod, names):
    notes = pod.get("annotations") or {}
    return next((notes[name] for name in names if notes.get(name)), "")


def group_of(pod):
    name = named(pod, GROUP_NAMES)
    return (pod["namespace"], name) if name else None
