"""What is well and what is not, of what was seen of a cluster: pure. Each finding says what is so, and if that is not well, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from restow.cli.doctor.guards import BESIDE_AGAIN, UNGUARDED
from restow.contracts.ids import WRITERS
from restow.domain.history import BROKEN
from restow.eventlog.port import SILENT_BROKER

if TYPE_CHECKING:
    from restow.runtime.health import Report

Word = Literal["ok", "warning", "bad", "unknown"]
"""`bad`: Restow cannot do its work, or not all of it. `warning`: it can, for now. `unknown`: you may not ask, or nobody answers."""

LEAST_SERVER = (1, 27)
LEAST_BROKER = (2, 12)
MOST_SKEW = 2.0
"""Seconds by which clocks may differ: facts and deadlines carry the time of whoever wrote them."""
FULL = 0.75
"""Of a broker's store that is used, from when on it is to be looked at: the alert RestowBrokerDiskFull fires then."""
MONITOR = 8222
"""The port at which a broker says how it is."""
MOST_LAG = 10_000
"""Records of the log that a service may be behind."""
LONG_GATED = 60.0
"""Seconds after which a gated successor is pointed to: a session that works takes the gate away within seconds, unless many pods land on one node."""
SERVICES = ("cluster-watcher", "scheduler-session", "reservation-cache", "descheduler", "garbage-collector")
READ = {
    "reservations.batch.volcano.sh": "v1alpha1",
    "reservations.scheduling.koordinator.sh": "v1alpha1",
    "podgroups.scheduling.volcano.sh": "v1beta1",
    "queues.scheduling.volcano.sh": "v1beta1",
}
"""Definition → the version that Restow reads."""
RESERVATIONS = tuple(name for name in READ if name.startswith("reservations."))


class Finding(NamedTuple):
    about: str
    word: Word
    what: str
    do: str = ""


class Pod(NamedTuple):
    """One of Restow's. `words`: what it says of itself (`/readyz`): reasons against readiness, and notes; None where it could not be asked, `why`. `lag`: records
    of the log that it has not folded, -1 for not known. `service`: which one it is, by its own word (`cluster_watcher`); `release`: its wheel, code and image, the same way, and `log`: the id of the
    log that it reads; empty where it has not said so."""

    name: str
    app: str
    ready: bool
    image: str = ""
    state: str = ""
    restarts: int = 0
    reasons: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    why: str = ""
    lag: int = -1
    leads: bool = False
    service: str = ""
    release: str = ""
    log: str = ""

    def heard(self, report: Report, state: Mapping[str, Any]) -> Pod:
        """The same with what it says at `/readyz` and `/state`."""
        return self._replace(
            reasons=report.reasons, notes=report.notes, lag=state.get("lag", -1), leads=state.get("phase") == "leading", release=state.get("release", ""), log=state.get("log", "")
        )  # fmt: skip


class Lease(NamedTuple):
    """`age`: seconds since it was renewed, by the API's clock. `lasts`: seconds that it is valid for. `renewed`: whether that was seen, whatever it says of the time."""

    holder: str
    age: float
    lasts: int
    renewed: bool = False

    @property
    def old(self) -> bool:
        return self.age > self.lasts + MOST_SKEW


class Denied(NamedTuple):
    service: str
    verb: str
    resource: str
    namespace: str = ""


class Store(NamedTuple):
    """Of a broker, as it says itself. `always`: what it has acknowledged is on its disk; else it is so after `interval` seconds. `used` of `most` bytes."""

    name: str
    version: str
    always: bool
    interval: float
    used: int
    most: int


class Installation(NamedTuple):
    """Restow in one namespace. `wanted`: replicas by workload (`restow-descheduler`, `restow-nats`). `denied` is None where you may not ask that. `stores`: of
    those brokers that could be asked, `unasked` the others that are ready. `volumes`: so many brokers have had one; 0 where you may not look."""

    namespace: str
    wanted: Mapping[str, int]
    pods: Sequence[Pod]
    leases: Mapping[str, Lease]
    denied: Sequence[Denied] | None
    stores: Sequence[Store] = ()
    volumes: int = 0
    unasked: Sequence[str] = ()


