"""`restow defrag`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import click

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure
from restow.cli.output import Progress, emit, output_option, table
from restow.cli.where import Where, log_options

_TIMEOUT = 60.0
"""Seconds for one answer of the descheduler: a plan for the largest clusters takes less than one."""


@click.command()
@click.option("--dry-run", "mode", flag_value="dry", help="Show the plan and what it would gain; nothing is moved.")
@click.option("--now", "mode", flag_value="now", help="Make the plan and carry it out: reserve first, then move.")
@click.option("--descheduler", metavar="URL", help="Its HTTP address; default: the stack's.")
@log_options
@output_option
def defrag(mode: str | None, descheduler: str | None, where: Where, output: str) -> None:
    """Plan a defragmentation, or carry one out.

    Asks the descheduler. With --log FILE a dry run needs no stack: the plan is decided on the state at the end of that log,
    with the policy that was in use there.

    \b
    Examples:
      restow defrag --dry-run
      restow defrag --now && restow log tail -f --family migration
      restow defrag --dry-run --log incident.jsonl.zst
    """
    if mode is None:
        raise click.UsageError("say --dry-run (show the plan) or --now (carry it out)")
    if where.log and mode == "now":
        raise Failure(f"{where.log} is a file; nothing can be moved in it. Use --dry-run, or name a stack", UNUSABLE)
    answer = _offline(where) if where.log else _ask(_address(where, descheduler), dry=mode == "dry")
    if output == "json":
        emit(answer)
    else:
        _show(answer, mode == "dry")


def _address(where: Where, given: str | None) -> str:
    address = given or (where.stack or {}).get("descheduler")
    if not address:
        raise Failure(
            "no descheduler: no stack runs in this folder or one above. Start one with `restow up`, name one with "
            "--descheduler http://HOST:8080, or plan offline with --dry-run --log FILE",
            UNREACHABLE,
        )
    if not address.startswith(("http://", "https://")):
        raise Failure(f"--descheduler is {address!r}; allowed: http://HOST:PORT", UNUSABLE)
    return address.rstrip("/")


def _ask(address: str, *, dry: bool) -> dict[str, Any]:
    url = f"{address}/defragment" + ("?dryRun=true" if dry else "")
    request = urllib.request.Request(url, data=b"", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            found = json.load(response)
    except urllib.error.HTTPError as error:
        code = UNREACHABLE if error.code == 503 else UNUSABLE
        raise Failure(f"the descheduler at {address} refuses ({error.code}): {_reason(error)}", code) from None
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise Failure(f"the descheduler at {address} does not answer: {reason}. Is the stack running?", UNREACHABLE) from None
    except ValueError:
        raise Failure(f"what answers at {address} is not a descheduler of Restow", UNUSABLE) from None
    if not isinstance(found, dict):
        raise Failure(f"what answers at {address} is not a descheduler of Restow", UNUSABLE)
    return found


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read(4096).decode(errors="replace").strip()
    try:
        body = json.loads(text)
        return str(body.get("error") or body.get("message") or text)
    except (ValueError, AttributeError):
        return text or error.reason


def _offline(where: Where) -> dict[str, Any]:
    """The plan on the state at the end of a log."""
    import msgspec

    from restow.contracts.commands import Defragment
    from restow.contracts.ids import Millis, PlanId
    from restow.domain.decider import Rejected, decide
    from restow.domain.deciders import DECIDERS
    from restow.replay.at import state_at

    with where.source() as source, Progress("folding the log") as progress:
        state = state_at(source, progress=progress)
        if state.migration_config.defragmentation is None:
            raise Failure(f"{source.name}: no Defragmentation policy was in use in this log", UNUSABLE)
        command = Defragment(Millis(state.time), "api", PlanId("dry-run"))
        try:
            events = decide(state, DECIDERS["migration"], command)
        except Rejected as error:
            raise Failure(f"{source.name}: {error}", UNUSABLE) from None
    return {"dryRun": True, "read": state.seq, "plan": command.plan, "events": msgspec.to_builtins(list(events))}


def _show(answer: dict[str, Any], dry: bool) -> None:
    events = answer.get("events")
    plans = [event for event in events or () if event.get("type") == "migration.planned"]
    if not plans:
        click.echo("nothing was planned: " + (", ".join(event.get("type", "?") for event in events or ()) or "no answer"))
        return
    planned, moves = plans[0], plans[0].get("moves", [])
    what = f"would move {_count(moves, 'pod')}" if dry else f"plan {planned['plan']} moves {_count(moves, 'pod')}"
    click.echo(f"{what} off {_count(planned.get('sources', ()), 'node')}, decided at sequence {answer.get('read') or answer.get('seq')}")
    if moves:
        click.echo()
        rows = [(m["migration"], f"{m['namespace']}/{m['name']}", m["source"], m["target"]) for m in moves]
        table(("MIGRATION", "POD", "SOURCE", "TARGET"), rows, flexible=("POD", "SOURCE", "TARGET"))
    before, after = planned.get("before"), planned.get("after")
    if before and after:
        click.echo()
        gains = [(text, _gpus(key, before), _gpus(key, after)) for key, text in _PACKING.items()]
        table(("", "BEFORE", "AFTER"), gains, right=("BEFORE", "AFTER"), flexible=("",))
    if kept := planned.get("kept"):
        click.echo("\nstay where they are: " + ", ".join(f"{count} {why}" for why, count in sorted(kept.items())))
    if not dry and moves:
        click.echo("\nfollow it: restow log tail -f --family migration")


def _count(things: Any, name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


_PACKING = {
    "free_nodes": "free nodes",
    "free_devices": "whole free GPUs",
    "idle": "idle GPU share",
    "fragmented": "of it fragmented",
}


def _gpus(key: str, packing: dict[str, int]) -> str:
    value = packing.get(key, 0)
    return f"{value / 1000:.2f}" if key in ("idle", "fragmented") else str(value)
