"""What if: a week of a log is decided anew. The arrivals are the openb trace's, on its 1 213 nodes and its own clock: the week in which most pods came.

`python -m tests.bench.whatif FILE [--full]` writes such a log to FILE. `--full` instead plays all pods of the trace in one week, on a cluster that they fill.
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.ids import Millis, PodUid
from restow.contracts.times import rfc3339
from restow.contracts.values import OwnerRef
from restow.domain.config import DefragmentationArgs, MigrationConfig, digest_of, text_of
from restow.domain.deciders import DECIDERS
from restow.eventlog.port import Record
from restow.replay import exported
from restow.replay.source import ListSource
from restow.replay.whatif.answer import Change, answer
from restow.replay.whatif.meter import Measured
from restow.replay.whatif.model import Model
from restow.replay.whatif.recorded import Arrive, Delays, Delete, Item, Life, Recorded, Step

from .quality import TRACE, Trace, _rows, trace
from .table import Row, Size
from .world import START

TITLE = "what if: a week of openb's arrivals on its 1 213 nodes, decided anew"
BASELINE = "none: no other scheduler can decide its past again"
LIST = "default"
WEEK = 7 * 86_400
DAY = 86_400_000
GOAL = 60.0
PODS = {Size.FULL: 10_000, Size.QUICK: 500, Size.SMOKE: 20}
"""At most so many of the week."""
FEWER = Change(nodes=((-100, "G2"),))
TOOK = Delays(bind=40, ready=2_000, hold=60, evict=40, gone=5_000, successor=200)
"""As in `make demo`, about."""


class Writer(Model):
    """A model that writes what it folds."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__(recorded)
        self.records: list[Record] = []

    def _commit(self, family: str, decisions: Sequence[Decision]) -> bool:
        if decisions:
            seq, logic = self.state.seq + 1, DECIDERS[family].logic if family in DECIDERS else f"{family}@1"
            envelope = Envelope(id=f"id-{seq}", source=f"/restow/bench/{family}", time=rfc3339(self._now), read=self.state.seq, logic=logic)
            self.records.append(Record(seq, family, envelope, encode(decisions), self._now * 1_000_000))
        return super()._commit(family, decisions)


def log(pods: int = 10_000, full: bool = False) -> ListSource:
    """The week's log, as the deciders make it. A plan is made once a day."""
    given = trace(LIST)
    rows = list(_rows(TRACE / f"openb_pod_list_{LIST}.csv"))
    times = _all_in_a_week(rows, given) if full else _busiest_week(rows)
    chosen = sorted(times, key=lambda number: (times[number][0], number))[:pods]
    policy = text_of(MigrationConfig(defragmentation=DefragmentationArgs(), interval=DAY))
    start: list[Item] = [e.LED[family](1, family) for family in DECIDERS]
    start += [e.MigrationConfigured(policy, digest_of(policy)), *given.nodes, *given.shapes]
    steps, lives, last = [Step(START, start)], [], START
    for life, number in enumerate(chosen):
        came, went = (Millis(START + 1_000 + 1_000 * seconds) for seconds in times[number])
        lives.append(_life(rows[number], given, number, came, went))
        steps.append(Step(came, [Arrive(life)]))
        if lives[-1].deleted:
            steps.append(Step(went, [Delete(life)]))
        last = max(last, came)
    steps.sort(key=lambda step: step.time)
    until = Millis(max(last, START + 1_000 * WEEK))
    steps = [step for step in steps if step.time <= until]
    nothing = Measured([], [], 0, 0, 0, 0, 0, 0.0)
    writer = Writer(Recorded("openb", START, until, steps, lives, TOOK, {}, nothing, {node.name: node for node in given.nodes}, 0))
    writer.run()
    return ListSource(writer.records, name=f"openb_{LIST}", cluster="openb", log_id="b" * 32)


def _life(row: dict[str, str], given: Trace, number: int, came: Millis, went: Millis) -> Life:
    """What ended by itself is a Job's; everything else is deleted when it went."""
    job = row["pod_phase"] in ("Succeeded", "Failed")
    uid, name = PodUid(f"uid-{row['name']}"), row["name"]
    owner = OwnerRef("Job" if job else "ReplicaSet", f"w-{number}", f"uid-w-{number}")
    fact = e.PodObserved(uid, "openb", name, given.shapes[given.pods[number]].shape, came, owner=owner)
    life = Life([uid], [fact], came, f"openb/{owner.kind}/{owner.name}", tidied=TOOK.gone)
    if job:
        life.running, life.phase = max(1, went - came), row["pod_phase"]
    else:
        life.deleted = went
    return life


def _busiest_week(rows: Sequence[dict[str, str]]) -> dict[int, tuple[int, int]]:
    """By pod when it came and when it went, in seconds from the week's begin."""
    came = sorted(int(row["creation_time"]) for row in rows)
    begin = max(came, key=lambda at: bisect_left(came, at + WEEK) - bisect_left(came, at))
    return {
        number: (at, max(int(row["deletion_time"]) - begin, at))
        for number, row in enumerate(rows) if 0 <= (at := int(row["creation_time"]) - begin) < WEEK
    }  # fmt: skip


def _all_in_a_week(rows: Sequence[dict[str, str]], given: Trace) -> dict[int, tuple[int, int]]:
    """All in their order, at even steps; once they ask for 95 % of the GPUs, whoever has been there longest goes first."""
    step, asked, there, found = WEEK / len(rows), 0, list[int](), dict[int, tuple[int, int]]()
    order = sorted(range(len(rows)), key=lambda number: int(rows[number]["creation_time"]))
    for place, number in enumerate(order):
        at = int(place * step)
        asked += given.asked[given.pods[number]]
        while asked * 100 > 95 * given.capacity:
            gone = there.pop(0)
            asked -= given.asked[given.pods[gone]]
            found[gone] = found[gone][0], at
        there.append(number)
        found[number] = at, 10 * WEEK
    return found


async def measure(size: Size) -> list[Row]:
    source = log(PODS[size])
    goal = GOAL if size is Size.FULL else None
    return [Row(what, _seconds(source, change), "s", goal=goal) for what, change in (("as recorded", Change()), ("with 100 nodes fewer beside it", FEWER))]


def _seconds(source: ListSource, change: Change) -> float:
    """Of the whole command: the log is read, and the model runs as recorded, and once more with the change."""
    began = time.perf_counter()
    found = answer(source, change)
    seconds = time.perf_counter() - began
    assert found.error.same == found.error.placements > 0, "the log is the model's own"
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    source = log(full=given.full)
    records = [record for batch in source.batches() for record in batch]
    exported.write(given.file, records, first=1, last=source.last, log_id=source.log_id, cluster="openb")
    print(f"{given.file}: {source.last} records")


if __name__ == "__main__":
    main()
