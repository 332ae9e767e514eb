"""`restow up`: the embedded stack, kept running."""

import asyncio
import os
import shlex
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from restow.cli import background
from restow.cli.console import Console
from restow.cli.demo.feed import Api, together
from restow.cli.demo.generate import generate
from restow.cli.embedded import configs
from restow.cli.embedded.failures import StackError, StackRefused
from restow.cli.embedded.stack import Stack
from restow.cli.failures import BROKEN, UNUSABLE, Failure
from restow.cli.log_location import find_stack
from restow.contracts.ids import SERVICES
from restow.kubesim.nodes import NodeShape, build_node


@click.command()
@click.option("--nodes", default=6, show_default=True, type=click.IntRange(0, 5000), help="Simulated GPU nodes to register.")
@click.option("--nodes-from", "node_files", multiple=True, type=click.Path(path_type=Path, exists=True, dir_okay=False), help="YAML with Node objects, instead of simulated ones.")
@click.option("--apply", "files", multiple=True, type=click.Path(path_type=Path, exists=True, dir_okay=False), help="YAML with objects to create at start.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port of the Kubernetes API; 0 for any free one.")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="DeschedulerPolicy (YAML).  [default: GPU defragmentation, by `restow defrag --now` alone]")
@click.option("--scheduler-config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Scheduler configuration (YAML).")
@click.option("--score", type=click.Choice(["leastAllocated", "binpack"]), default="leastAllocated", show_default=True, help="Node score, if there is no --scheduler-config.")
@click.option("--kube", default="", metavar="URL|KUBECONFIG|FOLDER", help="Use this Kubernetes API instead of a simulated one; missing CRDs are created. FOLDER: a kubeconfig per service, <service>.yaml, and admin.yaml.")
@click.option("--data", default=".restow", show_default=True, type=click.Path(path_type=Path), help="Folder for everything that the stack writes.")
@click.option("--keep", is_flag=True, help="Keep everything in the folder afterwards, including the broker's store, the archive and the services' logs.")
@click.option("--delete-log", is_flag=True, help="Keep nothing afterwards, not even the log.")
@click.option("-d", "--detach", is_flag=True, help="Return once everything is up; `restow down` stops it.")
def up(nodes, node_files, files, port, policy_file, scheduler_config, score, kube, data, keep, delete_log, detach) -> None:
    """Run the embedded stack until Ctrl-C: broker, Kubernetes API with simulated kubelets, and the five services.

    Plain kubectl works with it, and other restow commands in this folder find it, where its own is .restow. When it stops, its log stays in
    the --data folder as one sealed file, log-<time>.jsonl.zst.
    """
    console = Console(highlight=False)
    _check_outside(kube, bool(node_files or files))
    background.refuse_second(data)
    if detach:
        background.detach(data, console)
        return
    stack = Stack(
        data,
        policy=policy_file or configs.policy(),
        scheduler=scheduler_config or configs.scheduler(score),
        objects=files,
        nodes=node_files,
        port=port,
        keep=keep,
        save=not delete_log,
        kube=kube,
        console=True,
    )
    try:
        asyncio.run(_run(stack, 0 if node_files or kube else nodes, console, defragments=policy_file is None))
    except StackRefused as error:
        raise Failure(str(error), UNUSABLE) from None
    except StackError as error:
        raise Failure(f"the stack could not run: {error}", BROKEN) from None


def _check_outside(kube: str, creates: bool) -> None:
    if not kube:
        return
    if creates:
        raise click.UsageError("--kube does not work with --nodes-from or --apply: create objects with kubectl")
    if os.path.isdir(kube):
        missing = [name for name in ("admin.yaml", *(f"{service}.yaml" for service in SERVICES)) if not (Path(kube) / name).is_file()]
        if missing:
            raise click.UsageError(f"--kube is the folder {kube!r}, which lacks {', '.join(missing)}")
    elif not kube.startswith(("http://", "https://")) and not os.path.isfile(kube):
        allowed = "http://host:port, https://host:port, the path of a kubeconfig, or of a folder with one for each service"
        raise click.UsageError(f"--kube is {kube!r}; allowed: {allowed}")


async def _run(stack: Stack, nodes: int, console: Console, *, defragments: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    parts = f" and five services on {stack.kube}" if stack.outside else ", a Kubernetes API and five services"
    console.print(f"starting a NATS server{parts} …", style="dim")
    stack.says = partial(console.print, style="yellow", soft_wrap=True)
    starting = asyncio.create_task(_start(stack, nodes))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            if stack.rescued is not None:
                background.say_saved(stack.rescued, console, of=" of the stack before")
            _greet(stack, nodes, console, defragments=defragments)
            assert stack.failed is not None
            ends: list[asyncio.Future[Any]] = [stack.failed, stopping]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if stack.failed.done():
                stack.failed.result()
    finally:
        for task in (starting, stopping):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        with suppress(OSError):  # It may go to a file on a disk that is full.
            console.print("stopping …", style="dim")
        await stack.stop()
        if stack.saved is not None:
            background.say_saved(stack.saved, console)


async def _start(stack: Stack, nodes: int) -> None:
    await stack.start()
    if nodes:
        shapes = [NodeShape(n.name, n.cpu, n.memory, gpus=n.gpus, gpu_model=n.model) for n in generate(max(nodes, 4)).nodes[:nodes]]
        async with Api(stack.kube) as api:
            await together(partial(api.create, "/api/v1/nodes", build_node(s, number=i)) for i, s in enumerate(shapes))


def _greet(stack: Stack, nodes: int, console: Console, *, defragments: bool) -> None:
    """`defragments`: the policy is the stack's own. Another one may not have the plugin."""
    console.print(f"[bold green]Restow is up[/] with {nodes} simulated nodes. Ctrl-C stops it." if nodes else "[bold green]Restow is up[/]. Ctrl-C stops it.")
    commands = f"restow get nodes · restow log tail -f · restow {'defrag --dry-run' if defragments else 'get plans'}"
    if (find_stack(Path.cwd()) or {}).get("pid") != os.getpid():
        # Commands find a folder that is called .restow, here or above.
        commands = f"restow get nodes --cluster {stack.cluster} --server \"$(cat {shlex.quote(str(stack.files.nats_file))})\""
    rows = (
        ("Kubernetes", f"kubectl {'--server' if stack.kube.startswith('http') else '--kubeconfig'} {stack.kube} get nodes"),
        ("Restow", commands),
        ("console", f"{stack.console} in a browser"),
        ("broker", stack.address),
        ("logs", str(stack.folder / "logs")),
    )
    for name, value in rows:
        console.print(f"  {name:<11} {value}", soft_wrap=True)