class Gate(NamedTuple):
    """What gates successors of moves beside another scheduler. `policy`: the API serves MutatingAdmissionPolicy, and ours and its binding are there.
    `webhook`: its configuration is there, with a certificate; `untrusted`: why no API server trusts that now, empty where it may; `mistrusted`: why none trusts what a pod of it shows, with its name; `missing`: the Service that it is asked by, where that is not there; `answers`: pods behind it that are ready. `waiting`: pods (namespace/name), the oldest first,
    that have had the gate for more than LONG_GATED."""

    served: bool
    policy: bool
    webhook: bool
    certified: bool = True
    answers: int = 0
    namespace: bool = True
    waiting: Sequence[str] = ()
    untrusted: str = ""
    mistrusted: str = ""
    missing: str = ""


class Stack(NamedTuple):
    """The one that `restow up` or compose runs here: where the log of a service is (`{}` is its name), and they, as pods. `accounts`: the folder of their kubeconfigs, where each has its
    own; `denied`: what these may not, None where the API does not say. `named`: somebody has said where they are, and may have left one out."""

    logs: str
    services: Sequence[Pod]
    accounts: str = ""
    denied: Sequence[Denied] | None = ()
    named: bool = False


class Seen(NamedTuple):
    """`skew`: seconds that this machine's clock is ahead of the API's; None where that does not say. `definitions`: name → versions that are served, empty
    where it is not established. `gate` is None without `deploy/beside`. `unguarded`: policies that nobody has made, or bound; `lax`: those that
    somebody has made refuse nothing. `api`: which API server that is."""

    version: str
    skew: float | None
    definitions: Mapping[str, Sequence[str]]
    installations: Sequence[Installation]
    gate: Gate | None = None
    stack: Stack | None = None
    unguarded: Sequence[str] = ()
    lax: Sequence[str] = ()
    api: str = ""


def examine(seen: Seen) -> list[Finding]:
    here = [*_stack(seen.stack), *(_left_out(seen.stack) if seen.stack.named and not seen.installations else ())] if seen.stack is not None else ()
    installed = _all(seen) if seen.stack is None or seen.installations else ()
    return [*_server(seen), *_definitions(seen), *here, *installed, *_unguarded(seen), *_gate(seen.gate)]


def _server(seen: Seen) -> Iterator[Finding]:
    known, at = _numbers(seen.version), f", at {seen.api}" if seen.api else ""
    if not known:
        yield Finding("server", "unknown", f"the API server says {seen.version!r} of its version{at}")
    elif known < LEAST_SERVER:
        yield Finding("server", "bad", f"the API server is {seen.version}{at}", f"Restow needs Kubernetes {_dotted(LEAST_SERVER)} or newer")
    else:
        yield Finding("server", "ok", f"the API server is {seen.version}{at}")
    if seen.skew is not None and abs(seen.skew) > MOST_SKEW:
        way = "ahead of" if seen.skew > 0 else "behind"
        yield Finding("clock", "warning", f"this machine's clock is {abs(seen.skew):.0f} s {way} the API server's", "set it by NTP; times that restow prints here are wrong by as much")


def _definitions(seen: Seen) -> Iterator[Finding]:
    for name, version in READ.items():
        served = seen.definitions.get(name)
        if served is not None and version not in served:
            what = f"serves {', '.join(served)}" if served else "is not established"
            yield Finding("definitions", "bad", f"{name} {what}", f"Restow reads {version}: kubectl apply --server-side -f deploy/crds/{name}.yaml, unless another product owns it")
    there = [name for name in RESERVATIONS if name in seen.definitions]
    if not there:
        yield Finding("definitions", "bad", "no Reservation is defined, so no move can hold a place", f"kubectl create -f deploy/crds/{RESERVATIONS[0]}.yaml")
    elif RESERVATIONS[0] not in there:
        yield Finding("definitions", "bad", f"{RESERVATIONS[0]} is missing, in which moves hold their places", f"kubectl create -f deploy/crds/{RESERVATIONS[0]}.yaml")
    else:
        optional = [name for name in READ if name not in seen.definitions]
        yield Finding("definitions", "ok", f"{', '.join(there)}" + (f" (not here, and not needed: {', '.join(optional)})" if optional else ""))


