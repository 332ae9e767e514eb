"""Unpacking what others may have packed: never more in memory, or in all, than a file of ours could hold.

zstd packs a gigabyte of blanks into a few kilobytes, and a window of two gigabytes into a header of six bytes. A seal says that a file is
as it was written, not who wrote it: an export comes by mail. So every window, line, batch and total has a stated limit here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import zstandard

MAX_WINDOW = 8 * 1024 * 1024
"""Bytes of history that a frame may ask for; ours, at level 3, ask for 2 MiB."""

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line: the largest message that our broker takes, its headers, and base64."""

BATCH_BYTES = 16 * 1024 * 1024
"""Bytes of bodies after which a batch is handed on, however few records it has."""

RATIO, FLOOR = 1000, 64 * 1024 * 1024 + MAX_LINE
"""A file may unpack to so many times its size, and to so many bytes in any case. A record of ours has an id of 16 random bytes, so
real logs pack 10 to 100 times; a stranger's may be nothing but zeros, and a segment of an archive ends with the line that fills it."""

BLOCK = 1024 * 1024
_PIECE = 64
"""Bytes fed at once where little is expected: they can unpack to 2 MiB at most."""


class TooMuch(ValueError):
    """What is packed exceeds a limit. Says which, and what to do."""


def _refusal(what: str) -> TooMuch:
    return TooMuch(f"{what}; Restow writes nothing like it. Do not use it: get the file from where it was exported again")


def most(packed: int) -> int:
    """Bytes that a file of so many bytes may unpack to."""
    return max(FLOOR, RATIO * packed)


def head(start: bytes, limit: int) -> tuple[bytes, int]:
    """The first frame's content, at most `limit` bytes, and where it ends. Raises TooMuch, ZstdError, EOFError (it is cut)."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    content = b""
    for at in range(0, len(start), _PIECE):
        piece = start[at : at + _PIECE]
        content += unpacker.decompress(piece)
        if len(content) > limit:
            raise _refusal(f"its header unpacks to over {limit} bytes")
        if unpacker.eof:
            return content, at + len(piece) - len(unpacker.unused_data)
    raise EOFError


def lines(file: BinaryIO, limit: int) -> Iterator[bytes]:
    """Unpacked lines from the file's present position, without their newlines; at most `limit` bytes in all. Raises TooMuch,
    ZstdError, EOFError (the last line is cut)."""
    rest: list[bytes] = []
    kept = total = 0
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    with unpacker.stream_reader(file, read_across_frames=True, closefd=False) as unpacked:
        while block := unpacked.read(BLOCK):
            total += len(block)
            if total > limit:
                raise _refusal(f"it unpacks to over {limit >> 20} MiB, {RATIO} times its size")
            found = block.split(b"\n")
            rest.append(found[0])
            kept += len(found[0])
            if kept > MAX_LINE:
                raise _refusal(f"the line is longer than {MAX_LINE >> 20} MiB")
            if len(found) == 1:
                continue
            yield b"".join(rest)
            yield from found[1:-1]
            rest, kept = [found[-1]], len(found[-1])
    if kept:
        raise EOFError


def plain_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file that is not packed, with their newlines. Raises TooMuch."""
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise _refusal(f"the line is longer than {MAX_LINE >> 20} MiB")
        yield line


def whole(packed: bytes, size: int) -> bytes:
    """One frame that must unpack to `size` bytes. Raises TooMuch, ZstdError."""
    if size > most(len(packed)):
        raise _refusal(f"{len(packed)} bytes are said to unpack to {size}, over {RATIO} times as many")
    named = zstandard.get_frame_parameters(packed).content_size
    if named != size:
        raise _refusal(f"its frame names another size than the {size} bytes of its header")
    return zstandard.ZstdDecompressor(max_window_size=max(MAX_WINDOW, size)).decompress(packed, max_output_size=size)
