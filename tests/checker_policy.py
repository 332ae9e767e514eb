"""What is judged of whoever gets something: owners and policies of Reservations, devices, CPUs and host ports; nothing of
`restow.domain`."""

from checker_capacity import GPU, cores_of
from checker_owners import owns, unwanted


class HandOverRules:
    """One part of the judge; `checker_holds.HoldRules` says what happens."""

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
        if not devices and request["milli"] == 1000 and self.given_by_count(event.get("node"), who):
            request = {"count": 0, "milli": 0}
        right = len({d["index"] for d in devices}) == len(devices) == request["count"] and all(d["milli"] == request["milli"] for d in devices)
        by_count = devices and not isinstance(who, tuple) and self.raised.get(event["node"], 0) <= self.read
        if by_count and self.given_by_count(event["node"], who):
            self.say(self.seq, f"{who} gets other devices than by count on {event['node']}, where nobody says who has which: {list(devices)}")
        if not right and not event.get("waiting"):
            self.say(self.seq, f"{who} gets other devices than it asks for: {list(devices)}")
        if len(set(cores)) != len(cores) or (len(cores) != count and not event.get("waiting")):
            self.say(self.seq, f"{who} gets other CPUs than it asks for: {list(cores)}")

    def given_by_count(self, node, who):
        """Whether somebody else on the node has devices, and nobody says which: then the node's device plugin chooses. So it is with a placeholder, whose
        slot's devices are named."""
        bodies = (self.pods.get(uid) for pods in self.bodies.values() for uid in pods)
        if any(pod is not None and pod.get("node") == node and self.shapes[pod["shape"]].get("devices") for pod in bodies):
            return True
        return any(name == node and key != who and has["?"] for key, (name, has) in self.charges.items() if not isinstance(key, tuple))

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
            if key == who or key in self.lent.get(who, ()) or not self.clash(mine, self.shapes[hold.shape]):
                continue
            if max(hold.moved, self.raised.get(node, 0)) > self.read:
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
