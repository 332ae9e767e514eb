"""How the stock scheduler gives devices to claims: by class, count, selectors and shared counters.

As kube-scheduler's DynamicResources plugin, for requests of exact counts. There is no CEL: of selectors those are understood that are comparisons of the
driver or of an attribute, joined by `&&` (`_TERM`). Whoever asks for anything else waits, and is told so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from restow.kubesim.amounts import parse_quantity
from restow.kubesim.errors import ApiError
from restow.kubesim.objects import Obj, dig
from restow.kubesim.placement import any_term_matches, untolerated
from restow.kubesim.podstate import is_deleting, key_of, uid_of
from restow.kubesim.resourceclaims import PROTECTION, names_of
from restow.kubesim.resources import DEVICECLASSES, NODES, RESOURCECLAIMS, RESOURCESLICES
from restow.kubesim.runtime import write_status
from restow.kubesim.store import Store

CANNOT, ELSEWHERE = "cannot allocate all claims", "resourceclaim not available on the node"
_TEXT = r"(?:'([^'\\]*)'|\"([^\"\\]*)\")"
_TERM = re.compile(rf"\s*(?:device\.driver\s*==\s*{_TEXT}|device\.attributes\[{_TEXT}\]\.(\w+)(?:\s*==\s*(?:{_TEXT}|(\d+|true|false)))?)\s*")

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass
class Device:
    id: DeviceId
    attributes: dict[str, Any]
    uses: Counter[tuple[str, str, str, str]]
    """Of counters of its pool, by driver, pool, set and name."""
    local: bool
    taints: list[Obj]


@dataclass
class Wanted:
    """What one request of a claim asks for."""

    claim: str
    request: str
    count: int
    selectors: list[str] = field(default_factory=list)
    tolerations: list[Obj] = field(default_factory=list)


class Devices:
    """The devices for a pod's claims, as they are now."""

    def __init__(self, store: Store, pod: Obj):
        self._store, self._pod = store, pod
        self._claims: dict[str, Obj] = {}
        self._wanted: list[Wanted] = []
        self._free: tuple[Counter[Any], list[tuple[Device, Obj]]] | None = None
        self._why = self._read() or self._understood()

    def _read(self) -> str:
        """Why the pod waits, whatever nodes there are."""
        names, namespace = names_of(self._pod), key_of(self._pod)[0]
        for asked in self._pod["spec"]["resourceClaims"]:
            name = names.get(asked["name"], "")
            claim = self._store.find(RESOURCECLAIMS, namespace, name) if name else None
            if claim is None:
                return f'resourceclaim "{name}" not found' if name else "waiting for resourceclaims to be created"
            if is_deleting(claim):
                return f'resourceclaim "{name}" is being deleted'
            if "resourceClaimTemplateName" in asked and not any(one.get("controller") and one["uid"] == uid_of(self._pod) for one in claim["metadata"].get("ownerReferences") or ()):
                return f"ResourceClaim {namespace}/{name} was not created for Pod {'/'.join(key_of(self._pod))} (Pod is not owner)"
            self._claims[name] = claim
        return ""

    def _understood(self) -> str:
        for name, claim in self._claims.items():
            if dig(claim, "status", "allocation") is not None:
                continue
            devices = claim["spec"]["devices"]
            if devices.get("constraints"):
                return f'resourceclaim "{name}" has constraints, which kubesim does not know'
            for request in devices.get("requests") or ():
                exactly = request.get("exactly") or {}
                if not exactly or exactly.get("allocationMode") == "All" or exactly.get("adminAccess") or exactly.get("capacity"):
                    return f'request "{request["name"]}" of resourceclaim "{name}" is not for an exact count of devices, and kubesim knows no others'
                of = self._store.find(DEVICECLASSES, "", exactly.get("deviceClassName", ""))
                if of is None:
                    return f'request {request["name"]}: device class {exactly.get("deviceClassName", "")} does not exist'
                said = [*(of["spec"].get("selectors") or ()), *(exactly.get("selectors") or ())]
                found = [dig(one, "cel", "expression", default="") for one in said]
                if bad := [one for one in found if _terms(one) is None]:
                    return f"kubesim evaluates no CEL but comparisons of driver and attributes: {bad[0]}"
                self._wanted.append(Wanted(name, request["name"], exactly.get("count") or 1, found, exactly.get("tolerations") or []))
        return ""

    def refusal(self, node: Obj) -> str:
        """Why the node does not do; empty where it does."""
        if self._why:
            return self._why
        for claim in self._claims.values():
            selector = dig(claim, "status", "allocation", "nodeSelector")
            if selector is not None and not any_term_matches(selector["nodeSelectorTerms"], node):
                return ELSEWHERE
        return CANNOT if self.choose(node) is None else ""

    def choose(self, node: Obj) -> list[tuple[Wanted, Device]] | None:
        """A device for each that is wanted."""
        places = [one for one in self._wanted for _ in range(one.count)]
        if not places:
            return []
        if self._free is None:
            self._free = _free(self._store)
        left, devices = self._free
        return _pick(places, [device for device, where in devices if _is_here(where, node)], left)

    def allocate(self, node: Obj) -> bool:
        chosen = self.choose(node)
        if self._why or chosen is None:
            return False
        user = {"resource": "pods", "name": key_of(self._pod)[1], "uid": uid_of(self._pod)}
        for name, claim in self._claims.items():
            mine = [(wanted, device) for wanted, device in chosen if wanted.claim == name]
            status = dict(claim.get("status") or {})
            if mine:
                claim = self._protected(claim)
                status["allocation"] = _allocation(mine, node)
            users = status.get("reservedFor") or []
            status["reservedFor"] = users if any(one["uid"] == user["uid"] for one in users) else [*users, user]
            write_status(self._store, RESOURCECLAIMS, claim, status)
        return True

    def _protected(self, claim: Obj) -> Obj:
        before = claim["metadata"].get("finalizers") or []
        if PROTECTION in before:
            return claim
        return self._store.update(RESOURCECLAIMS, {**claim, "metadata": {**claim["metadata"], "finalizers": [*before, PROTECTION]}})


