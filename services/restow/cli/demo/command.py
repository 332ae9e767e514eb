"""`restow demo`: the main job on a generated cluster, or on a trace's."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import aiohttp
import click
from rich.console import Console

from restow.cli.demo import check, generate, trace
from restow.cli.demo.feed import Api, ApiFailed, Feed, create_nodes
from restow.cli.demo.observer import Observer
from restow.cli.demo.progress import Phases, console_for
from restow.cli.demo.report import Outcome, show
from restow.cli.demo.scenario import Scenario, steps
from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack, StackError
from restow.domain.deciders import DECIDERS
from restow.domain.records import Step

LOG_NAME = "demo-log.jsonl.zst"


@click.command()
@click.option("--trace", "trace_folder", type=click.Path(path_type=Path), help="Folder with the openb csv files; without it a smaller cluster of the same kind is generated.")
@click.option("--pods", default=trace.PODS, show_default=True, help="Pod list inside the trace's folder.")
@click.option("--nodes", default=120, show_default=True, type=click.IntRange(4, 5000), help="Nodes of the generated cluster.")
@click.option("--seed", default=42, show_default=True, help="Seed of the generated cluster.")
@click.option("--fill", default=85, show_default=True, type=click.IntRange(1, 130), help="Percent of all GPUs that may be asked for before pods finish.")
@click.option("--drain", default=50, show_default=True, type=click.IntRange(0, 130), help="Percent of all GPUs still asked for when defragmentation begins.")
@click.option("--low", default=45, show_default=True, help="lowThresholds: nodes below this GPU utilisation are emptied.")
@click.option("--defragment", default=45, show_default=True, help="defragmentThresholds: nodes above it receive pods.")
@click.option("--protection", default=99, show_default=True, help="protectionThresholds: nodes stay below it.")
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1, 20), help="Plans at most.")
@click.option("--data", default=".restow", show_default=True, type=click.Path(path_type=Path), help="Folder for everything that the demo writes.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form of the report.")
def demo(**options) -> None:
    """Fill a GPU cluster until it is fragmented, defragment it, and prove that nothing was lost.

    The embedded stack comes up as real processes: a NATS server, an in-memory Kubernetes API with kubelets, and the five
    services. Workloads arrive and finish; the descheduler finds sources and targets, reserves, evicts; the pods land on
    their holds. At the end every decision in the log is decided again and compared.

    Exits with 1 if a promise is broken: a pod lost, a hold leaked, a node over-committed, a decision that differs.
    """
    console = console_for(stderr=options["output"] == "json")
    try:
        folder = options["trace_folder"]
        if folder is not None:
            scenario = trace.load(folder, options["pods"])
        else:
            scenario = generate.generate(options["nodes"], options["seed"])
    except trace.TraceError as error:
        raise click.UsageError(str(error)) from None
    try:
        outcome = asyncio.run(_run(scenario, options, console))
    except (StackError, TimeoutError, ApiFailed, aiohttp.ClientError, ExceptionGroup) as error:
        console.print(f"[bold red]the demo could not finish:[/] {_deepest(error)}", highlight=False)
        console.print(f"logs of all parts: {options['data'] / 'demo' / 'logs'}", style="dim")
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running")
        sys.exit(130)
    if options["output"] == "json":
        print(json.dumps(outcome.as_json(), indent=2))
    else:
        show(console, outcome)
    sys.exit(1 if outcome.broken else 0)


def _deepest(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(scenario: Scenario, options: dict, console: Console) -> Outcome:
    gpus = scenario.gpu_milli // 1000
    console.print(f"[bold]Restow demo[/]: {scenario.name}, {len(scenario.nodes)} nodes, {gpus} GPUs, {len(scenario.workloads)} workloads")
    phases = Phases(console)
    outcome = Outcome(scenario.name, len(scenario.nodes), seconds=phases.seconds)
    folder = options["data"] / "demo"
    policy = configs.policy(low=options["low"], defragment=options["defragment"], protection=options["protection"])
    stack = Stack(folder, policy=policy, scheduler=configs.scheduler(), keep=True)
    try:
        async with phases.phase("start", "starting 7 processes", lambda: ", ".join(stack.children)):
            await stack.start()
        async with Api(stack.kube) as api, Observer(stack.nats, stack.cluster) as observer:
            work = asyncio.create_task(_play(scenario, options, phases, outcome, stack, api, observer), name="demo")
            assert stack.failed is not None
            await asyncio.wait([work, stack.failed], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
                stack.failed.result()
            await work
        async with phases.phase("verify", "deciding everything again", lambda: f"{outcome.identical} of {outcome.decisions} identical"):
            await asyncio.to_thread(_verify, stack, options["data"] / LOG_NAME, outcome)
    finally:
        async with phases.phase("stop", "stopping everything", lambda: ""):
            await stack.stop()
    outcome.judge()
    if not outcome.broken:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


async def _play(
    scenario: Scenario, options: dict, phases: Phases, outcome: Outcome, stack: Stack, api: Api, observer: Observer
) -> None:
    feed = Feed(api, observer)
    async with phases.phase("nodes", "registering nodes", lambda: f"{len(observer.state.nodes)} of {len(scenario.nodes)} nodes"):
        await create_nodes(api, scenario)
        await observer.until("all nodes in the log", lambda: len(observer.state.nodes) == len(scenario.nodes), 60)

    def filling() -> str:
        return (
            f"{feed.arrived} arrived, {feed.finished} finished, {observer.running()} running, "
            f"{len(observer.state.parked)} waiting, GPUs {observer.allocation() / 100:.0f} %"
        )

    async with phases.phase("fill", "workloads arrive and finish", filling):
        await feed.play(steps(scenario, options["fill"], options["drain"]))
        expected = len(feed.alive)
        await observer.until(
            "the cluster to settle", lambda: observer.settled() and len(observer.state.pods) == expected, 120
        )
    outcome.arrived, outcome.finished = feed.arrived, feed.finished
    before = await check.look(api)
    outcome.before = observer.packing()

    def defragmenting() -> str:
        counts = observer.migrations()
        now = observer.packing()
        return (
            f"round {outcome.rounds}: {counts[Step.LANDED]} landed of {outcome.planned}, "
            f"{counts[Step.FAILED] + counts[Step.NOT_RECREATED]} rolled back, {now.free_nodes} free nodes"
        )

    async with phases.phase("defragment", "reserve, evict, land", defragmenting):
        for _ in range(options["rounds"]):
            if not await _round(stack, observer, outcome):
                break
        await observer.until("the cluster to settle", observer.settled, 120)
        await observer.until("every hold to be released", lambda: observer.holds() == 0 and not observer.state.reservations, 60)
    counts = observer.migrations()
    outcome.landed = counts[Step.LANDED]
    outcome.rolled_back = counts[Step.FAILED] + counts[Step.NOT_RECREATED]
    outcome.after = observer.packing()
    after = await check.look(api)
    outcome.running, outcome.waiting = len(after.running), len(observer.state.parked)
    outcome.moved = check.moved(before, after)
    outcome.lost = check.lost(before, after, feed.alive)
    outcome.rejected = list(after.rejected)
    outcome.leaked = list(after.reservations) + [f"{uid}/{slot}" for held in observer.state.held_on.values() for uid, slot in held]


async def _round(stack: Stack, observer: Observer, outcome: Outcome) -> bool:
    """One plan, carried out. False where there is nothing to move."""
    url = f"{stack.http('descheduler')}/defragment"
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, json={"trigger": "api"}) as answer:
        body = await answer.json()
        if answer.status >= 400:
            raise ApiFailed(f"POST {url}: {answer.status} {body}")
    plan = body["plan"]
    moves = sum(len(event["moves"]) for event in body["events"] if event["type"] == "migration.planned")
    if not moves:
        return False
    outcome.rounds += 1
    outcome.planned += moves
    await observer.until(f"plan {plan} to be carried out", lambda: observer.finished(plan), 300)
    return True


def _verify(stack: Stack, file: Path, outcome: Outcome) -> None:
    from restow.replay.exported import write
    from restow.replay.source import open_broker, open_path
    from restow.replay.verify import verify

    live = open_broker(stack.nats, stack.cluster)
    try:
        records = (record for batch in live.batches() for record in batch)
        write(file, records, first=live.first, last=live.last, log_id=live.log_id, cluster=live.cluster)
    finally:
        live.close()
    report = verify(open_path(file), DECIDERS)
    outcome.decisions, outcome.identical = report.decisions, report.identical
    outcome.events = report.events
    outcome.skipped, outcome.void = sum(report.skipped.values()), sum(report.void.values())
    outcome.log = str(file)
    if report.problems:
        outcome.broken.append(f"the log breaks {report.problems} of its rules: {report.found[0].what}")


