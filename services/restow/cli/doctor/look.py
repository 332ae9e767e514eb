"""What `restow doctor` looks at, through the Kubernetes API and with the user's own rights; it changes nothing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from restow.cli.doctor.checks import (
    LONG_GATED,
    MONITOR,
    SERVICES,
    Denied,
    Gate,
    Installation,
    Lease,
    Pod,
    Seen,
    Store,
)
from restow.cli.doctor.guards import GUARDED, GUARDED_BESIDE, GUARDED_CLAIMS, GUARDED_NODES
from restow.cli.kubeapi import UNSERVED, objects
from restow.cli.webhook import CERTIFICATE
from restow.cli.webhook import PORT as WEBHOOK_PORT
from restow.contracts.ids import WRITERS
from restow.domain.beside import GATE, NAMESPACES
from restow.kube import decode, rights
from restow.kube.certificates import mistrusted, valid_times
from restow.kube.client import ApiStatus, Client
from restow.kube.server_clock import date_of
from restow.runtime.health import Report

APPLIED = "app.kubernetes.io/part-of=restow"
NAME = "app.kubernetes.io/name"
AT_ONCE = 8
"""Questions that wait for an answer."""
HOLDS = NAMESPACES[0]
"""ValidatingAdmissionPolicies where pods of other schedulers are moved."""
VOLUME = "data-restow-nats-"
"""Claims of the StatefulSet, by the number of the broker."""
LONGEST_LEASE = 15
"""Seconds for which a leader is waited for at most that has not renewed its Lease."""
SOON = 2.0
"""Seconds that a broker has to say how it is."""
T = TypeVar("T")
Object = Mapping[str, Any]
_report = msgspec.json.Decoder(Report)


class _Config(msgspec.Struct):
    max_storage: int
    sync_interval: int
    sync_always: bool = False


class _Stats(msgspec.Struct):
    storage: int


class _JetStream(msgspec.Struct):
    config: _Config
    stats: _Stats


class _Varz(msgspec.Struct):
    """Of what nats-server says of itself."""

    version: str
    jetstream: _JetStream


_varz = msgspec.json.Decoder(_Varz)


class Looker:
    """Raises ApiStatus where the API does not answer, or you may not look at what every check needs."""

    def __init__(self, client: Client, now: datetime) -> None:
        self._client, self._now = client, now
        self._few = asyncio.Semaphore(AT_ONCE)
        self._bindings: list[Object] | None = None

    async def look(self) -> Seen:
        version, said = await self._server()
        clock = said or self._now
        definitions = {item["metadata"]["name"]: _served(item) for item in await self._listed("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")}
        gate = await self._gate(clock) if "landings.restow.dev" in definitions else None
        workloads = [*await self._listed("/apis/apps/v1/deployments", APPLIED), *await self._listed("/apis/apps/v1/statefulsets", APPLIED)]
        of_services = {item["metadata"]["namespace"] for item in workloads if item["metadata"]["name"].removeprefix("restow-") in SERVICES}
        found = [
            await self._installation(namespace, [item for item in workloads if item["metadata"]["namespace"] == namespace], gate is not None)
            for namespace in sorted(of_services)
        ]
        skew = (self._now - said).total_seconds() if said is not None else None
        wanted = [*(GUARDED if found else ()), *(GUARDED_BESIDE if gate is not None else ())]
        if gate is not None and any([await self._claim_namespaces(namespace) for namespace in of_services]):
            wanted += GUARDED_CLAIMS
        if any([await self._marks_nodes(namespace) for namespace in of_services]):
            wanted += GUARDED_NODES
        unguarded, lax = await self._unguarded(wanted)
        return Seen(version, skew, definitions, found, gate, unguarded=unguarded, lax=lax)

    async def _server(self) -> tuple[str, datetime | None]:
        said = msgspec.json.decode(await self._client.get("/version")).get("gitVersion", "")
        _, _, date = await self._client.peek("/version")
        return said, date_of(date)

    # -- an installation -------------------------------------------------------------------------------------------------

    async def _installation(self, namespace: str, workloads: list[Object], beside: bool) -> Installation:
        wanted = {item["metadata"]["name"]: item["spec"].get("replicas", 1) for item in workloads}
        pods = await self._listed(f"/api/v1/namespaces/{namespace}/pods", APPLIED)
        asked = await self._together(self._pod(pod) for pod in pods if not pod["metadata"].get("deletionTimestamp"))
        brokers = [pod for pod in asked if pod.app == "restow-nats" and pod.ready]
        stores = await self._together(self._store(namespace, pod.name) for pod in brokers)
        unasked = [pod.name for pod, store in zip(brokers, stores, strict=True) if store is None]
        return Installation(namespace, wanted, asked, await self._leases(namespace), await self._denied(namespace, beside), [one for one in stores if one is not None], await self._volumes(namespace), unasked)

    async def _volumes(self, namespace: str) -> int:
        try:
            claims = names(await self._listed(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"))
        except ApiStatus as error:
            if error.code != 403:
                raise
            return 0
        return max((int(number) + 1 for name in claims if name.startswith(VOLUME) and (number := name.removeprefix(VOLUME)).isdecimal()), default=0)

    async def _store(self, namespace: str, name: str) -> Store | None:
        """None where it does not say: the chart's NetworkPolicy lets nobody reach its monitoring port but who is on its node."""
        try:
            async with asyncio.timeout(SOON):
                _, body, _ = await self._client.peek(f"/api/v1/namespaces/{namespace}/pods/{name}:{MONITOR}/proxy/varz")
            said = _varz.decode(body)
        except (TimeoutError, ApiStatus, msgspec.DecodeError):
            return None
        config = said.jetstream.config
        return Store(name, said.version, config.sync_always, config.sync_interval / 1e9, said.jetstream.stats.storage, max(config.max_storage, 0))

    async def _pod(self, pod: Object) -> Pod:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        states = status.get("containerStatuses") or []
        ready = is_true(pod, "Ready")
        waiting = [one["state"]["waiting"].get("reason", "") for one in states if (one.get("state") or {}).get("waiting")]
        known = Pod(
            meta["name"], meta.get("labels", {}).get(NAME, ""), ready, spec["containers"][0]["image"], ", ".join(filter(None, waiting)),
            sum(one.get("restartCount", 0) for one in states),
        )  # fmt: skip
        if known.app.removeprefix("restow-") not in SERVICES or status.get("phase") != "Running":
            return known
        try:
            report, state = await self._words(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/proxy")
        except ApiStatus as error:
            return known._replace(why=f"{error.message or error.reason} ({error.code})" if error.code else f"no answer ({error.message})")
        return known.heard(report, state)

    async def _words(self, path: str) -> tuple[Report, dict[str, Any]]:
        """Raises ApiStatus where the API does not hand the question on, or no service of Restow's answers."""
        code, body, _ = await self._client.peek(f"{path}/readyz")
        report = read_report(body) if code in (200, 503) else None
        if report is None:
            status = decode.status(body)
            raise ApiStatus(code, "", status.message if status is not None else body[:100].decode(errors="replace"))
        return report, msgspec.json.decode(await self._client.get(f"{path}/state"))

    async def _leases(self, namespace: str) -> dict[str, Lease]:
        """Those of families of services that have more than one replica: others have none. Of that moment: a service that hangs has cost ten seconds before, in which
        leaders have renewed theirs. What looks old is looked at once more: a leader whose clock is behind renews it all the same."""
        found = await self._leases_now(namespace)
        if old := [lease.lasts for lease, _ in found.values() if lease.holder and lease.old]:
            await asyncio.sleep(min(max(old), LONGEST_LEASE) + 0.5)
            before, found = found, await self._leases_now(namespace)
            return {name: lease._replace(renewed=name in before and before[name][1] != said) for name, (lease, said) in found.items()}
        return {name: lease for name, (lease, _) in found.items()}

    async def _leases_now(self, namespace: str) -> dict[str, tuple[Lease, str]]:
        """Each with what it says of its last renewal."""
        found = {}
        _, said = await self._server()
        clock = said or self._now
        for item in await self._listed(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"):
            spec = item.get("spec") or {}
            if item["metadata"]["name"].removeprefix("restow-") in WRITERS and (renewed := spec.get("renewTime")):
                age = (clock - datetime.fromisoformat(renewed)).total_seconds()
                found[item["metadata"]["name"]] = Lease(spec.get("holderIdentity") or "", age, spec.get("leaseDurationSeconds") or 15), renewed
        return found

    # -- rights ----------------------------------------------------------------------------------------------------------

    async def _denied(self, namespace: str, beside: bool) -> list[Denied] | None:
        claims = await self._claim_namespaces(namespace) if beside else []
        return await self._lacking(needed(namespace, beside, claims), lambda service, attributes: self._may(namespace, service, attributes))

    async def _claim_namespaces(self, namespace: str) -> list[str]:
        """Where somebody has given this installation's services any of the rights to move pods with ResourceClaims: there they are to have all of them."""
        accounts = {f"restow-{service}" for service in rights.CLAIMS}
        return sorted({
            one["metadata"]["namespace"] for one in await self._role_bindings()
            if one["metadata"]["name"].startswith(tuple(f"{account}-claims" for account in accounts))
            and any(subject.get("namespace") == namespace and subject["name"] in accounts for subject in one.get("subjects") or ())
        })  # fmt: skip

    async def _marks_nodes(self, namespace: str) -> bool:
        """Whether somebody has given this installation's services the right to; False where you may not ask that."""
        asked = [(service, "", rule) for service, rules in rights.NODES.items() for rule in rules]
        denied = await self._lacking(asked, lambda service, attributes: self._may(namespace, service, attributes))
        return denied is not None and not set(rights.NODES) <= {one.service for one in denied if one.verb == "patch"}

    async def _role_bindings(self) -> list[Object]:
        """Of the whole cluster, asked for once."""
        if self._bindings is None:
            try:
                self._bindings = await self._optional("/apis/rbac.authorization.k8s.io/v1/rolebindings") or []
            except ApiStatus as error:
                if error.code != 403:
                    raise
                self._bindings = []  # Who may not look at that may look at all the rest.
        return self._bindings

    async def lacks(self, service: str, beside: bool) -> list[Denied] | None:
        """Of an account that is ours, what its service would need more: of one that `restow up` runs, which asks for no Lease."""
        of_it = [one for one in needed("", beside) if one[0] == service and one[2] in (*rights.KUBERNETES[service], *rights.BESIDE_OTHERS.get(service, ()), *rights.HOLDS.get(service, ()))]
        return await self._lacking(of_it, lambda _, attributes: self._may_i(attributes))

    async def _lacking(self, wanted: Iterable[tuple[str, str, rights.Rule]], may: Callable[[str, dict[str, str]], Awaitable[bool]]) -> list[Denied] | None:
        asked = [
            (service, place, rule, resource, verb)
            for service, place, rule in wanted
            for resource in rule.resources.split()
            for verb in rule.verbs.split()
        ]
        try:
            answers = await self._together(may(service, _attributes(place, rule, resource, verb)) for service, place, rule, resource, verb in asked)
        except ApiStatus as error:
            if error.code in (403, *UNSERVED):
                return None
            raise
        return [
            Denied(service, verb, f"{resource}.{rule.group}" if rule.group else resource, place)
            for (service, place, rule, resource, verb), may in zip(asked, answers, strict=True)
            if not may
        ]

    async def _may(self, namespace: str, service: str, attributes: dict[str, str]) -> bool:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        spec = {"user": f"system:serviceaccount:{namespace}:restow-{service}", "groups": groups, "resourceAttributes": attributes}
        return await self._reviewed("SubjectAccessReview", spec)

    async def _may_i(self, attributes: dict[str, str]) -> bool:
        return await self._reviewed("SelfSubjectAccessReview", {"resourceAttributes": attributes})

    async def _reviewed(self, kind: str, spec: Mapping[str, Any]) -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        answer = msgspec.json.decode(await self._client.create(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body))
        return bool(answer["status"]["allowed"])

    # -- beside another scheduler ----------------------------------------------------------------------------------------

    async def _gate(self, clock: datetime) -> Gate:
        group = "/apis/admissionregistration.k8s.io"
        served, policy = False, False
        for version in ("v1", "v1beta1"):
            policies = await self._optional(f"{group}/{version}/mutatingadmissionpolicies")
            if policies is not None:
                served = True
                bindings = await self._optional(f"{group}/{version}/mutatingadmissionpolicybindings") or []
                policy = "restow-landing" in names(policies) & names(bindings)
                break
        hooks = [one for one in await self._listed(f"{group}/v1/mutatingwebhookconfigurations") if one["metadata"]["name"] == "restow-landing"]
        asked = [hook["clientConfig"] for one in hooks for hook in one.get("webhooks") or ()]
        bundles = [one.get("caBundle") for one in asked]
        untrusted = next((why for one in bundles if one and (why := untrusted_for(one, clock))), "")
        pods = await self._listed("/api/v1/pods", f"{NAME}=restow-webhook") if hooks else []
        ready = [pod for pod in pods if is_true(pod, "Ready")]
        services = [(one["service"]["namespace"], one["service"]["name"]) for one in asked if one.get("service")]
        missing = [f"{place}/{name}" for place, name in services if not await self._is_there(f"/api/v1/namespaces/{place}/services/{name}")]
        shown = await self._together(
            self._mistrusted(pod, one["caBundle"], f"{one['service']['name']}.{one['service']['namespace']}.svc")
            for pod in ready for one in asked if one.get("service") and one.get("caBundle") and not untrusted
        )  # fmt: skip
        namespace = HOLDS in names(await self._listed("/api/v1/namespaces"))
        waiting = long_gated(await self._listed("/api/v1/pods", fields="spec.nodeName="), clock)
        return Gate(served, policy, bool(hooks), all(bundles), len(ready), namespace, waiting, untrusted, next(filter(None, shown), ""), next(iter(missing), ""))

    async def _mistrusted(self, pod: Object, bundle: str, host: str) -> str:
        """Why no API server trusts the certificate that this pod of the webhook shows, with its name; empty where it does, or where it does not say (of a release before)."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        try:
            code, body, _ = await self._client.peek(f"/api/v1/namespaces/{namespace}/pods/https:{name}:{WEBHOOK_PORT}/proxy{CERTIFICATE}")
            shown = body.decode("ascii")
        except (ApiStatus, UnicodeDecodeError):
            return ""
        _, clock = await self._server()
        why = mistrusted(shown, base64.b64decode(bundle).decode(), host, clock or self._now) if code == 200 else ""
        return f"{name} shows a certificate that {why}" if why else ""

    async def _unguarded(self, wanted: Iterable[str]) -> tuple[list[str], list[str]]:
        """Of these policies those that are not there or that nothing binds, and those that refuse nothing, or not everywhere; none where the API server knows no such policies."""
        group = "/apis/admissionregistration.k8s.io/v1"
        policies = await self._optional(f"{group}/validatingadmissionpolicies")
        if policies is None:
            return [], []
        bindings = await self._optional(f"{group}/validatingadmissionpolicybindings") or []
        bound = [binding["spec"] for binding in bindings]
        there = names(policies) & {spec["policyName"] for spec in bound}
        denied = {spec["policyName"] for spec in bound if "Deny" in spec.get("validationActions", ()) and not spec.get("matchResources")}
        strict = denied & names(policy for policy in policies if policy["spec"].get("validations") and policy["spec"].get("failurePolicy") != "Ignore")
        return [name for name in wanted if name not in there], [name for name in wanted if name in there - strict]

    # -- within ----------------------------------------------------------------------------------------------------------

    async def _together(self, questions: Iterable[Awaitable[T]]) -> list[T]:
        async def one(question: Awaitable[T]) -> T:
            async with self._few:
                return await question

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(question)) for question in questions]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _optional(self, path: str) -> list[Object] | None:
        try:
            return await self._listed(path, missing=False)
        except ApiStatus as error:
            if error.code in UNSERVED:
                return None
            raise

    async def _is_there(self, path: str) -> bool:
        """Also where you may not look."""
        try:
            await self._client.get(path)
        except ApiStatus as error:
            if error.code == 404:
                return False
            if error.code != 403:
                raise
        return True

    async def _listed(self, path: str, selector: str = "", missing: bool = True, fields: str = "") -> list[Object]:
        """`missing`: a kind that nobody serves has no objects."""
        try:
            return [item async for item in objects(self._client, path, selector, fields)]
        except ApiStatus as error:
            if missing and error.code in UNSERVED:
                return []
            raise


def _attributes(place: str, rule: rights.Rule, resource: str, verb: str) -> dict[str, str]:
    name, _, subresource = resource.partition("/")
    said = {"verb": verb, "group": rule.group, "resource": name, "subresource": subresource, "namespace": place, "name": rule.name}
    return {key: value for key, value in said.items() if value}


def needed(namespace: str, beside: bool, claims: Iterable[str] = ()) -> list[tuple[str, str, rights.Rule]]:
    """(service, namespace, rule) of what an installation's services may do; an empty namespace stands for the whole cluster. `claims`: namespaces whose pods may move with
    ResourceClaims."""
    families = {writer.replace("_", "-"): family for family, writer in WRITERS.items()}
    found = [(service, "", rule) for service, rules in rights.KUBERNETES.items() for rule in rules]
    found += [(service, namespace, rule) for service, family in families.items() for rule in rights.own_of(family, namespace)]
    if beside:
        found += [(service, "", rule) for service, rules in rights.BESIDE_OTHERS.items() for rule in rules]
        found += [(service, HOLDS, rule) for service, rules in rights.HOLDS.items() for rule in rules]
    places = list(claims)
    found += [(service, place, rule) for place in places for service, rules in rights.CLAIMS.items() for rule in rules]
    found += [(service, "", rule) for service, rules in rights.CLAIMS_OTHERS.items() for rule in rules if places]
    return found


def untrusted_for(bundle: str, clock: datetime) -> str:
    """Why no certificate of a caBundle (PEM in base64) is of use at that time; empty where one is. Whether the webhook shows one that it is for, `mistrusted` says."""
    try:
        times = valid_times(base64.b64decode(bundle).decode())
    except ValueError as error:
        return f"a certificate cannot be read ({error})"
    if not times:
        return "nothing is a certificate"
    if any(begin <= clock <= end for begin, end in times):
        return ""
    begin, end = max(times, key=lambda one: one[1])
    return f"the certificate has ended at {end:%Y-%m-%d %H:%M} UTC" if end < clock else f"the certificate is valid from {begin:%Y-%m-%d %H:%M} UTC on"


def long_gated(pods: Iterable[Object], clock: datetime) -> list[str]:
    """Those that have waited for Restow's gate for more than LONG_GATED, as namespace/name, the oldest first."""
    made = [
        (pod["metadata"]["creationTimestamp"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        for pod in pods
        if any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ()) and not pod["metadata"].get("deletionTimestamp")
    ]
    return [name for created, name in sorted(made) if (clock - datetime.fromisoformat(created)).total_seconds() > LONG_GATED]


def is_true(item: Object, condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in (item.get("status") or {}).get("conditions") or ())


def names(items: Iterable[Object]) -> set[str]:
    return {item["metadata"]["name"] for item in items}


def read_report(body: bytes) -> Report | None:
    """What `/readyz` says."""
    try:
        return _report.decode(body)
    except msgspec.DecodeError:
        return None


def _served(definition: Object) -> list[str]:
    """The versions that it serves; none where it is not established."""
    return [version["name"] for version in definition["spec"]["versions"] if version["served"]] if is_true(definition, "Established") else []