# -- installations -------------------------------------------------------------------------------------------------------


def _all(seen: Seen) -> Iterator[Finding]:
    if not seen.installations:
        yield Finding("services", "bad", "no service of Restow is in this cluster", "helm install restow deploy/chart -n restow-system --create-namespace; docs/install.md says more")
    for one in seen.installations:
        yield from _services(one)
        yield from _broker(one)
        yield from _silent_brokers(one.pods, f"{one.namespace}: ")
        yield from _leaders(one)
        yield from _rights(one)


def _stack(stack: Stack) -> Iterator[Finding]:
    for one in stack.services:
        yield Finding("services", "ok" if one.ready else "bad", f"{one.name}: {'ready' + (', leads' if one.leads else '') if one.ready else 'not ready'}", "" if one.ready or one.reasons else "see " + stack.logs.replace("{}", one.name))
        yield from _unasked(one, one.name, "")
    yield from _several("releases", [one.release for one in stack.services])
    yield from _logs(stack.services)
    yield from _said({one.name: one for one in stack.services}, "", "restow log verify (or repair; docs/failures.md)")
    yield from _silent_brokers(stack.services)
    if stack.accounts:
        yield from _lacking(stack.accounts, stack.denied, "bind the account to the ClusterRoles that deploy/restow.yaml has for this service (and to those of deploy/beside/rights.yaml)")


def _left_out(stack: Stack) -> Iterator[Finding]:
    """Who is not among those that were named. Whoever does not say what it is may be any of them."""
    said = {one.service.replace("_", "-") for one in stack.services}
    missing, silent = [name for name in SERVICES if name not in said], sum(not one.service for one in stack.services)
    if len(missing) > silent:
        but = f", but for {silent} of these, which did not say what {'it is' if silent == 1 else 'they are'}" if silent else ""
        yield Finding("services", "bad", f"not among the services that were named: {', '.join(missing)}{but}", "start it, or name it, too, in --services or RESTOW_SERVICES")


def _services(one: Installation) -> Iterator[Finding]:
    ours = [pod for pod in one.pods if pod.app.removeprefix("restow-") in SERVICES]
    yield from list(_several("images", [pod.image for pod in ours], f"{one.namespace}: ")) or _several("releases", [pod.release for pod in ours], f"{one.namespace}: ")
    yield from _logs(ours, f"{one.namespace}: ")
    for service in SERVICES:
        name = f"restow-{service}"
        wanted, pods = one.wanted.get(name), [pod for pod in one.pods if pod.app == name]
        if wanted is None:
            yield Finding("services", "bad", f"{one.namespace}: {name} is missing", "helm upgrade restow deploy/chart (or kubectl apply -f deploy/restow.yaml)")
            continue
        ready = [pod for pod in pods if pod.ready]
        word: Word = "bad" if not ready else "warning" if len(ready) < wanted else "ok"
        do = "" if word == "ok" else "replicas is 0: scale it up" if not wanted else f"kubectl -n {one.namespace} describe pod -l app.kubernetes.io/name={name}"
        yield Finding("services", word, f"{one.namespace}: {name}: {len(ready)} of {wanted} ready", do)
        yield from (finding for pod in pods for finding in _pod(one, pod))
    repair = f"kubectl -n {one.namespace} exec -it deploy/restow-garbage-collector -- restow log verify (or repair; docs/failures.md)"
    yield from _said({pod.name: pod for pod in ours}, f"{one.namespace}: ", repair)


