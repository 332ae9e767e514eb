"""`restow reserve`: capacity for the next pods of a workload, held before they come."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from restow.cli.failures import BROKEN, UNUSABLE, Failure
from restow.cli.kubeapi import Kube, kube_options, refusal
from restow.cli.log_location import Where
from restow.cli.output import emit

if TYPE_CHECKING:
    from restow.cli.from_workload import Asked, Obj, Template, Workload
    from restow.kube.client import Client

SLOTS = 1_000
"""Replicas of one command; of Koordinator's API, where each is an object, OBJECTS."""
OBJECTS = 100
TRIES = 20
"""Names that are tried where former Reservations of the same words are used up and not collected yet."""
FIRST_LOOK, SLOWEST_LOOK = 0.05, 1.0
"""Seconds between looks at what --wait waits for: doubled from the one to the other."""
_OVER = ("Succeeded", "Failed")


@click.command()
@click.option("--like", "like", required=True, metavar="KIND/NAME", help="A deployment, statefulset, replicaset, job or pod.")
@click.option("-n", "--namespace", default="default", show_default=True, metavar="NS", help="The workload's namespace.")
@click.option("--replicas", default=1, show_default=True, type=click.IntRange(1, SLOTS), help="Number of pods to hold capacity for.")
@click.option("--ttl", default=None, metavar="DURATION", help="How long it holds capacity: 90s, 30m, 1h30m; 0 for ever.  [default: 24h]")
@click.option("--expires", default=None, metavar="TIME", help="When it ends, in RFC 3339; instead of --ttl.")
@click.option("--name", default="", help="Its name.  [default: like-NAME-xxxxx, always the same for the same options]")
@click.option("--node", default="", metavar="NODE", help="Hold it on this node and nowhere else.")
@click.option("--api", type=click.Choice(["volcano", "koordinator"]), default="volcano", show_default=True, help="Which Reservation API; koordinator: one object per replica.")
@click.option("--queue", default="", help="Queue whose quota it counts against (volcano).")
@click.option("--policy", type=click.Choice(["Aligned", "Restricted"]), default=None, help="May pods take more than is held, from the node?  [default: Aligned, they may]")
@click.option("--pre-allocation", "pre_allocation", is_flag=True, help="Also choose a node whose capacity is in use, and hold it as it becomes free.")
@click.option("--owners", type=click.Choice(["controller", "labels"]), default="controller", show_default=True, help="Who may take it: pods of the workload, or pods with its labels.")
@click.option("--scheduler", default="", metavar="NAME", help="Scheduler, instead of the schedulerName of the workload's pods.")
@click.option("--wait", "wait", is_flag=True, help="Return once it is held, or say why it is not (exit code 1).")
@click.option("--timeout", default="30s", show_default=True, metavar="DURATION", help="How long --wait waits.")
@click.option("--dry-run", is_flag=True, help="Print what would be created, for kubectl, and create nothing.")
@click.option("-o", "--output", type=click.Choice(["text", "yaml", "json", "name"]), default="text", show_default=True, help="Output format.")
@kube_options
def reserve(like: str, kube: Kube, dry_run: bool, wait: bool, timeout: str, scheduler: str, output: str, **options: Any) -> None:
    """Hold capacity for the next pods of a workload, whatever their names and images: before a scale-up, or after a scale-down.

    Creates Reservations, as you could with `kubectl apply`. Each slot is taken by one pod of the workload; slots that nobody took
    are free again at the end. Running the same command twice creates one Reservation, as long as that one is not used up.

    \b
    Examples:
      restow reserve --like deployment/web --replicas 3 --ttl 1h --wait
      restow reserve --like statefulset/db -n shop --node node-7
      restow reserve --like deploy/web --dry-run | kubectl apply -f -
    """
    from restow.cli.from_workload import LikeError, manifests, parse

    seconds = _milliseconds("--timeout", timeout) / 1000
    asked = _asked(options)
    where = Where(None, None, None, None)
    try:
        workload = parse(like)

        async def work(client: Client) -> tuple[list[Obj], list[str], str]:
            template = await _read(client, workload, asked.namespace)
            _schedule_with(workload, template, scheduler)
            wanted = manifests(workload, template, asked)
            if dry_run:
                return wanted, [], ""
            made = [await _create(client, asked, manifest) for manifest in wanted]
            found, done = [obj for obj, _ in made], [how for _, how in made]
            if wait:
                found = await _wait(client, asked, found, seconds)
            return found, done, client.url

        began = time.monotonic()
        found, done, _ = kube.call(where, work)
    except LikeError as error:
        raise Failure(str(error), UNUSABLE) from None
    if dry_run or output != "text":
        _print(found, asked, "yaml" if dry_run and output == "text" else output)
    failed = _failure(asked, found, time.monotonic() - began) if wait and not dry_run else None
    if not dry_run and output == "text":
        _tell(workload, asked, found, done, f" (held after {time.monotonic() - began:.1f} s)" if wait and failed is None else "")
    if failed is not None:
        raise failed


