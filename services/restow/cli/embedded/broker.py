"""The stack's broker: a nats-server with a password for each of its users, brought back when it ends."""

import asyncio
import os
import secrets
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from restow.cli.embedded import shipped
from restow.cli.embedded.failures import StackError
from restow.cli.embedded.folder import CLUSTER
from restow.contracts.ids import SERVICES
from restow.eventlog.server import NatsServer, ServerError

PERMISSIONS = "permissions.conf"
USERS = (*SERVICES, "console", "cli", "operator")
"""Other processes of this machine may neither write the log nor read it."""
TRIES = 10
FULL = 1 << 20
"""Bytes that are free on a disk that is as good as full: a commit may be larger."""
LOOK = 0.2
"""Seconds between looks at the broker's process."""


class Broker:
    """Its store is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.passwords = {user: "p" + secrets.token_hex(24) for user in USERS}
        self._server = NatsServer(
            folder,
            extra=f"include {PERMISSIONS}",
            environment={f"RESTOW_NATS_{user.upper()}_PASSWORD": password for user, password in self.passwords.items()},
        )

    @property
    def address(self) -> str:
        """Without a password."""
        return self._server.url

    def address_of(self, user: str) -> str:
        """Password and all: never to be printed."""
        return self.address.replace("nats://", f"nats://{user}:{self.passwords[user]}@")

    def environment_of(self, user: str) -> dict[str, str]:
        """How a process of this user finds the log."""
        return {"RESTOW_CLUSTER": CLUSTER, "RESTOW_NATS_URL": self.address, "RESTOW_NATS_USER": user, "RESTOW_NATS_PASSWORD": self.passwords[user]}

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def start(self) -> None:
        """In the main thread, so that the broker dies with this process. Raises StackError."""
        try:
            self._server.folder.mkdir(parents=True, exist_ok=True)
            text = shipped.permissions().read_text()
            (self._server.folder / PERMISSIONS).write_text(text.replace("restow-main", f"restow-{CLUSTER}").replace("restow.main.", f"restow.{CLUSTER}."))
            self._server.start()
        except (ServerError, OSError) as error:
            raise StackError(f"the broker did not start: {error}") from error

    async def keep(self, fail: Callable[[StackError], None], say: Callable[[str], None]) -> None:
        """Bring the broker back when it ends; its log stays. It has the same port again, so that everybody finds it. Once its disk was full it stores nothing
        before it is started again (nats-server does not see that there is space): that is done, too, and both are said."""
        tries, full = 0, False
        while True:
            await asyncio.sleep(LOOK)
            free = _free(self._server.folder)
            if not full and free < FULL:
                full = True
                say(f"the disk of {self._server.folder} is full: nothing is decided until there is space. What was decided is kept; it goes on by itself")
            elif full and free >= 2 * FULL:
                full = False
                say(f"the disk of {self._server.folder} has space again: the broker is started again, and everything goes on")
                await self.stop()
            if self.pid is None and not full:
                tries += 1
                try:
                    self.start()
                    tries = 0
                except StackError as error:
                    # Its port may be taken for a moment: by a client of ours that has connected to itself.
                    if tries > TRIES:
                        fail(error)
                        return

    def kill(self) -> None:
        """SIGKILL, as a crash; it comes back."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        await self._server.stop_async()


def _free(folder: Path) -> int:
    """Bytes; many where nobody can tell, for somebody took the folder away: the broker will say what it lacks."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 2 * FULL
