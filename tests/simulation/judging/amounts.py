"""What pods ask for and nodes have, read from API objects: cpu in thousandths, all else in whole units, rounded up."""

import json
import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache

WHOLE = 1000
DEVICES = "scheduling.koordinator.sh/device-allocated"
PERCENT = ("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
MILLI, COUNT, NVIDIA = "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count", "nvidia.com/gpu"
GPUS = frozenset({*PERCENT, MILLI, COUNT, NVIDIA})
"""Four ways to ask for the same devices (RULES 004-5)."""
SUFFIX = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
SUFFIX |= {unit: Fraction(1000) ** n for n, unit in enumerate("kMGTPE", 1)}
SUFFIX |= {f"{unit}i": Fraction(1024) ** n for n, unit in enumerate("KMGTPE", 1)}


def amount(name, said):
    return _amount(name, str(said))


@lru_cache(maxsize=4096)
def _amount(name, text):
    text = text.strip()
    digits = text.rstrip("numkKMGTPEi") if not text[-1:].isdigit() else text
    value = Fraction(digits) * SUFFIX[text[len(digits) :]]
    return math.ceil(value * 1000 if name == "cpu" else value)


def amounts(said):
    return Counter({name: amount(name, value) for name, value in (said or {}).items()})


def requests(pod):
    """As the scheduler counts them: containers and sidecars together, or the largest init container beside the sidecars before
    it; overhead on top; one of `pods`."""
    spec, sidecars, most = pod["spec"], Counter(), Counter()
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
            asked = sidecars
        else:
            asked = asked + sidecars
        most |= asked
    found = sidecars.copy()
    for container in spec.get("containers") or ():
        found += _asked(container)
    found |= most
    found += amounts(spec.get("overhead"))
    found["pods"] = 1
    return found


def _asked(container):
    said = container.get("resources") or {}
    return amounts({**(said.get("limits") or {}), **(said.get("requests") or {})})


def gpus(asked):
    """(how many devices, thousandths of each), None where no GPU is asked for or what is asked makes no sense."""
    if asked.get(NVIDIA):
        return asked[NVIDIA], WHOLE
    percent = max(asked.get(name, 0) for name in PERCENT)
    if percent:
        return (1, percent * 10) if percent < 100 else (percent // 100, WHOLE) if percent % 100 == 0 else None
    milli, count = asked.get(MILLI, 0), asked.get(COUNT, 0)
    return ((count or 1), (milli or WHOLE)) if milli or count else None


def shares(pod):
    """device → thousandths, as the pod's annotation says; empty where it says nothing."""
    text = (pod["metadata"].get("annotations") or {}).get(DEVICES)
    found = Counter()
    for entry in (json.loads(text).get("gpu") or ()) if text else ():
        said = {name: int(str(value)) for name, value in (entry.get("resources") or {}).items() if name in GPUS}
        exact = said.get(MILLI)
        percents = [value for name, value in said.items() if name in PERCENT]
        found[entry["minor"]] += exact if exact is not None else 10 * max(percents) if percents else WHOLE
    return found