# -- what is asked for -----------------------------------------------------------------------------------------------


def _asked(options: dict[str, Any]) -> Asked:
    """Raises Failure, with what is allowed."""
    from restow.cli.from_workload import Asked

    ttl, expires, api = options["ttl"], options["expires"], options["api"]
    if ttl is not None and expires is not None:
        raise click.UsageError("--ttl and --expires both set the end; use one of them")
    if ttl is not None:
        ttl = ttl.strip().removeprefix("+")
        ttl = ttl if _milliseconds("--ttl", ttl) else "0"
    if expires is not None:
        expires = _moment(expires)
    if api == "koordinator" and options["queue"]:
        raise click.UsageError("--queue works only with --api volcano: Koordinator's Reservations have no queue")
    if api == "koordinator" and options["replicas"] > OBJECTS:
        raise click.UsageError(f"--replicas {options['replicas']} with --api koordinator; allowed: up to {OBJECTS}, because each is an object")
    return Asked(
        options["namespace"], options["replicas"], api, options["name"], "24h" if ttl is None else ttl, expires or "",
        options["node"], options["queue"], options["policy"] or "", options["owners"] == "labels", options["pre_allocation"],
    )  # fmt: skip


def _milliseconds(option: str, text: str) -> int:
    from restow.domain.duration import DurationError, TooLong, milliseconds

    try:
        value = milliseconds(text.strip())
    except TooLong as error:
        raise Failure(f"{option}: {error}", UNUSABLE) from None
    except DurationError:
        value = -1
    if value < 0:
        never = "; 0 for never" if option == "--ttl" else ""
        raise Failure(f"{option} is {text!r}; allowed: numbers with the units h, m and s, such as 90s, 30m, 24h or 1h30m{never}", UNUSABLE)
    return value


def _moment(text: str) -> str:
    """The same time, in UTC and whole seconds. Raises Failure."""
    from restow.contracts.ids import Millis
    from restow.contracts.times import millis, seconds

    try:
        at = millis(text.strip())
    except ValueError:
        raise Failure(f"--expires is {text!r}; allowed: a time in RFC 3339, such as 2026-01-31T18:00:00Z", UNUSABLE) from None
    if at <= time.time() * 1000:
        raise Failure(f"--expires is {text!r}, which is in the past; allowed: a future time", UNUSABLE)
    return seconds(Millis(at))


# -- the workload ----------------------------------------------------------------------------------------------------


async def _read(client: Client, workload: Workload, namespace: str) -> Template:
    """Its pod template, with the priority that its class stands for."""
    from restow.cli.from_workload import controller_of, template_of

    found = await _get(client, workload.path(namespace))
    if found is None:
        raise await _unknown(client, workload, namespace)
    above = None
    if workload.kind == "Pod" and (owner := controller_of(found)) is not None:
        above = controller_of(await _owner(client, owner, namespace) or {}) or owner
    template = template_of(workload, found, above)
    spec = template.body["spec"]
    if (name := spec.get("priorityClassName")) and "priority" not in spec:
        # Admission does this for pods, and for pods only.
        there = await _get(client, f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}", also=(403,))
        if there and there.get("value"):
            spec["priority"] = there["value"]
    return template


