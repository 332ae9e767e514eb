"""Whether pods certainly fit, by brute force over what the API says and what the log holds. Whatever is not simple is not claimed:
affinity between pods, spread, volumes, CPUs of their own, NUMA zones, Reservations by name, windows."""

from collections import Counter

from simulation.judging.amounts import GPUS, WHOLE, amounts, gpus, requests, shares
from simulation.judging.nodes import why_not

NEAR = "nvidia.com/gpu"
GPU = "restow.dev/gpu-milli"
OWN_WAYS = (
    "scheduling.koordinator.sh/reservation-affinity",
    "scheduling.koordinator.sh/exact-match-reservation",
    "scheduling.koordinator.sh/resource-spec",
    "scheduling.volcano.sh/target-reservation",
    "alibabacloud.com/gpu-card-model",
)


def simple(pod):
    """Whether nothing but capacity, ports and the node's own rules decides where it may run."""
    spec, meta = pod["spec"], pod["metadata"]
    affinity = spec.get("affinity") or {}
    volumes = [v for v in spec.get("volumes") or () if not {"emptyDir", "projected", "configMap", "secret", "downwardAPI"} & set(v)]
    hard = [s for s in spec.get("topologySpreadConstraints") or () if s.get("whenUnsatisfiable") != "ScheduleAnyway"]
    notes = meta.get("annotations") or {}
    labels = meta.get("labels") or {}
    return not (
        volumes or hard or spec.get("resourceClaims") or spec.get("schedulingGates") or any(name in notes for name in OWN_WAYS)
        or (affinity.get("podAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        or (affinity.get("podAntiAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        or labels.get("koordinator.sh/qosClass") in ("LSR", "LSE")
    )  # fmt: skip


def ports(spec):
    return [
        (p["hostPort"], p.get("protocol", "TCP"), p.get("hostIP") or "0.0.0.0")
        for c in spec.get("containers") or ()
        for p in c.get("ports") or ()
        if p.get("hostPort")
    ]


def clash(mine, others):
    return any(a[:2] == b[:2] and (a[2] == b[2] or "0.0.0.0" in (a[2], b[2])) for a in mine for b in others)


class Capacity:
    """What is free on a node for anybody; None where that cannot be said for certain."""

    def __init__(self, node, pods, log):
        self.node, self.name = node, node["metadata"]["name"]
        self.free = amounts((node.get("status") or {}).get("allocatable"))
        devices, self.ports = self.free.pop(NEAR, 0), []
        self.devices = [WHOLE] * devices
        self.unsaid = 0
        """Devices that somebody has or has a share of, and nobody says which."""
        self.certain = self.name not in log.device_objects and not (log.numa.get(self.name)) and self.name not in {n for n, _ in log.reserved.values()}
        for pod in pods:
            asked = requests(pod)
            self.take(asked, shares(pod))
            if gpus(asked) and not shares(pod):
                self.unsaid += gpus(asked)[0]
            elif gpus(asked) and sum(shares(pod).values()) != gpus(asked)[0] * gpus(asked)[1]:
                self.certain = False
            self.ports += ports(pod["spec"])
        self.keep(pods, log)

    def take(self, asked, given):
        for what, amount in asked.items():
            if what not in GPUS:
                self.free[what] -= amount
        for minor, milli in given.items():
            if minor < len(self.devices):
                self.devices[minor] -= milli

    def keep(self, pods, log):
        """What the log keeps for others: holds, nominations, pods that are on their way."""
        there = {pod["metadata"]["uid"] for pod in pods}
        kept = [has for key, (node, has) in log.charges.items() if node == self.name and key not in there]
        kept += [n["has"] for n in log.nominations.values() if n["node"] == self.name]
        for has in kept:
            for what, amount in has.items():
                if isinstance(what, int) and what < len(self.devices):
                    self.devices[what] -= amount
                elif isinstance(what, str) and what != GPU:
                    self.free[what] -= amount
        if any(h.node == self.name and log.shapes[h.shape].get("host_ports") for h in log.holds.values() if h.state in ("held", "waiting")):
            self.certain = False

    def fits(self, pod, asked):
        if not self.certain or why_not(pod, self.node) or clash(ports(pod["spec"]), self.ports):
            return None
        if any(amount > self.free[what] for what, amount in asked.items() if what not in GPUS and amount):
            return None
        wanted = gpus(asked)
        if wanted is None:
            return None if any(asked[name] for name in GPUS) else Counter()
        if self.unsaid:
            # By count: of those that nobody has a named part of, some are theirs; where a share would be taken from one of them it is not certain.
            entire = [minor for minor, free in enumerate(self.devices) if free == WHOLE]
            enough = wanted[1] == WHOLE and len(entire) - self.unsaid >= wanted[0]
            return Counter(dict.fromkeys(entire[: wanted[0]], WHOLE)) if enough else None
        able = sorted((free, minor) for minor, free in enumerate(self.devices) if free >= wanted[1])
        if len(able) < wanted[0] or (wanted[1] == WHOLE and any(free != WHOLE for free, _ in able[: wanted[0]])):
            return None
        return Counter({minor: wanted[1] for _, minor in able[: wanted[0]]})

    def add(self, pod, asked, given):
        self.take(asked, given)
        self.ports += ports(pod["spec"])


def place_all(pods, slots):
    """pod's uid → node where all of them fit at once, tried largest first; None where this does not find a way."""
    found = {}
    for pod in sorted(pods, key=lambda p: sorted(requests(p).items()), reverse=True):
        asked = requests(pod)
        for capacity in slots:
            if (given := capacity.fits(pod, asked)) is not None:
                capacity.add(pod, asked, given)
                found[pod["metadata"]["uid"]] = capacity.name
                break
        else:
            return None
    return found
