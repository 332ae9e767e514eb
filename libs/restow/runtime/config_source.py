"""A service's configuration file: checked, turned into the family's Config, and given to the commander, which logs it
before anything else is decided. A changed file is read again; a bad one is refused and the last good one stays."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from restow.domain import config
from restow.domain.allowed_words import allowed_words
from restow.domain.duration import DurationError, milliseconds
from restow.domain.state import ClusterState
from restow.machine.files import Stamp, stamp
from restow.runtime import logs
from restow.runtime.commander import Commander

POLL = 0.25
"""Seconds between looks at the file (one `stat`); editors and ConfigMap mounts replace it, so nothing but looking works
everywhere."""


PATIENCE, CLOSER = 8, 10
"""Looks in a row at which the file is always another one, after which it is looked at so many times as often: whoever writes it all the time leaves it alone in between."""


class BadConfig(ValueError):
    """A configuration that is not allowed. Says file, path, value and what is allowed."""


class Unreadable(BadConfig):
    """The file cannot be read, or not now."""


Read = Callable[[Any], config.Config]
"""From what the YAML says (dicts, lists, scalars) to the family's Config. Raises BadConfig with the path."""
Fits = Callable[[Any, ClusterState], None]
"""Whether a family's Config is allowed in this cluster. Raises ValueError with the path."""


def plain(kind: type[config.Config], durations: Collection[str] = ()) -> Read:
    """Reads a file whose keys are those of `kind`. `durations` may be written as `30s`; bare numbers are milliseconds."""

    def read(said: Any) -> config.Config:
        return convert(kind, with_durations(said or {}, durations))

    return read


def convert(kind: type[config.C], said: Any, path: str = "$") -> config.C:
    """Raises BadConfig."""
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        where = path + where.rstrip("`")
        raise BadConfig(f"{where}: {what}; found {_shown(said, where.removeprefix(path))}{_allowed(kind, what, where.removeprefix(path))}") from None


def with_durations(said: Any, names: Collection[str], path: str = "$") -> Any:
    """`said` with these keys turned from `30s` into milliseconds. Raises BadConfig."""
    if not isinstance(said, Mapping):
        raise BadConfig(f"{path}: {said!r}; allowed: a mapping")
    read = dict(said)
    for name in names:
        if isinstance(read.get(name), str):
            try:
                read[name] = milliseconds(read[name])
            except DurationError as error:
                raise BadConfig(f"{path}.{name}: {error}") from None
    return read


def _allowed(kind: type[config.Config], what: str, where: str) -> str:
    words = kind.__struct_encode_fields__ if "unknown field" in what else allowed_words(kind, where) if "enum value" in what else ()
    return f"; allowed: {', '.join(words)}" if words else ""


def _shown(said: Any, where: str) -> str:
    """The value that a msgspec path leads to, as far as it can be followed."""
    for part in where.strip(".").split("."):
        name, _, index = part.partition("[")
        if isinstance(said, Mapping) and name in said:
            said = said[name]
        if index.rstrip("]").isdecimal() and isinstance(said, list):
            said = said[int(index.rstrip("]"))]
    return _cut(repr(said))


def _cut(shown: str) -> str:
    return shown if len(shown) <= 80 else shown[:77] + "..."


AROUND = 1024
"""Bytes of a commit beside the texts of a configuration."""

DEEPEST, MOST_VALUES = 100, 100_000
"""What one document may hold, with everything that its aliases repeat: `&a [*a]` is endless, and ten lines of aliases of aliases are 10¹⁰ values."""


_MERGE = "tag:yaml.org,2002:merge"


class _Strict(yaml.SafeLoader):
    """A key that is there twice is a mistake that YAML would pass over, and half of the file with it. What looks like a date, a number or a
    truth value and is none is refused here, with its line; the loader raises whatever the conversion has raised."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if isinstance(node, yaml.ScalarNode) and any("\ud800" <= char <= "\udfff" for char in node.value):
            raise _refused(node, "allowed: text that is Unicode, without halves of surrogate pairs")
        try:
            return super().construct_object(node, deep)
        except BadConfig:
            raise
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError):
            raise _refused(node, "it looks like another type and is none; allowed: a correct one, or text in quotes") from None

    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._written: set[int] = set()
        """Mappings (by `id`; the document keeps them) that were looked at as they are written, before others were merged into them."""
        self._merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Puts into a mapping what it merges (`<<`). Whoever merges a mapping flattens it first, perhaps before it is read itself."""
        if id(node) not in self._written:
            self._written.add(id(node))
            _each_once(node)
            for key, value in list(node.value):
                if key.tag == _MERGE:
                    self._count(value)
        super().flatten_mapping(node)

    def _count(self, merged: yaml.Node) -> None:
        """Nine mappings that each merge the one before nine times are 10⁹ keys. Raises BadConfig before they are."""
        for one in merged.value if isinstance(merged, yaml.SequenceNode) else (merged,):
            if isinstance(one, yaml.MappingNode):
                self.flatten_mapping(one)
                self._merged += len(one.value)
            if self._merged > MOST_VALUES:
                raise BadConfig(f"line {merged.start_mark.line + 1}: more than {MOST_VALUES} keys are merged (<<); allowed: up to {MOST_VALUES}")


