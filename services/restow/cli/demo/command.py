"""`restow demo`: the main job on a generated cluster, or on a trace's."""

import asyncio
import json
import random
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import aiohttp
import click
from rich.markup import escape

from restow.cli.console import Console
from restow.cli.demo import beside, check, generate, trace
from restow.cli.demo.beside import Beside
from restow.cli.demo.chaos import Chaos
from restow.cli.demo.feed import AHEAD, KEEP_UP, Api, ApiFailed, Feed, create_nodes
from restow.cli.demo.meter import Meter
from restow.cli.demo.observer import Observer
from restow.cli.demo.progress import Phases, console_for
from restow.cli.demo.report import Outcome, bounded_in_words, show
from restow.cli.demo.scenario import NAMESPACE, Scenario, steps
from restow.cli.embedded import configs
from restow.cli.embedded.failures import StackError, StackRefused
from restow.cli.embedded.stack import Stack
from restow.cli.failures import UNUSABLE, Failure
from restow.contracts.ids import SERVICES, PlanId
from restow.domain.deciders import DECIDERS
from restow.domain.defragmentation.bound import OBJECTIVES
from restow.domain.records import FINAL, Step

LOG_NAME = "demo-log.jsonl.zst"

ANY_SEED = -1
PLANNERS = ("greedy", "optimizing")
PLAN_TIMEOUT = 300.0
"""Seconds until a plan must be there, on a machine that is busy with other things. Whoever asks again too early gets two plans."""

CHAOS_PER_MIGRATION = 15
"""Nodes for each migration that is under way at once while services are killed: in waves, so that every step is hit."""
CHAOS_KUBELET = 0.2
"""Speed of the kubelets then, for the same reason."""
CHAOS_PATIENCE = 5.0
"""How many times longer everything may take then."""
CHAOS_FILL = 8
"""Kills that there is time for while workloads arrive."""