async def _owner(client: Client, owner: Obj, namespace: str) -> Obj | None:
    """What controls a pod, where that may be controlled itself: a Deployment's ReplicaSet, a CronJob's Job."""
    from restow.cli.from_workload import parse

    if owner["kind"] not in ("ReplicaSet", "Job"):
        return None
    return await _get(client, parse(f"{owner['kind']}/{owner['name']}").path(namespace), also=(403,))


async def _get(client: Client, path: str, also: tuple[int, ...] = ()) -> Obj | None:
    """None where there is no such object, or the answer has one of the codes `also`."""
    import msgspec

    from restow.kube.client import ApiStatus, answered

    try:
        found: Obj = answered(msgspec.json.Decoder(dict[str, Any]), await client.get(path))
    except ApiStatus as error:
        if error.code in (404, *also):
            return None
        raise refusal(error, client.url, f"read {path}") from None
    return found


async def _unknown(client: Client, workload: Workload, namespace: str) -> Failure:
    """What there is instead."""
    listed = await _get(client, workload.path(namespace, one=False), also=(403,)) or {}
    names = sorted(item["metadata"]["name"] for item in listed.get("items") or ())
    said = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names[:8])}{', …' * (len(names) > 8)}" if names else f"there is no {workload.kind.lower()} at all"
    return Failure(f"{workload.text} is not in namespace {namespace}: {said}. -n names another namespace", UNUSABLE)


def _schedule_with(workload: Workload, template: Template, scheduler: str) -> None:
    """Only what Restow schedules can take what Restow holds."""
    spec = template.body["spec"]
    if scheduler:
        spec["schedulerName"] = scheduler
    elif spec.get("schedulerName", "default-scheduler") == "default-scheduler":
        raise Failure(
            f"the pods of {workload.text} are scheduled by default-scheduler, which does not know Reservations: set schedulerName: restow in "
            "its pod template first. If something sets it on the pods later, or if Restow serves default-scheduler, say so with --scheduler NAME",
            UNUSABLE,
        )


# -- the Reservations ------------------------------------------------------------------------------------------------


def _path(asked: Asked, name: str = "") -> str:
    from restow.cli.from_workload import API

    where = f"/namespaces/{asked.namespace}" if asked.api == "volcano" else ""
    return f"/apis/{API[asked.api]}{where}/reservations" + (f"/{name}" if name else "")


async def _create(client: Client, asked: Asked, manifest: Obj) -> tuple[Obj, str]:
    """The object, and whether it was `created` or is there already (`unchanged`). One that is used up frees capacity for the next
    of its name."""
    import msgspec

    from restow.cli.from_workload import phase_of, renamed, same
    from restow.kube.client import ApiStatus, answered

    for number in range(1, TRIES + 1):
        body = manifest if number == 1 else renamed(manifest, number)
        name = body["metadata"]["name"]
        try:
            return answered(msgspec.json.Decoder(dict[str, Any]), await client.create(_path(asked), body)), "created"
        except ApiStatus as error:
            if error.code != 409:
                raise _refused(error, client.url, asked, name) from None
        there = await _get(client, _path(asked, name))
        if there is None:
            continue
        over = phase_of(there)[0] in _OVER or there["metadata"].get("deletionTimestamp")
        if same(body, there) and not over:
            return there, "unchanged"
        if asked.name:
            state = "used up or ended" if same(body, there) else "another one"
            raise Failure(f"{_full(there)} already exists, and is {state}: choose another --name, or delete it: {_delete(asked, name)}", UNUSABLE)
    raise Failure(f"{TRIES} Reservations with these options exist and are used up; choose a name with --name", UNUSABLE)


