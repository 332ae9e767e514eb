"""`restow descheduler run`: one pass of a DeschedulerPolicy, over any cluster with nothing of Restow running in it (`--once`), or by the
descheduler that runs there (`--now`)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from restow.cli.failures import BROKEN, SHOWN, UNUSABLE, Failure, failure_of
from restow.cli.kubeapi import Kube, kube_options
from restow.cli.log_location import Where
from restow.cli.output import emit, output_option
from restow.cli.person import person

if TYPE_CHECKING:
    from restow.cli.descheduler.carry import Carried
    from restow.contracts.ids import Millis
    from restow.domain.descheduling.model import Policy
    from restow.domain.migration.run_once import Pass
    from restow.kube.client import Client
    from restow.kube.list_once import Look

LARGEST = 1 << 20
"""Bytes of a policy."""
OWN = "restow"
"""The block of a policy for what upstream has as flags, or does not have."""


@click.group()
def descheduler() -> None:
    """Evict pods that belong elsewhere, by a policy of kubernetes-sigs/descheduler.

    \b
    Examples:
      restow descheduler run --once --policy policy.yaml --dry-run
      restow descheduler run --now --dry-run
    """


@descheduler.command()
@click.option("--now", is_flag=True, help="Run the policy of the running descheduler: hold first, then move. Follow it to its end.")
@click.option("--once", is_flag=True, help="Run the policy in FILE once, from this command alone, on any cluster.")
@click.option("--policy", "file", type=click.Path(), metavar="FILE", help="With --once: a descheduler/v1alpha2 DeschedulerPolicy.")
@click.option("--dry-run", is_flag=True, help="Show what would be moved or evicted, and do nothing.")
@click.option("--group-by", metavar="LABEL", help="With --now: group nodes by this label; by default, by size.")
@click.option("--no-follow", is_flag=True, help="With --now: return once the plans are made.")
@kube_options
@click.option("--descheduler", "address", metavar="URL", help="With --now: HTTP address of the descheduler; default: RESTOW_DESCHEDULER, else the stack's.")
@click.option("--token-file", metavar="FILE", help="With --now: file with the API's token; also RESTOW_API_TOKEN or RESTOW_API_TOKEN_FILE.")
@output_option
def run(
    now: bool, once: bool, file: str | None, dry_run: bool, group_by: str | None, no_follow: bool, kube: Kube, address: str | None,
    token_file: str | None, output: str,
) -> None:  # fmt: skip
    """Carry out a DeschedulerPolicy, and say what was evicted, why, and why the other pods stay.

    With --now, the descheduler service carries out its own policy: all plugins in upstream's order, and hold first for every
    plan. Ctrl-C stops following, not the plans. Exit code 1: an evicted pod was not recreated.

    With --once, this command does it alone. It lists nodes and pods with your own permissions, decides, and evicts through the
    Eviction API, so disruption budgets hold. It needs nothing of Restow in the cluster. Defragmentation plans as usual, but nothing
    holds the slots it finds, so only moves that wait for no other move are carried out. Exit code 1: an eviction failed for a
    reason other than a budget.

    \b
    Examples:
      restow descheduler run --once --policy policy.yaml --dry-run
      restow descheduler run --once --policy policy.yaml --kube ~/.kube/config
      restow descheduler run --once --policy policy.yaml -o json
      restow descheduler run --now --dry-run
      restow descheduler run --now
    """
    if now == once:
        raise click.UsageError(
            "choose --now (the running descheduler and its policy) or --once (this command alone, with --policy FILE); "
            "for runs at intervals, set restow.interval in the policy of the descheduler service"
        )
    if now:
        from restow.cli.descheduler.service import run as ask

        _only("--once", {"--policy": file, kube.said: kube.said})
        return ask(address, token_file, group_by or "", dry_run, output, follows=not no_follow)
    _only("--now", {"--descheduler": address, "--token-file": token_file, "--group-by": group_by, "--no-follow": no_follow})
    if file is None:
        raise click.UsageError("--once needs --policy FILE, a descheduler/v1alpha2 DeschedulerPolicy")
    return _once(file, dry_run, kube, output)


def _only(way: str, given: dict[str, Any]) -> None:
    """Raises UsageError for an option that only the other way has."""
    for name, value in given.items():
        if value:
            more = "; the running descheduler has its own policy (RESTOW_CONFIG)" if name == "--policy" else ""
            raise click.UsageError(f"{name} works only with {way}{more}")


def _once(file: str, dry_run: bool, kube: Kube, output: str) -> None:
    policy, passed_over = read(file)
    began = time.monotonic()

    async def work(client: Client) -> tuple[Look, Pass, tuple[Carried, ...], int, str]:
        from restow.cli.descheduler.carry import Carrier
        from restow.domain.migration.run_once import carried_out
        from restow.kube.list_once import look
        from restow.kube.metrics import sample

        seen = await look(client)
        now = _now()
        uids = {f"{pod.fact.namespace}/{pod.fact.name}": uid for uid, pod in seen.state.pods.items()}
        samples = await sample(client, policy, uids, now)
        carrier = None if dry_run else Carrier(client, seen.state, now, asyncio.get_running_loop(), person())
        try:
            made = await asyncio.to_thread(carried_out, seen.state, policy, now, samples, carrier)
        except Exception as error:
            gone = [] if carrier is None else [one.eviction for one in carrier.done if one.counts]
            if not gone:
                raise
            # Whoever has gone by then is in no report.
            assert carrier is not None
            await carrier.told()
            names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in (seen.state.pods[one.pod].fact for one in gone[:SHOWN]))
            names += f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
            found = failure_of(error)
            raise Failure(f"{len(gone)} evicted before the run ended early ({names}): {found.message}", found.exit_code) from error
        unsent = 0 if carrier is None else await carrier.told()
        return seen, made, tuple(carrier.done) if carrier is not None else (), unsent, client.url

    seen, made, carried, unsent, url = kube.call(Where(None, None, None, None), work)
    from restow.cli.descheduler import report

    if unsent:
        passed_over = (*passed_over, f"{unsent} Events could not be written: `kubectl describe` of these pods does not tell of their evictions")
    found = report.Report(file, url, policy, seen, made, carried, dry_run, time.monotonic() - began, passed_over)
    if output == "json":
        emit(report.plain(found))
    else:
        report.show(found)
    if any(one.failed for one in carried):
        raise Failure(f"{sum(one.failed for one in carried)} of {len(carried)} evictions failed; the table says why", BROKEN)


def read(file: str) -> tuple[Policy, tuple[str, ...]]:
    """The policy, and what of it says nothing here. Raises Failure, with file, path and what is allowed."""
    from pathlib import Path

    from restow.domain.descheduling.policy import PolicyError, load
    from restow.runtime.config_source import BadConfig, parse

    text = Path(file).read_bytes()
    if len(text) > LARGEST:
        raise Failure(f"{file}: {len(text)} bytes; allowed: up to {LARGEST}", UNUSABLE)
    try:
        document: Any = parse(text)
        if isinstance(document, dict) and OWN in document:
            return load({key: value for key, value in document.items() if key != OWN}), (f"{OWN}: is for the descheduler service, and has no effect here",)
        return load(document), ()
    except (BadConfig, PolicyError, RecursionError) as error:
        raise Failure("\n".join(f"{file}: {line}" for line in (str(error) or "too deeply nested").splitlines()), UNUSABLE) from None


def _now() -> Millis:
    from restow.contracts.ids import Millis

    return Millis(int(time.time() * 1000))
