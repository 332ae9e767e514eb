"""The stream that holds the log: created once, read back, and refused on any difference."""

from __future__ import annotations

import base64
import re
import secrets
from calendar import timegm
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from restow.eventlog.jetstream.connect import CREATE_TIMEOUT, ApiError, Broker, NotNow
from restow.eventlog.jetstream.copies import Copies
from restow.eventlog.port import FORMAT, BrokerRefused, Family, LogMismatch, NoLog, Unavailable

LOG_ID = "restow-log-id"
FORMAT_KEY = "restow-format"
IMPORT_KEY = "restow-import"
"""Of a log that an import has made: its last record. Until that is there it is part of a log, which nobody is to go on with."""

NOT_FOUND = 10059
NAME_IN_USE = 10058
NO_MESSAGE = 10037
NO_PEERS = (10005, 10074)
"""Fewer brokers are there than copies are wanted; more than one copy of a broker that is in no cluster."""
TOO_MANY = 10026
"""The stream has as many consumers as it may have."""

ABANDONED = 120.0
"""Seconds that a consumer which nobody listens to lasts at most, whatever its maker says: whoever may read may make some, and only who made one knows its name."""

_NANOSECONDS = 1_000_000_000
_FRACTION = re.compile(r"\.(\d+)")


class State(msgspec.Struct, frozen=True):
    """What the stream holds now. An empty stream has first == last + 1. time: of the server that says so, ns since the epoch."""

    first: int
    last: int
    log_id: str
    time: int = 0


class Stored(NamedTuple):
    """A message as the stream has it, at `seq`. `headers` as they were sent; time: the broker's, ns since the epoch."""

    seq: int
    subject: str
    headers: bytes
    data: bytes
    time: int


def stream_name(cluster: str) -> str:
    """`restow-<cluster>`."""
    return f"restow-{cluster}"


def subject(cluster: str, family: Family) -> str:
    """`restow.<cluster>.<family>`, and nothing after it (DESIGN 2)."""
    return f"restow.{cluster}.{family}"


def wanted_config(cluster: str) -> dict[str, Any]:
    """Every setting that the log relies on, written out so that no server default leaks in.

    Discard is "new": should anybody ever set a limit, the broker must refuse commits rather than drop old ones.
    deny_delete forbids holes; purging stays allowed, because truncating the prefix is a purge up to a sequence. The
    duplicate window is the smallest that the server takes (100 ms); no commit carries a message id anyway.
    """
    return {
        "name": stream_name(cluster),
        "subjects": [subject(cluster, "*")],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_age": 0,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "duplicate_window": _NANOSECONDS // 10,
        "allow_direct": True,
        "deny_delete": True,
        "deny_purge": False,
        "no_ack": False,
        "sealed": False,
        "allow_rollup_hdrs": False,
    }


def consumer_limits() -> dict[str, Any]:
    """For a stream's configuration. What it holds does not rely on it, so a stream without it is no other one."""
    return {"consumer_limits": {"inactive_threshold": int(ABANDONED * _NANOSECONDS)}}


_MUST_BE_ABSENT = (
    "mirror",
    "sources",
    "subject_transform",
    "republish",
    "allow_msg_ttl",
    "subject_delete_marker_ttl",
    "allow_msg_counter",
    "allow_msg_schedules",
    "discard_new_per_subject",
)
"""Settings under which a message could vanish, change, or not be what was appended."""


def differences(cluster: str, config: dict[str, Any]) -> list[str]:
    """One line for each field in which the stream differs from what the log needs."""
    wanted = wanted_config(cluster)
    found = [f"{key} is {config.get(key)!r}, must be {value!r}" for key, value in wanted.items() if config.get(key, 0) != value]
    found += [f"{key} is {config[key]!r}, must not be set" for key in _MUST_BE_ABSENT if config.get(key)]
    if config.get("persist_mode", "default") not in ("", "default"):
        found.append(f"persist_mode is {config['persist_mode']!r}, must be 'default' (an ack must mean stored)")
    return found


def check_replicas(name: str, config: dict[str, Any], replicas: int | None) -> None:
    """Raises LogMismatch unless the stream has as many copies as are wanted; None for any number."""
    there = int(config.get("num_replicas", 1))
    if replicas is not None and there != replicas:
        raise LogMismatch(
            f"stream {name!r} has {there} {'copy' if there == 1 else 'copies'}, and must have {replicas}: give them to it with `restow log replicas {replicas}`, "
            "or correct RESTOW_NATS_REPLICAS"
        )