def _refused(error: Any, url: str, asked: Asked, name: str) -> Failure:
    from restow.cli.from_workload import RESOURCE

    resource = RESOURCE[asked.api]
    if error.code == 404:
        other = "koordinator" if asked.api == "volcano" else "volcano"
        return Failure(
            f"this cluster does not know {resource}: install its definition (kubectl apply -f deploy/crds/{resource}.yaml), or use --api {other}",
            UNUSABLE,
        )
    if error.code == 403:
        where = f" -n {asked.namespace}" if asked.api == "volcano" else ""
        return Failure(f"you are not allowed to create {resource}: {error.message}. `kubectl auth can-i create {resource}{where}` says more", UNUSABLE)
    return refusal(error, url, f"create {name}")


async def _wait(client: Client, asked: Asked, made: list[Obj], seconds: float) -> list[Obj]:
    """The objects once all are held or one has failed, or as they are when the time is over."""
    from restow.cli.from_workload import phase_of

    deadline, pause = time.monotonic() + seconds, FIRST_LOOK
    while True:
        found = [await _get(client, _path(asked, obj["metadata"]["name"])) or obj for obj in made]
        phases = [phase_of(obj)[0] for obj in found]
        if "Failed" in phases or all(phase in ("Available", "Succeeded") for phase in phases) or time.monotonic() >= deadline:
            return found
        await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, SLOWEST_LOOK)


# -- what is printed -------------------------------------------------------------------------------------------------


def _full(obj: Obj) -> str:
    meta = obj["metadata"]
    return "/".join(part for part in ("reservation", meta.get("namespace", ""), meta["name"]) if part)


def _delete(asked: Asked, name: str) -> str:
    from restow.cli.from_workload import SINGULAR

    return f"kubectl delete {SINGULAR[asked.api]}/{name}" + (f" -n {asked.namespace}" if asked.api == "volcano" else "")


def _print(found: list[Obj], asked: Asked, output: str) -> None:
    from restow.cli.from_workload import SINGULAR

    if output == "name":
        for obj in found:
            click.echo(f"{SINGULAR[asked.api]}/{obj['metadata']['name']}")
    elif output == "json":
        emit(found[0] if len(found) == 1 else {"apiVersion": "v1", "kind": "List", "items": found})
    else:
        import yaml

        click.echo(yaml.safe_dump_all(found, sort_keys=False, width=120), nl=False)


def _tell(workload: Workload, asked: Asked, found: list[Obj], done: list[str], held: str) -> None:
    from restow.cli.from_workload import phase_of

    first = _full(found[0])
    names = first if len(found) == 1 else f"{first} and {len(found) - 1} more"
    if "created" in done:
        slots = f"{asked.replicas} slot{'s' * (asked.replicas != 1)}"
        ends = f"until {asked.expires}" if asked.expires else "for ever" if asked.ttl == "0" else f"for {asked.ttl}"
        who = "pods with the labels of" if asked.by_labels else "pods like" if workload.kind == "Pod" else "the next pods of"
        click.echo(f"{names}: {slots} for {who} {workload.text}, {ends}{held}")
    else:
        click.echo(f"{names}: unchanged ({phase_of(found[0])[0] or 'new'}), the same was asked for before; --name makes another one")
    click.echo(f"look at it: restow describe {first}")


def _failure(asked: Asked, found: list[Obj], took: float) -> Failure | None:
    """Unless all of it is held, or was."""
    from restow.cli.from_workload import phase_of

    for obj in found:
        phase, reason, message = phase_of(obj)
        if phase in ("Available", "Succeeded"):
            continue
        name = _full(obj)
        if phase == "Failed":
            return Failure(f"{name} has failed ({reason}): {message}", BROKEN)
        if not phase:
            return Failure(f"nobody has looked at {name} in {took:.0f} s: is Restow running on this cluster, and does it serve this API?", BROKEN)
        return Failure(
            f"after {took:.0f} s {name} is {phase}: {message or reason or 'no session has looked at it yet'}\n"
            f"It keeps waiting. To see what would help: restow describe {name}\nTo delete it: {_delete(asked, obj['metadata']['name'])}",
            BROKEN,
        )
    return None
