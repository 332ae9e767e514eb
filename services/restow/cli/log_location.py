"""Where the log and the services are: a file, a broker, or the stack that runs in this folder or one above."""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure

if TYPE_CHECKING:
    from restow.contracts.ids import Millis
    from restow.eventlog.jetstream import JetStreamLog
    from restow.replay.source import LiveSource, Source
    from restow.replay.times import Point

CLUSTER = "default"
"""The services' default (`RESTOW_CLUSTER`)."""


UP_LOG = "up.log"
"""What a detached stack says, in its folder. It stays where the stack ended by itself."""

CONNECT = 5.0
"""Seconds to connect to a broker."""


class Where:
    """What the options say. `stack` is None where none was announced."""

    def __init__(self, log: str | None, server: str | None, cluster: str | None, archive: str | None) -> None:
        self.log, self._server, self._cluster, self._archive = log, server, cluster, archive

    @property
    def arguments(self) -> list[str]:
        """The same for another command in this folder and environment."""
        said = (("--log", self.log), ("--server", self._server), ("--cluster", self._cluster), ("--archive", self._archive))
        return [part for name, value in said if value for part in (name, value)]

    @functools.cached_property
    def stack(self) -> dict[str, Any] | None:
        return find_stack(Path.cwd())

    @property
    def server(self) -> str | None:
        return self._server or os.environ.get("RESTOW_NATS_URL") or self._stacks

    @property
    def login(self) -> dict[str, Any]:
        """User, password and files for the broker, beside its address: only where all are from the environment, as a service's are. Another
        broker's address (`--server`) names its own user, and never gets this password or key; whom to believe holds for every broker."""
        from restow.eventlog.access import AccessFiles, of_environment

        files, user = of_environment(os.environ), os.environ.get("RESTOW_NATS_USER")
        if self._server or not os.environ.get("RESTOW_NATS_URL"):
            return {"files": AccessFiles(ca=files.ca)}
        return {"files": files} | ({"user": user, "password": os.environ.get("RESTOW_NATS_PASSWORD", "")} if user else {})

    @property
    def _stacks(self) -> str | None:
        """The address of the stack's broker, with the user who only reads. Raises Failure where the stack is another person's."""
        stack = self.stack or {}
        if not (file := stack.get("nats_file")):
            return stack.get("nats")
        try:
            return Path(file).read_text().strip()
        except FileNotFoundError:
            return stack.get("nats")
        except OSError as error:
            raise Failure(f"{file} cannot be read ({error.strerror}): the stack of {stack['file']} belongs to another user", UNUSABLE) from None

    def writer(self) -> tuple[str, dict[str, str]]:
        """The broker's address and login for whoever may append. Of the stack that runs here that is not the user who only reads."""
        server = self.need_server()
        file = (self.stack or {}).get("operator_file") if self.is_the_stacks else None
        if not file:
            return server, self.login
        try:
            return Path(file).read_text().strip(), {}
        except OSError as error:
            raise Failure(f"{file} cannot be read ({error.strerror}): the stack belongs to another user", UNUSABLE) from None

    @property
    def cluster(self) -> str:
        own = self._cluster or os.environ.get("RESTOW_CLUSTER")
        elsewhere = self._server or os.environ.get("RESTOW_NATS_URL")
        return own or (not elsewhere and (self.stack or {}).get("cluster")) or CLUSTER

    @property
    def is_the_stacks(self) -> bool:
        """Whether the log is that of the stack that runs here: nothing names another one."""
        return not (self.log or self._server or os.environ.get("RESTOW_NATS_URL"))

    @property
    def named_archive(self) -> bool:
        """Whether somebody has named the archive, and it is not just the stack's."""
        return bool(self._archive)

    @property
    def archive(self) -> str | None:
        if self._archive:
            return self._archive
        elsewhere = self._server or os.environ.get("RESTOW_NATS_URL")
        data = None if elsewhere else (self.stack or {}).get("archive")
        if not data:
            return None
        # The garbage collector writes to `<its data>/archive/<cluster>`.
        places = (Path(data) / "archive" / self.cluster, Path(data) / self.cluster, Path(data))
        return next((str(place) for place in places if any(place.glob("*.jsonl.zst"))), None)

    @property
    def collectors_archive(self) -> str | None:
        """`archive`, or in the garbage collector's container the one that it writes."""
        from restow.runtime.settings import Settings

        if self.archive:
            return self.archive
        return Settings(data=os.environ.get("RESTOW_DATA", ""), archive=os.environ.get("RESTOW_ARCHIVE", "")).archive_of(self.cluster)

    def need_server(self) -> str:
        """The broker's address. Raises Failure with what can be done."""
        if server := self.server:
            self._check_alive()
            return server
        ended = Path(".restow") / UP_LOG
        kept = max(Path(".restow").glob("log-*.jsonl.zst"), default=None)
        raise Failure(
            "no log: no stack is running in this folder or one above. Start one with `restow up`, name a broker with "
            "--server nats://HOST:4222 --cluster NAME, or read a file with --log FILE"
            + (f"; the last log kept here is {kept}" if kept else "")
            + (f". The last stack ended by itself; see {ended}" if ended.exists() else ""),
            UNREACHABLE,
        )

    def _check_alive(self) -> None:
        if self._server or os.environ.get("RESTOW_NATS_URL"):
            return
        if ended := self.ended():
            raise Failure(f"{ended}. Start one with `restow up`, or name a broker with --server", UNREACHABLE)

    def ended(self) -> str:
        """That the stack has ended, where it has: one that was killed leaves its description behind."""
        stack = self.stack
        if stack is None:
            return ""
        try:
            os.kill(int(stack.get("pid", 0)) or os.getpid(), 0)
        except PermissionError:
            return ""
        except (OSError, ValueError, TypeError):
            return f"the stack of {stack['file']} has ended (process {stack['pid']})"
        return ""

    def not_a_file(self, so: str) -> None:
        """Raises Failure where a file is named, which nobody acts on. `so`: what follows from that."""
        if self.log:
            raise Failure(f"{self.log} is a file, so {so}", UNUSABLE)

    @contextmanager
    def source(self) -> Iterator[Source]:
        """The log, open for reading and closed at the end."""
        from restow.replay.source import open_path

        opened: Source = open_path(self.log) if self.log else self.live()
        try:
            yield opened
        finally:
            opened.close()

    def live(self, *, archived: bool = True) -> LiveSource:
        """The broker's log, and `archived` what was truncated from it, too. Raises Failure where only a file is named."""
        from restow.replay.source import open_broker

        if self.log:
            raise Failure(f"{self.log} is a file; this needs a running log", UNUSABLE)
        server = self.need_server()
        logging.getLogger("restow").setLevel(logging.ERROR)
        logging.getLogger("nats").setLevel(logging.CRITICAL)
        return open_broker(server.split(","), self.cluster, archive=self.archive if archived else None, wait=CONNECT, **self.login)

    @asynccontextmanager
    async def opened(self, servers: str, login: dict[str, Any]) -> AsyncIterator[JetStreamLog]:
        """The broker's log, which is there, for a command that does more than read it; what goes wrong is the answer, and is not logged beside it."""
        from restow.eventlog.jetstream import connect

        for name in ("restow", "nats"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        log = await connect(servers.split(","), self.cluster, create=False, name="restow-cli", wait=CONNECT, **login)
        try:
            yield log
        finally:
            await log.close()

    def present(self, last: Millis) -> Millis:
        """What ages count from: this moment, or for a file its `last` commit's time."""
        import time

        from restow.contracts.ids import Millis

        return last if self.log else Millis(max(last, int(time.time() * 1000)))

    def now(self, source: Source) -> Millis:
        """What `-5m` counts from: this moment, or for a file its last commit's time."""
        import time

        from restow.contracts.ids import Millis
        from restow.replay.state_at import time_of

        if not self.log:
            return Millis(int(time.time() * 1000))
        last = [record for batch in source.batches(source.last) for record in batch]
        return time_of(last[-1]) if last else Millis(0)

    def point(self, text: str, source: Source) -> Point:
        """The point of the log that it names. Raises PointError."""
        from restow.contracts.ids import Millis
        from restow.replay.times import parse_point

        return parse_point(text, self.now(source) if text.strip().startswith("-") else Millis(0))


def find_stack(folder: Path) -> dict[str, Any] | None:
    """The announcement of a stack in this folder or one above: what it says, and its `file`."""
    for place in (folder, *folder.parents):
        for file in (place / ".restow" / "stack.json", place / ".restow" / "demo" / "stack.json", place / ".restow" / "watch" / "stack.json"):
            try:
                found = json.loads(file.read_text())
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise Failure(f"{file} cannot be read ({error}); remove it, or start the stack again", UNUSABLE) from None
            if isinstance(found, dict):
                return found | {"file": str(file)}
    return None


def service_of(stack: dict[str, Any], name: str) -> str:
    """The HTTP address of a service that the stack runs; empty where none is known. One that was restarted has another address than the announced one."""
    try:
        found = (Path(stack["file"]).parent / "run" / f"{name}.http").read_text().strip()
    except OSError:
        found = ""
    return found or stack.get("services", {}).get(name, "")


def log_options(command: Callable) -> Callable:
    """The options that say where the log is; the command gets `where`."""

    @functools.wraps(command)
    def wrapped(log: str | None, server: str | None, cluster: str | None, archive: str | None, **rest: Any) -> Any:
        return command(where=Where(log, server, cluster, archive), **rest)

    for option in (
        click.option("--archive", metavar="DIR|S3", help="Archive with what was truncated from the stream: a folder, or s3://BUCKET/PREFIX."),
        click.option("--cluster", metavar="NAME", help="Name of the cluster in the log."),
        click.option("--server", "--nats", "server", metavar="URL", help="Broker; default: the stack running here."),
        click.option("--log", metavar="FILE|DIR|S3", help="Read an export or an archive instead of a broker."),
    ):
        wrapped = option(wrapped)
    return wrapped