def too_few(name: str, replicas: int, said: str) -> str:
    """Why a broker does not make a stream."""
    return (
        f"there are too few brokers for {replicas} copies of {name!r} ({said}): start {replicas} as a cluster (docs/install.md, \"Three brokers\"), or set "
        "RESTOW_NATS_REPLICAS to 1"
    )


class Stream:
    """The log's stream on one broker."""

    def __init__(self, broker: Broker, cluster: str) -> None:
        self.broker, self.cluster = broker, cluster
        self.name = stream_name(cluster)
        self.log_id = ""
        self.replicas = 0
        """Of the stream, once it was opened."""
        self.import_to = 0
        """The last record of what an import has begun to put back, if it was made by one."""
        self.copies = Copies()
        self.first = 1
        """The first record that there is."""
        self.unlike = ""
        """Why the stream keeps the log no more, by its settings; empty where it does. All three by the last time that `state` was asked for."""

    async def open(self, *, create: bool, replicas: int | None, log_id: str, first_seq: int, import_to: int = 0) -> None:
        """Adopt the stream, or create it where `create` allows; then compare its configuration.

        log_id, first_seq: used only when this call creates the stream ("" makes a random id). Of two creators at
        once one wins, and the other adopts its id. import_to: of whoever imports, the last sequence. Raises Unavailable, too, where an import is not whole.
        """
        await self.broker.find_api(self.name)
        info = await self._info()
        if info is None:
            if not create:
                raise NoLog(
                    f"cluster {self.cluster!r} has no log here: the broker has no stream {self.name!r}. "
                    "Start the services first, or correct the cluster's name"
                )
            await self._create(replicas or 1, log_id or secrets.token_hex(16), first_seq, import_to)
            info = await self._info()
            if info is None:
                raise Unavailable(f"stream {self.name!r} was created, but the broker does not know it yet")
        self._check(info["config"], replicas)
        self.import_to = _import_to(info["config"].get("metadata") or {})
        if not import_to:
            self._check_whole(info)
        self.replicas = int(info["config"].get("num_replicas", 1))

    async def _create(self, replicas: int, log_id: str, first_seq: int, import_to: int) -> None:
        config = wanted_config(self.cluster) | consumer_limits() | {
            "num_replicas": replicas,
            "metadata": {LOG_ID: log_id, FORMAT_KEY: str(FORMAT)} | ({IMPORT_KEY: str(import_to)} if import_to else {}),
            "description": "Restow's event log. Never edit, purge or set limits: `restow log` knows how.",
        }
        if first_seq > 1:
            config["first_seq"] = first_seq
        try:
            await self.broker.api(f"STREAM.CREATE.{self.name}", config, timeout=CREATE_TIMEOUT)
        except (ApiError, NotNow) as error:
            if error.err_code in NO_PEERS:
                raise Unavailable(too_few(self.name, replicas, str(error))) from error
            if isinstance(error, NotNow):
                raise
            if error.err_code != NAME_IN_USE:
                raise BrokerRefused(f"the broker refused to create stream {self.name!r}: {error}") from error

    def _check(self, config: dict[str, Any], replicas: int | None) -> None:
        check_replicas(self.name, config, replicas)
        if unlike := self._unlike(config):
            raise LogMismatch(unlike)
        metadata = config.get("metadata") or {}
        if not metadata.get(LOG_ID):
            raise LogMismatch(f"stream {self.name!r} has no {LOG_ID!r} in its metadata: Restow did not create it")
        if metadata.get(FORMAT_KEY) != str(FORMAT):
            raise LogMismatch(
                f"stream {self.name!r} has format {metadata.get(FORMAT_KEY)!r}; this Restow reads format {FORMAT}"
            )
        self.log_id = metadata[LOG_ID]

    def _unlike(self, config: dict[str, Any]) -> str:
        if not (found := differences(self.cluster, config)):
            return ""
        return (
            f"stream {self.name!r} is not configured as Restow's log: {'; '.join(found)}. "
            "Somebody changed or pre-created it; restore these settings (`nats stream edit`)"
        )

    def _check_whole(self, info: dict[str, Any]) -> None:
        last = info["state"]["last_seq"]
        if last < self.import_to:
            raise Unavailable(
                f"the log of cluster {self.cluster!r} is being put back and is not whole: it ends at {last}, and is to end at {self.import_to}. "
                "Where no `restow log import` is under way, it was interrupted: run the same one again, or that of another export of this log "
                '(to begin a new one instead: docs/install.md, "A new log")'
            )

    async def begin_import(self, last: int) -> None:
        """Until record `last` is there, or a later one that another import has said to bring, nobody opens the log but who imports."""
        await self._mark_import(last, at_least=True)

    async def end_import(self, last: int) -> None:
        """All is there, up to record `last`."""
        await self._mark_import(last, at_least=False)

    async def _mark_import(self, last: int, *, at_least: bool) -> None:
        config = (await self.broker.api(f"STREAM.INFO.{self.name}"))["config"]
        said = _import_to(config["metadata"])
        self.import_to = max(last, said) if at_least else last
        if self.import_to == said:
            return
        try:
            await self.broker.api(f"STREAM.UPDATE.{self.name}", config | {"metadata": config["metadata"] | {IMPORT_KEY: str(self.import_to)}})
        except ApiError as error:
            raise BrokerRefused(f"the broker refused to change stream {self.name!r}: {error}") from error

    async def _info(self) -> dict[str, Any] | None:
        try:
            return await self.broker.api(f"STREAM.INFO.{self.name}")
        except ApiError as error:
            if error.err_code == NOT_FOUND:
                return None
            raise BrokerRefused(f"the broker refused to show stream {self.name!r}: {error}") from error

    async def state(self) -> State:
        """First, last and id now. Raises LogMismatch when the stream is gone or is another log."""
        info = await self._info()
        if info is None:
            raise LogMismatch(f"stream {self.name!r} (log {self.log_id}) is gone: somebody deleted it, or its data is lost")
        log_id = (info["config"].get("metadata") or {}).get(LOG_ID, "")
        if log_id != self.log_id:
            raise LogMismatch(f"stream {self.name!r} is now log {log_id!r}, but this process folded log {self.log_id!r}")
        self.copies.hear(info.get("cluster") or {}, monotonic())
        self.unlike = self._unlike(info["config"])
        said = datetime.fromisoformat(info["ts"])
        time = round(said.timestamp() * 1e6) * 1000
        self.first = max(1, info["state"]["first_seq"])
        return State(first=self.first, last=info["state"]["last_seq"], log_id=log_id, time=time)

    async def leader(self) -> str:
        """The name of the broker that leads it now; empty where there is one copy."""
        info = await self._info() or {}
        cluster = info.get("cluster") or {}
        return str(cluster.get("leader") or "") if cluster.get("replicas") else ""

    async def last_of(self, family: Family) -> int:
        """Last sequence of the family's subject by the stream's leader (a direct get may come from a stale replica)."""
        try:
            answer = await self.broker.api(
                f"STREAM.MSG.GET.{self.name}", {"last_by_subj": subject(self.cluster, family)}
            )
        except ApiError as error:
            if error.err_code == NO_MESSAGE:
                return 0
            raise BrokerRefused(f"the broker refused to show family {family!r}: {error}") from error
        return int(answer["message"]["seq"])

    async def message(self, seq: int, *, following: bool = False) -> Stored | None:
        """None where there is none. Whoever leads the stream says it. following: or the next one that there is, for what is between the broker has lost."""
        wanted: dict[str, Any] = {"seq": seq} | ({"next_by_subj": subject(self.cluster, "*")} if following else {})
        try:
            answer = await self.broker.api(f"STREAM.MSG.GET.{self.name}", wanted)
        except ApiError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise BrokerRefused(f"the broker refused to show record {seq}: {error}") from error
        message = answer["message"]
        return Stored(message["seq"], message["subject"], base64.b64decode(message.get("hdrs", "")), base64.b64decode(message.get("data", "")), _ns(message["time"]))

    async def purge(self, upto: int) -> None:
        """Drop every message with sequence <= `upto`."""
        try:
            await self.broker.api(f"STREAM.PURGE.{self.name}", {"seq": upto + 1}, timeout=60.0)
        except ApiError as error:
            raise BrokerRefused(f"the broker refused to truncate stream {self.name!r}: {error}") from error


def _import_to(metadata: dict[str, Any]) -> int:
    said = str(metadata.get(IMPORT_KEY, ""))
    return int(said) if said.isdecimal() else 0


def _ns(text: str) -> int:
    """Of RFC 3339, to its last digit: nanoseconds since the epoch."""
    fraction = _FRACTION.search(text)
    return timegm(datetime.fromisoformat(text).utctimetuple()) * _NANOSECONDS + (int(fraction[1][:9].ljust(9, "0")) if fraction else 0)