@click.command()
@click.option("--trace", "trace_folder", type=click.Path(path_type=Path), help="Folder with the openb csv files (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023/csv); without it, a smaller cluster of the same kind is generated.")
@click.option("--pods", default=trace.PODS, show_default=True, help="Pod list inside the trace's folder.")
@click.option("--nodes", default=120, show_default=True, type=click.IntRange(4, 5000), help="Nodes of the generated cluster.")
@click.option("--seed", default=42, show_default=True, help="Seed of the generated cluster.")
@click.option("--fill", type=click.IntRange(1, 130), help="Percent of all GPUs that pods request before some of them finish.  [default: 95; with planner greedy 85]")
@click.option("--drain", type=click.IntRange(0, 130), help="Percent of all GPUs still requested when defragmentation begins.  [default: 90; with planner greedy 50]")
@click.option("--planner", type=click.Choice(PLANNERS), help="Who makes the plans.  [default: optimizing; with --chaos or --beside greedy, which moves more]")
@click.option("--objective", type=click.Choice(("value", "devices", "nodes")), help="What the optimizing planner gains.  [default: value; nodes where there are no GPUs]")
@click.option("--moves", type=click.IntRange(0, 100), help="Percent of the pods that may move; 0 for no limit.  [default: 3, in one plan; with planner greedy no limit]")
@click.option("--compare", is_flag=True, help="Also show what the greedy planner would have done with as many moves.")
@click.option("--low", default=45, show_default=True, help="lowThresholds: nodes below this GPU utilisation are emptied.")
@click.option("--defragment", default=45, show_default=True, help="defragmentThresholds: nodes above it receive pods.")
@click.option("--protection", type=click.IntRange(1, 100), help="protectionThresholds: nodes stay below it.  [default: 100, which protects none; with planner greedy 99]")
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1, 20), help="Maximum number of plans.")
@click.option("--beside", "scheduler", type=click.Choice(beside.SCHEDULERS), help="The pods belong to this scheduler, and Restow moves them beside it (docs/beside.md).")
@click.option("--chaos", is_flag=False, flag_value=ANY_SEED, default=None, type=click.IntRange(ANY_SEED), metavar="[SEED]", help="Keep killing random services with SIGKILL while the demo runs; every promise must still hold.")
@click.option("--chaos-every", default=0.7, show_default=True, type=click.FloatRange(0.05, 60), help="Seconds between kills, on average.")
@click.option("--chaos-service", "chaos_services", multiple=True, type=click.Choice(SERVICES), metavar="SERVICE", help=f"Kill only this service (may be repeated): {', '.join(SERVICES)}.")
@click.option("--chaos-kills", default=0, show_default=True, type=click.IntRange(0, 1000), help="Number of kills while pods arrive, and again while they move; 0 for no limit.")
@click.option("--chaos-broker", is_flag=True, help="Also kill the broker, once while pods move.")
@click.option("--data", default=".restow", show_default=True, type=click.Path(path_type=Path), help="Folder for everything that the demo writes.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Format of the report.")
def demo(**options) -> None:
    """Fill a GPU cluster until it is fragmented, defragment it, and prove that nothing was lost.

    The embedded stack runs as real processes: a NATS server, an in-memory Kubernetes API with kubelets, and the five
    services. Workloads arrive and finish. The descheduler finds sources and targets, holds slots and evicts; the pods land on
    their holds. At the end, every decision in the log is made again and compared.

    Exit code 1 if a promise is broken: a pod lost, a hold leaked, a node over-committed, a decision that differs.
    """
    _settled(options)
    console = console_for(stderr=options["output"] == "json")
    chaos = _chaos(options)
    try:
        folder = options["trace_folder"]
        if folder is not None:
            scenario = trace.load(folder, options["pods"])
            scenario = beside.with_whole_gpus(scenario) if options["scheduler"] else scenario
        else:
            scenario = generate.generate(options["nodes"], options["seed"], shares=not options["scheduler"])
    except trace.TraceError as error:
        raise Failure(str(error), UNUSABLE) from None
    try:
        outcome = asyncio.run(_until_terminated(_run(scenario, options, console, chaos)))
    except (StackError, TimeoutError, ApiFailed, aiohttp.ClientError, ExceptionGroup) as error:
        console.print(f"[bold red]the demo could not finish:[/] {escape(str(_deepest(error)))}", highlight=False, soft_wrap=True)
        if chaos is not None:
            console.print(f"{chaos.sentence()}; again with --chaos {chaos.seed}", highlight=False)
        if isinstance(_deepest(error), StackRefused):
            sys.exit(UNUSABLE)
        console.print(f"logs of all parts: {options['data'] / 'demo' / 'logs'}", style="dim")
        sys.exit(1)
    except (KeyboardInterrupt, Terminated) as stopped:
        console.print("stopped; nothing is left running")
        sys.exit(143 if isinstance(stopped, Terminated) else 130)
    if options["output"] == "json":
        print(json.dumps(outcome.as_json(), indent=2))
    else:
        show(console, outcome)
    sys.exit(1 if outcome.broken else 0)


def _settled(options: dict) -> None:
    """Give what was not said its value, in place."""
    if options["planner"] is None:
        options["planner"] = "greedy" if options["scheduler"] or options["chaos"] is not None or options["chaos_broker"] else "optimizing"
    optimizing = options["planner"] == "optimizing"
    if options["fill"] is None:
        options["fill"] = 95 if optimizing else 85
    if options["drain"] is None:
        options["drain"] = 90 if optimizing else 50
    if options["protection"] is None:
        options["protection"] = 100 if optimizing else 99
    if options["moves"] is None:
        options["moves"] = 3 if optimizing else 0
    if options["moves"]:
        options["rounds"] = 1


def _objective(scenario: Scenario, options: dict) -> str:
    """Of the optimizing planner; empty for the other one."""
    return (options["objective"] or scenario.objective) if options["planner"] == "optimizing" else ""


