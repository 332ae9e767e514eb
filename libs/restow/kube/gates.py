"""The gate that keeps new pods back: who gets it, whether one would, and until when it stays. Each is safe to repeat and safe to be late.

    landing    lists controllers, and owners by labels, whose new pods wait
    renew      puts the end of entries off that are there
    gated      asks the API whether it would let a pod of a controller wait
    keep_gated says of one that waits until when
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from restow.contracts.times import rfc3339
from restow.contracts.values import OwnerRef
from restow.domain.beside import GATE
from restow.domain.landing_gate import said_by
from restow.domain.other_schedulers import LOG
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.client import ApiStatus, answered, path_of
from restow.kube.effects import POD, Done, Effects, Failed, Gone, PatchOutcome, PodRef, Refused, done
from restow.kube.placeholder import NAMESPACE, idle_container, restricted

LANDINGS = "/apis/restow.dev/v1/landings"


class Gated(msgspec.Struct, frozen=True):
    """A pod of this controller would get our gate now. `until`: when its entry ends, as the pod would say (ms, by the API's clock); 0 where it does not."""

    until: int = 0


class Owned(NamedTuple):
    """Whose new pods wait by their labels: those of this namespace (empty: of any) that have all of one of these sets. `until`: ms, by the API's clock."""

    namespace: str
    labels: Sequence[Mapping[str, str]]
    until: int


class NotGated(msgspec.Struct, frozen=True):
    """It would be scheduled at once: the policy is away, or has not heard of the controller yet."""


class Missing(msgspec.Struct, frozen=True):
    """These entries are not there to be renewed."""

    keys: frozenset[str]


RenewOutcome = Done | Missing | Gone | Refused | Failed
GatedOutcome = Gated | NotGated | Refused | Failed


def _said(entries: Mapping[str, int | None], owners: Mapping[str, Owned | None]) -> dict[str, dict[str, Any]]:
    """As the Landing's spec says them."""
    by_uid = {uid: None if until is None else rfc3339(until) for uid, until in entries.items()}
    by_labels = {key: None if one is None else one._asdict() | {"until": rfc3339(one.until)} for key, one in owners.items()}
    return {field: one for field, one in (("open", by_uid), ("owners", by_labels)) if one}


Operations = tuple[dict[str, Any], dict[str, Any]]


def _again(field: str, key: str, value: Any) -> Operations:
    """Of a JSON patch that is refused where the entry is not there. (Of `replace` RFC 6902 says so, too, but API servers add what that does not find.)"""
    path = f"/spec/{field}/{key.replace('~', '~0').replace('/', '~1')}"
    return {"op": "remove", "path": path}, {"op": "add", "path": path, "value": value}


class Gates(Effects):
    """Through one client. The list of a log is its Landing, an object of ours."""

    async def landing(self, log: str, entries: Mapping[str, int | None], owners: Mapping[str, Owned | None] = {}) -> PatchOutcome:
        """Makes these entries of the log's Landing so, in one write: controller's uid → until (ms, by the API's clock), and owners by what they belong to.
        None takes one off. Other entries stay. `Refused` with 404 where the CRD is not installed."""
        said = _said(entries, owners)
        listed = {field: there for field, one in said.items() if (there := {key: value for key, value in one.items() if value is not None})}

        async def attempt() -> PatchOutcome:
            try:
                await self._client.patch(f"{LANDINGS}/{log}", {"spec": said})
            except ApiStatus as status:
                if status.code != 404:
                    raise
                if listed:
                    await self._make_landing(log, listed)
            return Done()

        return await self._bounded(attempt)

    async def renew(self, log: str, entries: Mapping[str, int | None], owners: Mapping[str, Owned | None]) -> RenewOutcome:
        """The same, in one write, of entries that are there. What was taken off while this was on its way stays away, and is `Missing`; all others are renewed."""
        wanted = {key: _again(field, key, value) for field, some in _said(entries, owners).items() for key, value in some.items()}

        async def attempt() -> RenewOutcome:
            match await self._replaced(log, wanted.values()):
                case True:
                    return Done()
                case None:
                    return Missing(frozenset(wanted))
            there = await self._listed(log)
            gone = [key for key in wanted if key not in there]
            left = [key for key in wanted if key in there]
            missing = [*gone, *(await self._renewed(log, left, wanted) if left else ())]
            return Missing(frozenset(missing)) if missing else Done()

        return await self._bounded(attempt)

    async def _listed(self, log: str) -> set[str]:
        """The entries that are there, as the answer to a patch that changes nothing says: who renews may not read."""
        try:
            said = answered(_landing, await self._client.patch(f"{LANDINGS}/{log}", {}))
        except ApiStatus as status:
            if status.code == 404:
                return set()
            raise
        return {key for entries in (said.spec or {}).values() for key in entries or ()}

    async def _renewed(self, log: str, keys: list[str], wanted: Mapping[str, Operations]) -> list[str]:
        """Those that have gone since they were listed; all others are renewed. By halves, for each write is of the whole Landing: one for each entry would write a large one as many times."""
        match await self._replaced(log, [wanted[key] for key in keys]):
            case True:
                return []
            case False if len(keys) > 1:
                half = len(keys) // 2
                return [*await self._renewed(log, keys[:half], wanted), *await self._renewed(log, keys[half:], wanted)]
        return keys

    async def _replaced(self, log: str, entries: Iterable[Operations]) -> bool | None:
        """All, or none: where one of these is not there. None where there is no Landing."""
        try:
            await self._client.patch(f"{LANDINGS}/{log}", [operation for entry in entries for operation in entry], "json")
        except ApiStatus as status:
            if status.code == 404:
                return None
            if status.code == 422:
                return False
            raise
        return True

    async def _make_landing(self, log: str, spec: Mapping[str, Any]) -> None:
        metadata = {"name": log, "labels": {"app.kubernetes.io/managed-by": "restow", LOG: log}}
        body = {"apiVersion": "restow.dev/v1", "kind": "Landing", "metadata": metadata, "spec": spec}
        try:
            await self._client.create(LANDINGS, body)
        except ApiStatus as status:
            if status.code == 409:
                raise ApiStatus(0, "Raced", f"Landing {log} was made meanwhile") from status
            raise

    async def gated(self, controller: OwnerRef) -> GatedOutcome:
        """Creates a pod of this controller as a dry run: nothing is stored. Says what the API server that answers knows; another may
        know it later."""
        # The gate asks for the uid alone. Others' admission looks at owners, too: Kueue refuses a pod whose Job (ReplicaSet, StatefulSet ...) is not in its
        # namespace, and that of somebody else's workload is not ours to make pods in. So the kind is one that only we know.
        owner = {"apiVersion": "restow.dev/v1", "kind": "Landing", "name": controller.name, "uid": controller.uid, "controller": True}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "gated-", "namespace": NAMESPACE, "ownerReferences": [owner]},
            "spec": {"containers": [idle_container("none", {})], "securityContext": restricted()},
        }

        async def attempt() -> GatedOutcome:
            made = answered(POD, await self._client.create(f"{path_of(d.PODS, NAMESPACE)}?dryRun=All", pod))
            return Gated(said_by((made.metadata.annotations or {}).get(GATE, ""))[1]) if waits(made) else NotGated()

        return await self._bounded(attempt)

    async def keep_gated(self, pod: PodRef, log: str, until: int) -> PatchOutcome:
        """Says of a gated pod that it waits for something of this log until then (ms, by the API's clock), and longer than its entry said. One that has lost the
        gate meanwhile has no such annotation any more, and gets none."""
        there = await self._found(pod)
        if not isinstance(there, wire.Pod) or not waits(there):
            return Done() if isinstance(there, wire.Pod) else there
        said = {"annotations": {GATE: f"{log} {rfc3339(until)}"}, "resourceVersion": there.metadata.resource_version}
        return done(await self._patched(pod, {"metadata": said}))


class _Landing(msgspec.Struct):
    """Its entries, by field and key."""

    spec: dict[str, dict[str, Any] | None] | None = None


_landing = msgspec.json.Decoder(_Landing)


def waits(pod: wire.Pod) -> bool:
    """Whether our gate holds it back."""
    gates = pod.spec.scheduling_gates if pod.spec else None
    return any(gate.name == GATE for gate in gates or ())
