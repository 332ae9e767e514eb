"""`restow doctor`: what is not well in a cluster, and what to do."""

from __future__ import annotations

import http.client
import json
import textwrap
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from restow.cli.failures import BROKEN
from restow.cli.kubeapi import Kube, kube_options
from restow.cli.log_location import Where, service_of
from restow.cli.output import colored, emit, faint, output_option, plain, width
from restow.contracts.ids import SERVICES
from restow.contracts.redact import redacted

if TYPE_CHECKING:
    from restow.cli.doctor.checks import Denied, Finding, Pod, Seen
    from restow.kube.client import Client

TIMEOUT = 5.0
"""Seconds for one answer of a service."""
_SHOWN = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "bad": ("BAD", "red"), "unknown": ("unknown", "blue")}


@click.command()
@click.option("--services", envvar="RESTOW_SERVICES", default="", metavar="URL,...", help="Services that run beside the cluster and not in it; also RESTOW_SERVICES, which compose sets.")
@kube_options
@output_option
def doctor(services: str, kube: Kube, output: str) -> None:
    """Say what is not well with Restow in a cluster, and what to do.

    It looks at the API server, clocks, definitions, services, broker, leaders, the rights of the services, and at what gates the pods of other
    schedulers; and it asks every service how it is. It uses your own rights, and changes nothing.
    Exit code 1 if something is bad.

    \b
    Examples:
      restow doctor
      restow doctor --kube ~/.kube/config -o json
    """
    from restow.cli.doctor.checks import examine

    where = Where(None, None, None, None)
    found = examine(_seen(kube, where, [one for one in services.split(",") if one.strip()]))
    if output == "json":
        emit([one._asdict() for one in found])
    else:
        _show(found)
    if any(one.word == "bad" for one in found):
        raise click.exceptions.Exit(BROKEN)


def _seen(kube: Kube, where: Where, beside: list[str]) -> Seen:
    from restow import machine
    from restow.cli.doctor.checks import Stack
    from restow.cli.doctor.look import Looker

    async def look(client: Client) -> Seen:
        return (await Looker(client, machine.now()).look())._replace(api=kube.shown(where, client.url))

    seen = kube.call(where, look)
    if beside:
        return seen._replace(stack=Stack("docker compose logs {}, or where else its log goes", [_of_stack(urlsplit(one.strip()).hostname or one, one.strip().rstrip("/")) for one in beside], named=True))
    stack = where.stack if not kube.said else None
    if stack is None or seen.installations:
        return seen
    services = [_of_stack(name, service_of(stack, name)) for name in stack.get("services", {})]
    logs = f"{stack.get('logs', '')}/{{}}.log"
    folder = Path(stack.get("kube", "")).parent
    accounts = {name: folder / f"{name}.yaml" for name in SERVICES}
    if not all(file.is_file() for file in accounts.values()):
        return seen._replace(stack=Stack(logs, services))
    lacks = [_lacks(where, file, name.replace("_", "-"), seen.gate is not None) for name, file in accounts.items()]
    denied = [one for found in lacks for one in found or ()]
    return seen._replace(stack=Stack(logs, services, str(folder), None if None in lacks else denied))


def _lacks(where: Where, kubeconfig: Path, service: str, beside: bool) -> list[Denied] | None:
    """By its own word: the folder that `restow up --kube` was given has an account for each service."""
    from restow import machine
    from restow.cli.doctor.look import Looker

    return Kube(str(kubeconfig), None).call(where, lambda client: Looker(client, machine.now()).lacks(service, beside))


def _of_stack(name: str, address: str) -> Pod:
    """A service that `restow up` runs."""
    from restow.cli.doctor.checks import Pod
    from restow.cli.doctor.look import read_report

    try:
        report, state = read_report(_asked(f"{address}/readyz")), json.loads(_asked(f"{address}/state"))
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        return Pod(name, name, False, why=f"{redacted(address)} does not answer ({redacted(str(reason)) or type(reason).__name__})")
    if report is None:
        return Pod(name, name, False, why=f"what answers at {redacted(address)} is no service of Restow's")
    return Pod(name, name, report.ready, service=state.get("service", "")).heard(report, state)


def _asked(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        return error.read()


def _show(found: list[Finding]) -> None:
    about = ""
    for one, after in zip(found, [*found[1:], None], strict=True):
        word, color = _SHOWN[one.word]
        head = f"{one.about if one.about != about else '':<12}  {colored(f'{word:<8}', color)} "
        about = one.about
        for i, line in enumerate(_wrapped(one.what)):
            click.echo((head if not i else " " * 23) + line)
        # The same for several in a row is said behind the last of them.
        again = after is not None and (after.about, after.do) == (one.about, one.do)
        for i, line in enumerate(_wrapped(one.do) if one.do and not again else ()):
            click.echo(" " * 23 + faint(("→ " if not i else "  ") + line))
    bad, warned = (sum(one.word == word for one in found) for word in ("bad", "warning"))
    click.echo(f"\n{'all is well' if not bad and not warned else f'{bad} bad, {warned} to be looked at'}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(plain(text), max(min(width(), 140) - 25, 30), break_on_hyphens=False, break_long_words=False)
