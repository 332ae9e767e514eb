"""The segments of an archive in a folder. One process at a time continues it: it holds a lock on the folder."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from restow.eventlog.disk import sync_folder
from restow.eventlog.segment import (
    SUFFIX,
    ArchiveError,
    File,
    Header,
    Segment,
    open_segment,
    peek,
    segment_name,
)

SEGMENT_BYTES = 64 * 1024 * 1024

UNFINISHED = 86_400.0
"""Seconds after which a file that nobody has finished is a killed process's."""

_RANGE = re.compile(r"(\d{20})-(\d{20})" + re.escape(SUFFIX))


class Folder:
    """A `segment.Place`: the segments of the folder `path`, which `only_writer` makes, or one segment file."""

    segment_bytes = SEGMENT_BYTES

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def files(self) -> list[Path]:
        return sorted(self.path.glob(f"*{SUFFIX}"))

    def check(self, file: File) -> Segment:
        """Every byte is read each time: of a disk nobody can tell otherwise whether they are the same."""
        return open_segment(file)

    def ranges(self) -> list[tuple[int, int]]:
        found = []
        for file in self.files():
            if match := _RANGE.fullmatch(file.name):
                found.append((int(match[1]), int(match[2])))
                continue
            try:
                header = peek(file)  # A copy of a bucket's.
            except ArchiveError:
                continue
            found.append((header.first, header.last))
        return found

    @contextmanager
    def only_writer(self) -> Iterator[None]:
        """Nobody else continues the folder's chain meanwhile: of two who do, neither's segments would join the other's. Whoever is killed lets go of it. A
        file system without locks gives none."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ArchiveError(self, "", "another process is writing to it") from error
            except OSError:
                pass
            yield
        finally:
            os.close(descriptor)

    def scratch(self) -> BinaryIO:
        # In containers every process is the first: two collectors on one volume must not write into one file.
        file = (self.path / f".segment.{os.getpid()}.{secrets.token_hex(4)}.tmp").open("w+b")
        _drop_unfinished(self.path, os.fstat(file.fileno()).st_mtime)
        return file

    def drop(self, file: BinaryIO) -> None:
        Path(file.name).unlink(missing_ok=True)
        with suppress(OSError):
            file.close()

    def keep(self, file: BinaryIO, header: Header, digest: str, offset: int) -> Segment:
        path = self.path / segment_name(header.first, header.last)
        os.fsync(file.fileno())
        os.replace(file.name, path)
        sync_folder(self.path)
        return Segment(path, header, digest, offset)

    def set_aside(self, last: int, kept: Sequence[Segment] = ()) -> str:
        """Rename the folder. Where some segments stay, the others are taken out of it, the last one first: whoever is killed meanwhile leaves a chain."""
        for number in range(1_000):
            aside = self.path.with_name(f"{self.path.name}.until-{last}" + (f".{number}" if number else ""))
            if not aside.exists():
                break
        else:
            raise ArchiveError(self, "", "a thousand archives were set aside beside it; remove some")
        if not kept:
            self.path.rename(aside)
            return str(aside)
        stay = {segment.path.name for segment in kept}
        aside.mkdir()
        for name in sorted(stay):
            try:
                os.link(self.path / name, aside / name)
            except OSError:  # a file system without links
                shutil.copyfile(self.path / name, aside / name)
        for file in reversed(self.files()):
            if file.name not in stay:
                file.rename(aside / file.name)
        sync_folder(aside)
        sync_folder(self.path)
        return str(aside)


def _drop_unfinished(folder: Path, now: float) -> None:
    """What killed processes have left: nobody has written there for long. `now` is by the clock of the file system, as their times are."""
    for file in folder.glob(".*.tmp"):
        try:
            if file.stat().st_mtime < now - UNFINISHED:
                file.unlink()
        except FileNotFoundError:
            continue