def allocate(store: Store, pod: Obj, node: str) -> bool:
    """Give a pod its devices on the node that was chosen for it. Whether it has them; nothing is written where it has not, or somebody else writes."""
    if not pod["spec"].get("resourceClaims"):
        return True
    there = store.find(NODES, "", node)
    try:
        return there is not None and Devices(store, pod).allocate(there)
    except ApiError as error:
        if error.code not in (404, 409):
            raise
        return False


def _allocation(chosen: list[tuple[Wanted, Device]], node: Obj) -> Obj:
    results = [{"request": wanted.request, "driver": device.id[0], "pool": device.id[1], "device": device.id[2]} for wanted, device in chosen]
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node["metadata"]["name"]]}]}
    local = any(device.local for _, device in chosen)
    return {"devices": {"results": results}, **({"nodeSelector": {"nodeSelectorTerms": [here]}} if local else {})}


def _pick(places: list[Wanted], devices: list[Device], left: Counter[Any]) -> list[tuple[Wanted, Device]] | None:
    """The first in order that do, each by trying."""
    if not places:
        return []
    first, *others = places
    for i, device in enumerate(devices):
        if any(left[counter] < amount for counter, amount in device.uses.items()) or not all(_meets(device, one) for one in first.selectors):
            continue
        if untolerated({"tolerations": first.tolerations}, {"spec": {"taints": device.taints}}, ("NoSchedule", "NoExecute")) is not None:
            continue
        # Who asks for the same once more looks only at what comes after this one.
        rest = devices[i + 1 :] if others and others[0] is first else devices[:i] + devices[i + 1 :]
        found = _pick(others, rest, left - device.uses if device.uses else left)
        if found is not None:
            return [(first, device), *found]
    return None


def _free(store: Store) -> tuple[Counter[Any], list[tuple[Device, Obj]]]:
    """What is left of all counters, and the free devices of pools that are whole, each with what says where it is."""
    pools: dict[tuple[str, str], list[Obj]] = {}
    for said in store.list(RESOURCESLICES):
        pools.setdefault((said["spec"]["driver"], said["spec"]["pool"]["name"]), []).append(said["spec"])
    left: Counter[Any] = Counter()
    found: list[tuple[Device, Obj]] = []
    taken = {id for claim in store.list(RESOURCECLAIMS) for id in _results(claim)}
    for pool, slices in pools.items():
        newest = max(one["pool"].get("generation", 0) for one in slices)
        current = [one for one in slices if one["pool"].get("generation", 0) == newest]
        if len(current) < current[0]["pool"]["resourceSliceCount"]:
            continue
        for one in current:
            left.update(_counters(pool, one.get("sharedCounters") or (), "name"))
            for device in one.get("devices") or ():
                where = device if one.get("perDeviceNodeSelection") else one
                made = Device((*pool, device["name"]), device.get("attributes") or {}, _counters(pool, device.get("consumesCounters") or (), "counterSet"), not where.get("allNodes"), device.get("taints") or [])
                if made.id in taken:
                    left.subtract(made.uses)
                else:
                    found.append((made, where))
    return left, found


def _counters(pool: tuple[str, str], said: Iterable[Obj], field: str) -> Counter[Any]:
    return Counter({(*pool, of[field], name): parse_quantity(str(amount["value"])) for of in said for name, amount in (of.get("counters") or {}).items()})


def _is_here(where: Obj, node: Obj) -> bool:
    if where.get("allNodes"):
        return True
    if where.get("nodeSelector") is not None:
        return any_term_matches(where["nodeSelector"]["nodeSelectorTerms"], node)
    return where.get("nodeName") == node["metadata"]["name"]


def _results(claim: Obj) -> Iterator[DeviceId]:
    for one in dig(claim, "status", "allocation", "devices", "results", default=()):
        if not one.get("adminAccess"):
            yield one["driver"], one["pool"], one["device"]


def _terms(expression: str) -> list[re.Match[str]] | None:
    """The comparisons that an expression is made of; None where it is anything else."""
    found = [_TERM.fullmatch(part) for part in expression.split("&&")]
    return None if any(one is None for one in found) else found  # type: ignore[return-value]


def _meets(device: Device, expression: str) -> bool:
    return all(_is_so(device, *term.groups()) for term in _terms(expression) or ())


def _is_so(device: Device, *said: str | None) -> bool:
    """`said`: the groups of `_TERM`; of each text two, by its quotes."""
    driver, domain, text = (one if one is not None else other for one, other in ((said[0], said[1]), (said[2], said[3]), (said[5], said[6])))
    name, word = said[4], said[7]
    if name is None:
        return device.id[0] == driver
    typed = device.attributes.get(f"{domain}/{name}") or (device.attributes.get(name) if domain == device.id[0] else None) or {}
    if text is not None:
        return bool(typed.get("string") == text)
    if word is not None and word.isdigit():
        return bool(typed.get("int") == int(word))
    return "bool" in typed and typed["bool"] == (word != "false")