def _several(kind: str, said: Sequence[str], where: str = "") -> Iterator[Finding]:
    """What of all services should be one. Whoever does not say it may have any."""
    if len(found := sorted({*said} - {""})) > 1:
        yield Finding("services", "warning", f"{where}services of several {kind}: {', '.join(found)}", "finish the upgrade; any order is right")


def _logs(pods: Sequence[Pod], where: str = "") -> Iterator[Finding]:
    """Each of them may be ready, and nothing comes of it: what one says the others do not hear."""
    readers: dict[str, list[str]] = {}
    for pod in pods:
        readers.setdefault(pod.log, []).append(pod.service or pod.name)
    readers.pop("", None)
    if len(readers) > 1:
        said = "; ".join(f"{', '.join(names)} {'reads' if len(names) == 1 else 'read'} {log}" for log, names in sorted(readers.items(), key=lambda one: -len(one[1])))
        yield Finding("log", "bad", f"{where}services read several logs, so they do not hear of each other: {said}", "give all the same RESTOW_CLUSTER and RESTOW_NATS_URL")


def _pod(one: Installation, pod: Pod) -> Iterator[Finding]:
    if pod.state:
        yield Finding("services", "bad", f"{one.namespace}: {pod.name}: {pod.state}" + (f", {pod.restarts} restarts" if pod.restarts else ""), f"kubectl -n {one.namespace} logs {pod.name} --previous")
        if pod.reasons is None:
            return  # Of course it was not to be asked.
    logs = f"kubectl -n {one.namespace} logs {pod.name}" + (" --previous" if pod.restarts else "")
    yield from _unasked(pod, f"{one.namespace}: {pod.name}", logs)


def _unasked(pod: Pod, named: str, logs: str) -> Iterator[Finding]:
    """`logs`: the command that shows why it does not answer."""
    if pod.reasons is None and pod.why:
        often = f"; it was started again {pod.restarts} times" if pod.restarts > 1 else "; it was started again" if pod.restarts else ""
        yield Finding("services", "unknown", f"{named} was not asked: {pod.why}{often}", logs)


def _said(pods: Mapping[str, Pod], where: str, repair: str) -> Iterator[Finding]:
    """What they say of themselves, by name: each thing once, whoever says it. `repair`: the command that shows what is wrong with a broken log."""
    for reason, names in _who_says((name, reason) for name, pod in pods.items() for reason in pod.reasons or ()):
        broken = reason.startswith(BROKEN)
        yield Finding("log" if broken else "services", "bad", f"{where}{', '.join(names)} {'is' if len(names) == 1 else 'are'} not ready: {reason}", repair if broken else "")
    for note, names in _who_says((name, note) for name, pod in pods.items() for note in pod.notes):
        if not note.startswith(SILENT_BROKER):
            yield Finding("services", "warning", f"{where}{', '.join(names)}: {note}")
    for name, pod in pods.items():
        if pod.lag > MOST_LAG:
            yield Finding("services", "warning", f"{where}{name} is {pod.lag} records behind the log", "give it more CPU, or look at restow_log_lag: it should fall")


