"""`restow console` and `restow replay`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from restow.cli.descheduler_client import DeschedulerClient, descheduler_options
from restow.cli.failures import UNUSABLE, Failure
from restow.cli.log_location import Where, log_options

if TYPE_CHECKING:
    from restow.replay.source import Source

PORT = 8090
AGAIN = 2.0
"""Seconds between two looks for a log that is not there yet."""


@click.command(name="console")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port on 127.0.0.1; 0 for any that is free.")
@click.option("--on-demand", is_flag=True, help="Read the log only once somebody asks.")
@click.option("--published", is_flag=True, help="In a container: listen on all its addresses, for a port that is published on this machine only.")
@click.option("--address-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write the address to this file.")
@click.option("--access", envvar="RESTOW_CONSOLE_ACCESS", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Who may look, approve plans and set the mode (YAML); also RESTOW_CONSOLE_ACCESS. Without it nothing can be changed.")
@log_options
@descheduler_options
def console(
    file: str | None, port: int, on_demand: bool, published: bool, address_file: Path | None, access: Path | None, client: DeschedulerClient, where: Where
) -> None:
    """Look at a cluster in a browser: a map of its nodes at any instant of its log, with the story of each pod, node, move and plan.

    FILE is an export, or an archive in a folder or a bucket (s3://...); without it, the running log, which the page then follows. The log is read
    and nothing else: nothing can be changed from the page, unless --access says who may approve plans; they go to the descheduler. It answers on
    127.0.0.1 only, without --access to everybody who is on this machine, and needs nothing from any other host. Ctrl-C ends it. A running log that has let its beginning go is shown from its oldest snapshot on, or with
    --archive from its beginning.

    \b
    Examples:
      restow console .restow/demo-log.jsonl.zst    what `restow demo` has left
      restow console                               the stack running here, live
      restow console --server nats://broker:4222 --cluster prod
      restow console --access access.yaml          and let those approve plans that it names
    """
    from restow.replay.state_at import check_whole

    where.log = file or where.log
    if on_demand and not where.log:
        _wait_for_the_log(where)
    with where.source() as source:
        if where.log:
            check_whole(source)
        asyncio.run(_serve(source, where, port, address_file, access, client, on_demand=on_demand, published=published))


@click.command(name="replay")
@click.argument("file", metavar="FILE")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="Port on 127.0.0.1; 0 for any that is free.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def replay(file: str, port: int, no_browser: bool) -> None:
    """Open a recorded log in a browser and be led through it: who waited, what was planned, how a place was held before its pod was moved, and what it came to.

    FILE is an export, or an archive in a folder or a bucket (s3://...). It is all that is needed: no cluster, no broker. Where there is no
    desktop, open the address that is printed. Ctrl-C ends it. `restow console FILE` opens the same without the tour.

    \b
    Examples:
      restow replay .restow/demo-log.jsonl.zst
    """
    from restow.replay.state_at import check_whole

    where = Where(file, None, None, None)
    with where.source() as source:
        check_whole(source)
        asyncio.run(_serve(source, where, port, None, None, None, fragment="/#tour=1", browser=not no_browser and _has_desktop()))


def _wait_for_the_log(where: Where) -> None:
    """As the services do, beside which it is started: there is a broker, one of them has made the log, and other passwords or TLS have reached both sides. What no broker will ever do is raised."""
    from restow.eventlog.port import NoBroker, NoLog, NotLetIn, Unavailable

    # The first process of a container has no signal handlers but its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    said = ""
    while True:
        try:
            with where.source():
                return
        except (NoBroker, NotLetIn, NoLog, Unavailable) as error:
            if str(error) != said:
                said = str(error)
                click.echo(f"waiting for the log: {said}", err=True)
        time.sleep(AGAIN)


def _has_desktop() -> bool:
    """Else a browser would be one of the terminal, which knows no JavaScript."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


async def _serve(
    source: Source, where: Where, port: int, address_file: Path | None, access: Path | None, client: DeschedulerClient | None, *, on_demand: bool = False, published: bool = False,
    fragment: str = "", browser: bool = False,
) -> None:  # fmt: skip
    from restow.console.service import Access, BadAccess, Console, Orders
    from restow.runtime import logs

    # Unless this is said, a traceback has the values of all variables, and so tokens and cookies of those who have asked.
    logs.configure("info", "console")

    def descheduler() -> tuple[str, str]:
        assert client is not None
        try:
            return client.address, client.token
        except Failure as error:
            raise LookupError(str(error)) from None

    try:
        who = Access(access) if access is not None else None
    except (BadAccess, OSError) as error:
        raise Failure(f"--access {access}: {error.strerror if isinstance(error, OSError) else error}", UNUSABLE) from None
    console = Console(source, on_demand=on_demand, published=published, access=who, orders=Orders(descheduler) if who is not None else None, verify=where.arguments)
    try:
        await console.start(port)
    except OSError as error:
        raise Failure(f"port {port} of 127.0.0.1 cannot be used ({error.strerror}); name another one with --port", UNUSABLE) from None
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, ended.set)
    if address_file is not None:
        address_file.write_text(console.address)
    click.echo(f"{console.address}{fragment}  shows {source.name}; Ctrl-C ends it")
    if who is None and console.follower.live:
        click.echo("Nothing can be changed from the page; --access FILE lets people approve plans (docs/console.md)")
    if browser:
        click.launch(console.address + fragment)
    await ended.wait()
    await console.stop()