def _most(scenario: Scenario, options: dict) -> int:
    """Pods that may move: a share of those that will be there."""
    left = sum(1 if step.arrive else -1 for step in steps(scenario, options["fill"], options["drain"]))
    return max(left * options["moves"] // 100, 1) if options["moves"] else 0


def _chaos(options: dict) -> Chaos | None:
    seed, services, broker = options["chaos"], options["chaos_services"], options["chaos_broker"]
    if seed is None:
        if services:
            raise click.UsageError("--chaos-service needs --chaos")
        if not broker:
            return None
        # Only the broker.
        return Chaos(random.randrange(10**6), targets=(), broker=True)
    seed = random.randrange(10**6) if seed == ANY_SEED else seed
    return Chaos(seed, options["chaos_every"], services or SERVICES, options["chaos_kills"], broker)


class Terminated(Exception):
    """SIGTERM."""


async def _until_terminated(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    """SIGTERM stops everything in order, as Ctrl-C does. Raises Terminated."""
    told = asyncio.Event()
    task = asyncio.ensure_future(work)

    def stop() -> None:
        told.set()
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if told.is_set():
            raise Terminated from None
        raise


def _deepest(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(scenario: Scenario, options: dict, console: Console, chaos: Chaos | None) -> Outcome:
    gpus = scenario.gpu_milli // 1000
    scheduler = options["scheduler"]
    title = f"Restow demo beside {scheduler}" if scheduler else "Restow demo"
    console.print(f"[bold]{title}[/]: {scenario.name}, {len(scenario.nodes)} nodes, {gpus} GPUs, {len(scenario.workloads)} workloads")
    phases = Phases(console)
    outcome = Outcome(scenario.name, len(scenario.nodes), options["planner"], seconds=phases.seconds, beside=Beside(scheduler) if scheduler else None)
    folder = options["data"] / "demo"
    waves = 50 if chaos is None else 1 + len(scenario.nodes) // CHAOS_PER_MIGRATION
    policy = configs.policy(
        resource=scenario.resource,
        low=options["low"], defragment=options["defragment"], protection=options["protection"], concurrent=waves,
        objective=_objective(scenario, options), most=_most(scenario, options),
    )
    policy += f"  beside: [{scheduler}]\n" if scheduler else ""
    speed = 1.0 if chaos is None else CHAOS_KUBELET
    objects = beside.objects() if scheduler else []
    stack = Stack(folder, policy=policy, scheduler=configs.scheduler(), objects=objects, keep=True, kubelet_speed=speed, seed=options["seed"], console=True)
    try:
        async with phases.phase("start", "starting broker, API, services", lambda: f"{len(stack.children) + 1} processes"):
            await stack.start()
        console.print(f"  in a browser, while it runs: {stack.console}", style="dim", highlight=False)
        async with Api(stack.kube) as api, Observer(stack.nats, stack.cluster, foreign=bool(scheduler)) as observer:
            work = asyncio.create_task(_play(scenario, options, phases, outcome, stack, api, observer, chaos), name="demo")
            assert stack.failed is not None
            ends: list[asyncio.Future[Any]] = [work, stack.failed]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not work.done():
                    work.cancel()
                    await asyncio.wait([work])
            if stack.failed.done():
                stack.failed.result()
            await work
        read = 0

        def tell(done: int, total: int) -> None:
            nonlocal read
            read = 100 * done // total if total else 0

        def verified() -> str:
            return f"{outcome.identical} of {outcome.decisions} identical" if outcome.log else f"{read} % of the log"

        async with phases.phase("verify", "deciding everything again", verified):
            await asyncio.to_thread(_verify, stack, options["data"] / LOG_NAME, outcome, tell)
    finally:
        async with phases.phase("stop", "stopping everything", lambda: ""):
            await stack.stop()
    outcome.judge()
    if not outcome.broken:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


async def _play(
    scenario: Scenario, options: dict, phases: Phases, outcome: Outcome, stack: Stack, api: Api, observer: Observer,
    chaos: Chaos | None,
) -> None:
    patience = 1.0 if chaos is None else CHAOS_PATIENCE
    feed = Feed(api, observer, options["scheduler"] or "restow", AHEAD if chaos is None else max(8, len(scenario.nodes) // 5), KEEP_UP * patience)

    def breaking(phase: str, progress: Callable[[], float]):
        return nullcontext() if chaos is None else chaos.during(phase, stack, observer, progress)

    def moved() -> float:
        return sum(m.step in FINAL for m in observer.state.migrations.values()) / max(len(observer.state.migrations), 1)

    play = list(steps(scenario, options["fill"], options["drain"]))
    async with phases.phase("nodes", "registering nodes", lambda: f"{len(observer.state.nodes)} of {len(scenario.nodes)} nodes"):
        await create_nodes(api, scenario)
        await observer.until("all nodes in the log", lambda: len(observer.state.nodes) == len(scenario.nodes), 60)

    def filling() -> str:
        return (
            f"{feed.arrived} arrived, {feed.finished} finished, {observer.running()} running, "
            f"{observer.waiting()} waiting, {'GPUs' if scenario.gpu_milli else 'cpu'} {observer.allocation(scenario.resource)} %"
        )

    async with phases.phase("fill", "workloads arrive and finish", filling), breaking("fill", lambda: (feed.arrived + feed.finished) / len(play)):
        await feed.open()
        if chaos is None and outcome.beside is None:
            await feed.play_in_order(play)
        else:
            await feed.play(play, 0.0 if chaos is None else CHAOS_FILL * chaos.every / len(play))
        expected = len(feed.alive)
        await _settle(api, observer, outcome, 120 * patience, lambda: len(observer.state.pods) == expected)
        if (other := outcome.beside) is not None:
            await observer.until("its scheduler to honour nominations", lambda: other.is_checked(observer.state), 60 * patience)
    outcome.arrived, outcome.finished = feed.arrived, feed.finished
    before = await check.look(api)
    meter = Meter(observer.state)
    outcome.before, outcome.waited = meter.packing(), observer.waiting()
    outcome.worth_before, outcome.whole_before = meter.worth(), meter.gpus_in_free_nodes()
    outcome.objective = _objective(scenario, options)
    if outcome.objective in OBJECTIVES and chaos is None:
        async with phases.phase("plan", "planning, proving a bound", lambda: bounded_in_words(outcome.bound)):
            outcome.bound = await _bound(stack)
    if options["compare"]:
        outcome.greedy = meter.greedy(options, _most(scenario, options))

    planned = False

    def defragmenting() -> str:
        if not outcome.rounds:
            return "nothing to move" if planned else "planning"
        counts = observer.migrations()
        now = observer.packing()
        stand = f", {len(observer.state.stand_ins)} placeholders" if outcome.beside is not None and observer.state.stand_ins else ""
        return (
            f"round {outcome.rounds}: {counts[Step.LANDED]} landed of {outcome.planned}, "
            f"{counts[Step.FAILED] + counts[Step.NOT_RECREATED]} rolled back, {now.free_nodes} free node{'s' * (now.free_nodes != 1)}{stand}"
        )

    async with phases.phase("defragment", "reserve, evict, land", defragmenting), breaking("defragment", moved):
        for _ in range(options["rounds"]):
            if not await _round(stack, observer, outcome):
                break
        planned = True
        await _settle(api, observer, outcome, 120 * patience, lambda: True)
        await observer.until("every hold to be released", lambda: observer.holds() == 0 and not observer.state.reservations, 60 * patience)
        if outcome.beside is not None:
            await outcome.beside.leave(api, patience)
    if chaos is not None:
        outcome.chaos = chaos.as_json()
    counts = observer.migrations()
    outcome.landed = counts[Step.LANDED]
    outcome.rolled_back = counts[Step.FAILED] + counts[Step.NOT_RECREATED]
    outcome.after, outcome.started = meter.packing(), meter.started()
    outcome.worth_after, outcome.whole_after = meter.worth(), meter.gpus_in_free_nodes()
    outcome.unit, outcome.hours, outcome.cost = meter.unit, meter.hours, meter.cost()
    after = await check.look(api)
    outcome.running, outcome.waiting = len(after.running), observer.waiting()
    outcome.moved = check.moved(before, after)
    outcome.lost = check.lost(before, after, feed.alive)
    outcome.rejected = list(after.rejected)
    outcome.leaked = list(after.reservations) + [f"{uid}/{slot}" for held in observer.state.held_on.values() for uid, slot in held]


async def _settle(api: Api, observer: Observer, outcome: Outcome, seconds: float, more: Callable[[], bool]) -> None:
    """Nobody is on the way any more. What another scheduler has not looked at yet, only the API can say."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        left = max(deadline - asyncio.get_running_loop().time(), 0.0)
        await observer.until("the cluster to settle", lambda: observer.settled() and more(), left)
        if outcome.beside is None or await beside.all_tried(api, NAMESPACE):
            return
        await asyncio.sleep(0.05)


async def _round(stack: Stack, observer: Observer, outcome: Outcome) -> bool:
    """One plan, carried out. False where there is nothing to move."""
    plans = await _plan(stack, observer)
    moves = sum(len(observer.state.plans[plan].planned.moves) for plan in plans)
    if not moves:
        return False
    outcome.rounds += 1
    outcome.planned += moves
    names = ", ".join(plans)
    await observer.until(f"plan {names} to be carried out", lambda: all(map(observer.finished, plans)), 300)
    return True


async def _plan(stack: Stack, observer: Observer) -> list[PlanId]:
    """Ask the descheduler for a plan. Where it ended before it could answer, the log says whether it had decided: the next
    leader's first commit comes after everything that the last one wrote."""
    known = set(observer.state.plans)

    def made() -> list[PlanId]:
        return [plan for plan in observer.state.plans if plan not in known]

    deadline = asyncio.get_running_loop().time() + PLAN_TIMEOUT
    while asyncio.get_running_loop().time() < deadline:
        epoch = observer.state.leaders["migration"].epoch
        answered = await _ask_for_plan(stack)
        with suppress(TimeoutError):
            if answered:
                await observer.until("the plan in the log", lambda: bool(made()), 30)
            else:
                await observer.until(
                    "the next leader", lambda e=epoch: bool(made()) or observer.state.leaders["migration"].epoch > e, 1.0  # type: ignore[misc]
                )
        if plans := made():
            return plans
    raise TimeoutError(f"no plan within {PLAN_TIMEOUT:g} s: the descheduler did not answer")


async def _bound(stack: Stack) -> dict[str, Any] | None:
    """What a dry run says of its plan, which is the one that will be made; None where there is no bound for the objective."""
    return json.loads(await _defragment(stack, "?dryRun=true", PLAN_TIMEOUT) or "{}").get("bound")


async def _defragment(stack: Stack, query: str, seconds: float) -> str:
    """The answer, empty where there is none now. Raises ApiFailed where the descheduler refuses."""
    url = f"{stack.http('descheduler')}/defragment{query}"
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout, headers=stack.authorization) as session, session.post(url, json={"trigger": "api"}) as answer:
        if answer.status not in (200, 503):
            raise ApiFailed(f"POST {url}: {answer.status} {await answer.text()}")
        return await answer.text() if answer.status == 200 else ""


async def _ask_for_plan(stack: Stack) -> bool:
    """Whether there was an answer, and it was a plan. Raises ApiFailed where the descheduler refuses."""
    try:
        return bool(await _defragment(stack, "", PLAN_TIMEOUT))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return False


def _verify(stack: Stack, file: Path, outcome: Outcome, tell: Callable[[int, int], None]) -> None:
    from restow.replay.source import open_broker, open_path, save
    from restow.replay.verify import verify

    live = open_broker(stack.nats, stack.cluster)
    try:
        save(live, file)
    finally:
        live.close()
    report = verify(open_path(file), DECIDERS, progress=tell)
    outcome.decisions, outcome.identical = report.decisions, report.identical
    outcome.events = report.events
    outcome.skipped, outcome.void = sum(report.skipped.values()), sum(report.void.values())
    outcome.log = str(file)
    if outcome.beside is not None:
        outcome.beside.read(open_path(file))
    if report.problems:
        outcome.broken.append(f"the log breaks {report.problems} of its rules: {report.found[0].what}")