def _who_says(said: Iterable[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name, text in said:
        found.setdefault(text, []).append(name)
    return found.items()


def _silent_brokers(pods: Sequence[Pod], where: str = "") -> Iterator[Finding]:
    """Every service says it of the same brokers."""
    for note in sorted({note for pod in pods for note in pod.notes if note.startswith(SILENT_BROKER)}):
        yield Finding("broker", "warning", f"{where}{note}", "start it again, or see why it does not reach the others (its log says)")


def _broker(one: Installation) -> Iterator[Finding]:
    """Only the one of the manifests: another one is asked by the services, which say in their `/readyz` what it lacks."""
    wanted = one.wanted.get("restow-nats")
    if wanted is None:
        return
    pods = [pod for pod in one.pods if pod.app == "restow-nats"]
    ready = sum(pod.ready for pod in pods)
    majority = wanted // 2 + 1
    word: Word = "bad" if ready < majority else "warning" if ready < wanted else "ok"
    but = "" if word == "ok" or wanted == 1 else f"; without {majority} no commit is taken" if word == "bad" else "; if one more goes, no commit is taken" if ready == majority else ""
    do = "" if word == "ok" else "replicas is 0: scale it up" if not wanted else f"kubectl -n {one.namespace} describe pod -l app.kubernetes.io/name=restow-nats"
    yield Finding("broker", word, f"{one.namespace}: restow-nats: {ready} of {wanted} ready{but}", do)
    if one.volumes > wanted > 0:
        what = f"{one.namespace}: restow-nats has volumes of {one.volumes} brokers, and {wanted} of these {'is' if wanted == 1 else 'are'} there: the log may be on the others"
        do = "after `helm rollback` over another nats.replicas: roll back to the revision with that number; else delete the claims (docs/install.md, From one broker to three)"
        yield Finding("broker", "warning", what, do)
    for store in one.stores:
        if not store.always:
            what = f"{one.namespace}: {store.name} writes what it has acknowledged to its disk every {store.interval:.0f} s: a machine that fails takes commits with it that were acted upon"
            yield Finding("broker", "warning", what, "sync_interval: always in its configuration, as deploy/nats/nats.conf has it")
        if store.most and store.used >= FULL * store.most:
            what = f"{one.namespace}: {store.name} has used {100 * store.used // store.most} % of its store; when it is full, no commit is taken"
            yield Finding("broker", "warning", what, "docs/runbooks.md, RestowBrokerDiskFull")
    if one.unasked:
        what = f"{one.namespace}: {', '.join(one.unasked)}: not asked whether all that is acknowledged is on disk, nor how full the store is: no answer on port {MONITOR}, as the chart's NetworkPolicy wants it"
        do = f"kubectl -n {one.namespace} port-forward {one.unasked[0]} {MONITOR}, and see sync_always, max_storage and storage in http://localhost:{MONITOR}/varz"
        yield Finding("broker", "unknown", what, do)
    said = {store.name: store.version for store in one.stores}
    for pod in pods:
        version = _numbers(said.get(pod.name, "") or pod.image.partition("@")[0].rpartition(":")[2])
        if version and version < LEAST_BROKER:
            yield Finding("broker", "bad", f"{one.namespace}: {pod.name} is nats-server {_dotted(version)}", f"Restow needs {_dotted(LEAST_BROKER)} or newer: an older one ignores settings that keep the log whole")


def _writer_of(lease: str) -> str:
    return f"restow-{WRITERS[lease.removeprefix('restow-')].replace('_', '-')}"


def _leaders(one: Installation) -> Iterator[Finding]:
    led = []
    for name, lease in sorted(one.leases.items()):
        ours = {pod.name for pod in one.pods if pod.app == _writer_of(name)}
        if lease.age < -MOST_SKEW or (lease.old and lease.renewed):
            when = f"{abs(lease.age):.0f} s in the API server's {'past' if lease.old else 'future'}"
            yield Finding("leaders", "warning", f"{one.namespace}: {name} was renewed {when}", f"the clock of {lease.holder}'s node is wrong: set it by NTP")
        if not lease.holder or (lease.old and not lease.renewed):
            yield Finding("leaders", "bad", f"{one.namespace}: nobody leads {name}" + (f" since {lease.age:.0f} s" if lease.holder else ""), "see what its services say above: a standby takes over within seconds if it is ready")
        elif (holder := lease.holder.partition("/")[0]) not in ours:
            what = f"{one.namespace}: {name} is held by {holder}, which is none of the pods of {_writer_of(name)}: what leads there is another process, unless that pod is ending"
            yield Finding("leaders", "warning", what, "look again in half a minute; else find it and stop it: nothing here says which release, configuration and log it has")
        else:
            led.append(f"{name.removeprefix('restow-')} {holder}")
    if led:
        yield Finding("leaders", "ok", f"{one.namespace}: {', '.join(led)}")


def _rights(one: Installation) -> Iterator[Finding]:
    yield from _lacking(one.namespace, one.denied, "install the chart of the images' release (or apply its deploy/restow.yaml): it has the rights")


def _lacking(whose: str, denied: Sequence[Denied] | None, do: str) -> Iterator[Finding]:
    if denied is None:
        yield Finding("rights", "unknown", f"{whose}: it could not be asked what the services may do", "you need the right to create subjectaccessreviews")
    elif not denied:
        yield Finding("rights", "ok", f"{whose}: the services may do all that they need")
    else:
        key = lambda denied: (denied.service, denied.resource, denied.namespace)  # noqa: E731
        for (service, resource, namespace), some in groupby(sorted(denied, key=key), key):
            where = f" in {namespace}" if namespace else ""
            verbs = ", ".join(denied.verb for denied in some)
            yield Finding("rights", "bad", f"{whose}: {service} may not {verbs} {resource}{where}", do)


def _unguarded(seen: Seen) -> Iterator[Finding]:
    lax = "does not refuse all that it should (its binding does not Deny or has matchResources, its failurePolicy is Ignore, or it has no validations)"
    for names, how in ((seen.unguarded, "is missing, or nothing binds it"), (seen.lax, lax)):
        for name in names:
            why, about, again = UNGUARDED[name]
            yield Finding(about, "warning", f"the policy {name} {how}, {why}", again)


# -- beside another scheduler --------------------------------------------------------------------------------------------


def _gate(gate: Gate | None) -> Iterator[Finding]:
    if gate is None:
        return
    again = BESIDE_AGAIN
    if gate.policy:
        yield Finding("beside", "ok", "successors are gated by the policy restow-landing")
    elif not gate.webhook:
        do = again if gate.served else "this API server has no MutatingAdmissionPolicy: helm upgrade with beside.gate=webhook (docs/beside.md)"
        yield Finding("beside", "bad", "nothing gates successors, so no pod of another scheduler is moved (NotGated)", do)
    elif not gate.certified:
        yield Finding("beside", "bad", "the webhook restow-landing has no caBundle, so no API server trusts it", "docs/beside.md says how it gets one")
    elif gate.untrusted:
        what = f"no API server trusts the webhook restow-landing: of its caBundle {gate.untrusted}, so nothing gates successors, and no pod of another scheduler is moved (NotGated)"
        yield Finding("beside", "bad", what, "docs/beside.md, before Kubernetes 1.36, says how it gets another one")
    elif gate.missing:
        yield Finding("beside", "bad", f"the Service {gate.missing} is missing, by which API servers ask the webhook restow-landing", "helm upgrade with beside.gate=webhook")
    elif not gate.answers:
        yield Finding("beside", "bad", "no pod answers for the webhook restow-landing", "kubectl -n restow-system describe pod -l app.kubernetes.io/name=restow-webhook")
    elif gate.mistrusted:
        what = f"no API server trusts what answers for the webhook restow-landing: {gate.mistrusted}, so that it gates no successor, and no pod of another scheduler is moved (NotGated)"
        yield Finding("beside", "bad", what, "docs/beside.md, before Kubernetes 1.36, says which certificate and which caBundle belong together")
    else:
        yield Finding("beside", "ok", f"successors are gated by the webhook restow-landing ({gate.answers} ready)")
    if not gate.namespace:
        yield Finding("beside", "bad", "the namespace restow-holds is missing, in which placeholders stand", again)
    if gate.waiting:
        number, first = len(gate.waiting), gate.waiting[0]
        what = f"{number} pod{'s have' if number > 1 else ' has'} had the gate restow.dev/landing for more than {LONG_GATED:.0f} s, the oldest is {first}"
        do = f"no scheduler looks at it before a session takes the gate away: start scheduler-session if it is down, else ask `restow why pod/{first}`; without Restow: docs/troubleshooting.md, gated pods"
        yield Finding("beside", "warning", what, do)


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", version)
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