def _each_once(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        if (key.tag, key.value) in seen:
            line = key.start_mark.line + 1
            raise BadConfig(f"line {line}: key {key.value!r} is there twice in one mapping; allowed: each key once")
        seen.add((key.tag, key.value))


def _refused(node: yaml.Node, why: str) -> BadConfig:
    return BadConfig(f"line {node.start_mark.line + 1}: {_cut(ascii(node.value))}: {why}")


def parse(text: str | bytes) -> Any:
    """One YAML document. Raises BadConfig, also for keys that are there twice."""
    try:
        said = yaml.load(text, _Strict)
    except yaml.YAMLError as error:
        raise BadConfig(f"not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise BadConfig(f"it is nested too deeply; allowed: {DEEPEST} levels") from None
    _bound(said)
    return said


def _bound(said: Any) -> None:
    """Raises BadConfig where it is too deep or too large to be looked at."""
    count, levels = 0, [iter((said,))]
    while levels:
        for value in levels[-1]:
            count += 1
            if count > MOST_VALUES:
                raise BadConfig(f"it has more than {MOST_VALUES} values, with those that aliases repeat; allowed: up to {MOST_VALUES}")
            if isinstance(value, Mapping):
                levels.append(iter(value.values()))
            elif isinstance(value, list):
                levels.append(iter(value))
            else:
                continue
            break
        else:
            levels.pop()
        if len(levels) > DEEPEST + 1:
            raise BadConfig(f"it is nested too deeply; allowed: {DEEPEST} levels")


def read_file(path: str, read: Read) -> config.Config:
    """Raises BadConfig with the file's path."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        return read(parse(text))
    except ValueError as error:
        raise BadConfig(f"{path}: {error}") from None


class ConfigSource:
    """One file. `problem` is why its present content is refused, empty while it is used."""

    def __init__(self, path: str, read: Read, commander: Commander, default: config.Config | None = None, fits: Fits | None = None) -> None:
        self.path, self._read, self._commander, self._default, self._fits = path, read, commander, default, fits
        self.problem = ""
        self._seen: Stamp | None = None
        """What was read."""
        self._looked: Stamp | None = None
        """What was there at the last look."""
        self._restless = 0
        """Looks since then at which it was another one each time."""
        self._changed = asyncio.Event()
        self._log = logs.get()

    def load(self) -> None:
        """At start. Raises BadConfig. Without a file the log's configuration stays, or the default is logged."""
        if not self.path:
            state, family = self._commander.follower.state, self._commander.decider.family
            if self._default is not None and family not in state.configured:
                self._commander.configuration = config.text_of(self._default)
            return
        self._seen = stamp(self.path)
        self._commander.configuration = self._text()

    def reload(self) -> None:
        """Read the file again; where it is refused the last good configuration stays. One that cannot be read is tried again: who may read it says nothing of when it was changed."""
        self._seen = stamp(self.path)
        try:
            text = self._text()
        except BadConfig as error:
            if isinstance(error, Unreadable):
                self._seen = None
            if str(error) != self.problem:
                self._log.error("configuration refused; the last good one stays", reason=str(error))
            self.problem = str(error)
            return
        self.problem = ""
        if text != self._commander.configuration:
            self._log.info("configuration changed", file=self.path)
            self._commander.configuration = text
            self._commander.wake()

    def hup(self) -> None:
        """SIGHUP: read it now."""
        self._seen, self._looked = None, stamp(self.path)
        self._changed.set()

    async def watch(self, poll: float = POLL) -> None:
        """For ever. What is found changed is read once it is the same at the next look: half of a file that is being written may mean something, too. One that is
        another one at each look is looked at more often."""
        while True:
            pause = poll if self._restless < PATIENCE else poll / CLOSER
            timer = asyncio.get_running_loop().call_later(pause, self._changed.set) if self.path else None
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            self._changed.clear()
            before, self._looked = self._looked, stamp(self.path) if self.path else None
            if not self.path or self._looked == self._seen:
                self._restless = 0
            elif self._looked == before:
                self._restless = 0
                self.reload()
            else:
                self._restless += 1

    def _text(self) -> str:
        """As the log is to have it: in the command and in its event, in one commit."""
        text, most = config.text_of(self._parse()), self._commander.log.max_body
        size = 2 * len(msgspec.json.encode(text)) + AROUND
        if size > most:
            raise BadConfig(f"{self.path}: it takes a commit of {size} bytes; allowed: up to {most}, which the log takes at once")
        return text

    def _parse(self) -> config.Config:
        read = read_file(self.path, self._read)
        try:
            if self._fits is not None:
                self._fits(read, self._commander.follower.state)
            return read
        except ValueError as error:
            raise BadConfig(f"{self.path}: {error}") from None
