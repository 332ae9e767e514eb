"""Hooks on pods: what asks a workload, or tells it, in annotations of its pod, and the address that an HTTP hook of the pod itself is at."""

import ipaddress
from collections.abc import Mapping

import msgspec

from restow.contracts.times import rfc3339
from restow.domain.hooks import MOVED_BY, MOVED_FROM, REQUESTED, UNTIL
from restow.kube import decode as d
from restow.kube.client import ApiStatus, answered, path_of
from restow.kube.effects import Done, Effects, Failed, Gone, PatchOutcome, PodRef, Refused


class Address(msgspec.Struct, frozen=True):
    """Where the pod listens, as the API says."""

    ip: str


AddressOutcome = Address | Gone | Refused | Failed


class _Spec(msgspec.Struct):
    host_network: bool = msgspec.field(default=False, name="hostNetwork")


class _Status(msgspec.Struct):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")


class _Meta(msgspec.Struct):
    uid: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_pod = msgspec.json.Decoder(_Pod)


class PodHooks(Effects):
    """Through one client."""

    async def request(self, pod: PodRef, migration: str, until: int) -> PatchOutcome:
        """Asks on the pod whether it may be moved; an answer counts before `until` (ms)."""
        return await self._annotate(pod, {REQUESTED: migration, UNTIL: rfc3339(until)})

    async def withdraw(self, pod: PodRef, migration: str) -> PatchOutcome:
        """Takes that off, where nothing else is asked there by now."""

        async def attempt() -> PatchOutcome:
            there = await self._there(pod)
            if there is None:
                return Gone()
            if (there.metadata.annotations or {}).get(REQUESTED) != migration:
                return Done()
            return await self._patch(pod, {REQUESTED: None, UNTIL: None}, there.metadata.resource_version)

        return await self._bounded(attempt)

    async def tell_moved(self, pod: PodRef, source: str, migration: str) -> PatchOutcome:
        """Tells a successor where its predecessor was."""
        return await self._annotate(pod, {MOVED_FROM: source, MOVED_BY: migration})

    async def address(self, pod: PodRef) -> AddressOutcome:
        """`Refused` where a hook that an annotation declares must not be called: what listens there is not the pod's alone."""

        async def attempt() -> AddressOutcome:
            there = await self._there(pod)
            if there is None:
                return Gone()
            if there.status.phase in ("Succeeded", "Failed"):
                # It keeps the address in its status, and another pod may have it by now.
                return Refused(0, "Ended", "its pod has ended, and has no address any more")
            if there.spec.host_network or (there.status.pod_ip and there.status.pod_ip == there.status.host_ip):
                return Refused(0, "HostNetwork", "its pod is in its node's network, so that a port of it may be anybody's; allowed: a URL that the policy names")
            if not there.status.pod_ip:
                return Failed(0, "NoAddress", "its pod has no address yet")
            if not is_pod_address(there.status.pod_ip):
                return Refused(0, "BadAddress", f"{there.status.pod_ip!r} is no pod's address")
            return Address(there.status.pod_ip)

        return await self._bounded(attempt)

    async def _there(self, pod: PodRef) -> _Pod | None:
        """None where it is gone, or another pod has its name. Raises ApiStatus."""
        try:
            there = answered(_pod, await self._client.get(path_of(d.PODS, pod.namespace, pod.name)))
        except ApiStatus as status:
            if status.code == 404:
                return None
            raise
        return there if there.metadata.uid == pod.uid else None

    async def _annotate(self, pod: PodRef, annotations: Mapping[str, str | None]) -> PatchOutcome:
        return await self._bounded(lambda: self._patch(pod, annotations))

    async def _patch(self, pod: PodRef, annotations: Mapping[str, str | None], version: str = "") -> PatchOutcome:
        meta = {"uid": pod.uid, "annotations": annotations} | ({"resourceVersion": version} if version else {})
        try:
            await self._client.patch(path_of(d.PODS, pod.namespace, pod.name), {"metadata": meta})
            return Done()
        except ApiStatus as status:
            outcome = await self._after_patch(pod, status)
            assert isinstance(outcome, Gone | Refused | Failed)
            return outcome


def is_pod_address(ip: str) -> bool:
    """Whether a pod may have it: what is the machine's own, a link's (metadata services) or everybody's is nobody's."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified or address == _BROADCAST)


_BROADCAST = ipaddress.IPv4Address("255.255.255.255")
