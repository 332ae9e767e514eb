"""`restow watch`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import yaml

from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.embedded.failures import StackError, StackRefused
from restow.cli.embedded.stack import Stack
from restow.cli.failures import BROKEN, UNUSABLE, Failure
from restow.cli.output import output_option
from restow.cli.watch import cluster, rights
from restow.cli.watch.screen import Screen
from restow.domain.config import Config, MigrationConfig
from restow.domain.duration import DurationError, milliseconds
from restow.domain.migration import plans_by_itself
from restow.runtime.config_source import BadConfig, parse, read_file
from restow.runtime.policy_file import read

DATA = Path(".restow") / "watch"
MOST = 200
"""Moves of a plan, where no policy says it: what one may carry out in ten minutes, and the log keeps every plan."""
CAUGHT_UP = 600.0
"""Seconds in which the folder's log must be folded."""


@click.command()
@click.option("--kube", default="", metavar="URL|KUBECONFIG", help="The cluster.  [default: kubectl's configuration]")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="DeschedulerPolicy (YAML); its mode does not count.  [default: the optimizing planner, by the worth of what is free, 200 pods at most]")
@click.option("--every", default="10m", show_default=True, metavar="DURATION", help="How often a plan is made, if the policy does not say.")
@click.option("--data", default=DATA, show_default=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of its log; it goes on from there.")
@click.option("--rbac", is_flag=True, help="Print the rights that it needs, as YAML, and end.")
@output_option
def watch(kube: str, policy_file: Path | None, every: str, data: Path, rbac: bool, output: str) -> None:
    """See what Restow would do in a cluster, without doing it. Nothing is installed there, and nothing is written.

    A broker, the service that reads the cluster, and the planner run on this machine. The planner makes a plan every ten minutes, for the pods of whatever
    scheduler: what it would move, how fragmented the cluster is, how many more pods of each size would fit, what that is worth. It also keeps score: when
    the moves would have been over, were their slots free? Had the pods ended an hour later, so that moving them would have been in vain?

    The Kubernetes API is sent GET and nothing else, so read-only rights suffice (--rbac). Ctrl-C ends it; the log stays in --data. The other commands find it
    from here: `restow get plans`, `restow why`, `restow log export`. So does a browser, at the address that is printed.

    \b
    Examples:
      restow watch
      restow watch --kube prod.yaml --policy policy.yaml
      restow watch --rbac | kubectl apply -f -
    """
    if rbac:
        return click.echo(rights.manifests(), nl=False)
    kube = cluster.kubeconfig(kube)
    resumed = cluster.recognise(data, asyncio.run(cluster.identity(kube)))
    stack = Stack(data, policy=policy_of(policy_file, every), scheduler="", kube=kube, console=True, observe=True)
    try:
        asyncio.run(_watch(stack, resumed, output))
    except StackRefused as error:
        raise Failure(str(error), UNUSABLE) from None
    except StackError as error:
        raise Failure(f"it could not run: {error}", BROKEN) from None
    return None


def policy_of(file: Path | None, every: str) -> str:
    """The policy with `mode: observe`, and a time of its own where it has none. Raises Failure, also where it would never plan anything."""
    try:
        if milliseconds(every) <= 0:
            raise Failure(f"--every is {every!r}; allowed: more than nothing, such as 30s or 10m", UNUSABLE)
    except DurationError as error:
        raise Failure(f"--every: {error}", UNUSABLE) from None
    if file is None:
        return _observing(parse(configs.policy(objective="value", interval="0s", most=MOST)), every)
    found = ""

    def checked(said: Any) -> Config:
        nonlocal found
        found = _observing(said, "" if _timed(said) else every)
        made = read(parse(found))
        if isinstance(made, MigrationConfig) and not plans_by_itself(made):
            raise BadConfig("$.profiles: no plugin is enabled that makes plans, so there would be nothing to see; allowed: one that enables Defragmentation or another plugin (docs/descheduling.md)")
        return made

    try:
        read_file(str(file), checked)
    except BadConfig as error:
        raise Failure(str(error), UNUSABLE) from None
    return found


def _timed(said: Any) -> bool:
    """Whether a policy says itself when plans are made."""
    own = said.get("restow") if isinstance(said, dict) else None
    return isinstance(own, dict) and bool(own.get("interval") or own.get("cron"))


def _observing(said: Any, every: str) -> str:
    """`every`: how often plans are made; empty for as the policy says."""
    own = (said.get("restow") or {}) if isinstance(said, dict) else None
    if not isinstance(own, dict):
        raise BadConfig("it is no DeschedulerPolicy; docs/descheduling.md says what one is")
    return yaml.safe_dump(said | {"restow": own | ({"interval": every} if every else {}) | {"mode": "observe"}}, sort_keys=False)


async def _watch(stack: Stack, resumed: bool, output: str) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    said = output != "json"
    if said:
        click.echo(f"reading {stack.kube} …")
        stack.says = click.echo
    running, stopping = asyncio.create_task(_follow(stack, resumed, output)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        for task in (running, stopping):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        await stack.stop()
        if said:
            click.echo(f"the log is kept in {stack.folder}; the same command goes on from there")


async def _follow(stack: Stack, resumed: bool, output: str) -> None:
    """Until a part of the stack fails."""
    await stack.start()
    assert stack.failed is not None
    if output != "json":
        click.echo(f"nothing is installed there and nothing written. Console: {stack.console}. Ctrl-C ends it.")
    async with Observer(stack.nats, stack.cluster) as observer:
        tail = await observer.log.tail()
        await observer.until("the log is folded", lambda: observer.state.seq >= tail, CAUGHT_UP)
        screen = Screen(observer.state, output)
        screen.begin(resumed)
        while not stack.failed.done():
            screen.look()
            with suppress(TimeoutError):
                await observer.until("something new", lambda: False, 1.0)
        stack.failed.result()
