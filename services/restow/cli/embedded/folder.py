"""The folder of a stack: what stands where, and that one stack at a time has it."""

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from restow.cli.embedded.failures import StackRefused
from restow.cli.failures import cannot_be_used

CLUSTER = "embedded"
MANAGED = ("nats", "archive", "logs", "run")
"""Folders that a stack makes and removes."""


class StackFolder:
    """Everything of a stack; nothing of it is outside."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock = -1

    # -- what stands where ---------------------------------------------------------------------------------------------

    @property
    def nats(self) -> Path:
        """The broker's: its store, its configuration, its log."""
        return self.path / "nats"

    @property
    def nats_file(self) -> Path:
        """Where the CLI finds the broker's address, password and all. Only its owner may read it: whoever may has read access to the log."""
        return self.path / "run" / "nats.url"

    @property
    def operator_file(self) -> Path:
        """The same for whoever repairs the log."""
        return self.path / "run" / "operator.url"

    @property
    def token_file(self) -> Path:
        """The API's token: whoever may read this folder as its owner may move pods."""
        return self.path / "run" / "api.token"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl: the simulated API asks for no credentials."""
        return self.path / "run" / "kubeconfig"

    def http_file(self, service: str) -> Path:
        """Where a service says its HTTP address."""
        return self.path / "run" / f"{service}.http"

    def log(self, name: str) -> Path:
        """What a process prints."""
        return self.path / "logs" / f"{name}.log"

    @property
    def data(self) -> Path:
        """The garbage collector's."""
        return self.path / "archive"

    @property
    def archive(self) -> Path:
        """Where it writes the log's archive."""
        return self.data / "archive" / CLUSTER

    @property
    def has_log(self) -> bool:
        """Whether the broker's store has any stream yet."""
        return any(self.nats.glob("**/streams/*/"))

    # -- whose it is ---------------------------------------------------------------------------------------------------

    @property
    def locked(self) -> bool:
        """Whether it is this stack's now."""
        return self._lock >= 0

    def lock(self) -> None:
        """One stack a folder. The lock is the kernel's: it goes with this process, however that ends. Raises StackRefused."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StackRefused(cannot_be_used(self.path, error)) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.unlock()
            raise StackRefused(f"a stack is running in {self.path}{self._who()}; stop it (`restow down --data {self.path}`), or use another --data folder") from None

    def unlock(self) -> None:
        if self.locked:
            os.close(self._lock)
            self._lock = -1

    def _who(self) -> str:
        try:
            return f" (process {int(json.loads(self._described.read_text())['pid'])})"
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    # -- what is in it -------------------------------------------------------------------------------------------------

    def make(self) -> None:
        for name in MANAGED:
            (self.path / name).mkdir(parents=True, exist_ok=True)

    def clean(self, but: str = "") -> None:
        """Remove what a stack has made."""
        for name in MANAGED:
            if name != but:
                shutil.rmtree(self.path / name, ignore_errors=True)
        self.hide()

    def remove_if_empty(self) -> None:
        if self.path.exists() and not any(self.path.iterdir()):
            self.path.rmdir()

    def show(self, description: dict[str, Any]) -> None:
        """Say for other commands that the stack is up, and where."""
        part = self.path / "stack.json.part"
        part.write_text(json.dumps(description, indent=2) + "\n")
        part.replace(self._described)

    def hide(self) -> None:
        self._described.unlink(missing_ok=True)

    @property
    def _described(self) -> Path:
        return self.path / "stack.json"


def secret(path: Path, text: str) -> None:
    """A new file that only its owner may read."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w") as out:
        out.write(text + "\n")
