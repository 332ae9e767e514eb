"""What one pass did and why, and why the other pods that it looked at stay: as tables, and as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from restow.cli import plan_tables as planview
from restow.cli.descheduler.carry import Carried
from restow.cli.output import colored, faint, heading, table, width
from restow.contracts.events import Planned
from restow.contracts.ids import PodUid
from restow.domain.descheduling.framework import Eviction, Verdict
from restow.domain.descheduling.interpreter import Outcome
from restow.domain.descheduling.model import DEFRAGMENTATION, Policy
from restow.domain.migration.run_once import UNHELD, Pass
from restow.domain.planview import node_groups
from restow.domain.state import ClusterState
from restow.kube.list_once import Look

MOST = 3
"""Pods that are named as examples of a group."""
_WORD = {"evicted": "evicted", "background": "in background", "gone": "gone already", "budget": "kept: budget", "refused": "refused", "failed": "failed"}


class Report(msgspec.Struct, frozen=True):
    """`carried` is empty in a dry run; `took` is in seconds; `notes` are warnings about the whole."""

    file: str
    url: str
    policy: Policy
    seen: Look
    made: Pass
    carried: Sequence[Carried]
    dry: bool
    took: float
    notes: Sequence[str] = ()

    @property
    def outcome(self) -> Outcome:
        return self.made.outcome

    @property
    def state(self) -> ClusterState:
        return self.seen.state

    def name(self, uid: PodUid) -> str:
        pod = self.state.pods[uid].fact
        return f"{pod.namespace}/{pod.name}"

    def results(self) -> list[tuple[Eviction, str, str]]:
        """(eviction, result, message) in order."""
        if self.dry:
            return [(eviction, "would go", "") for eviction in self.outcome.evictions]
        return [(one.eviction, _WORD[one.result], one.message) for one in self.carried]


class Group(msgspec.Struct, frozen=True):
    """Pods that stay for the same reason."""

    profile: str
    plugin: str
    point: str
    why: str
    pods: tuple[PodUid, ...]


def groups(verdicts: Iterable[Verdict]) -> list[Group]:
    """The most first. Reasons that differ only in what they name are one: their common word, and the first of them."""
    found: dict[tuple[str, str, str, str], list[Verdict]] = {}
    for one in verdicts:
        word = one.why.partition(":")[0]
        found.setdefault((one.profile, one.plugin, one.point, word), []).append(one)
    made = []
    for (profile, plugin, point, _), members in found.items():
        texts = Counter(one.why for one in members)
        why = members[0].why if len(texts) == 1 else f"{members[0].why} (and {len(texts) - 1} more like this)"
        made.append(Group(profile, plugin, point, why, tuple(one.pod for one in members)))
    return sorted(made, key=lambda group: (-len(group.pods), group.profile, group.plugin, group.why))


def show(report: Report) -> None:
    state, outcome = report.state, report.outcome
    _say(f"policy   {report.file}, {_counted(len(report.policy.profiles), 'profile')}")
    seen = f"{_counted(len(state.nodes), 'node')} and {_counted(len(state.pods), 'pod')}"
    _say(f"cluster  {report.url}, {seen}, {'decided' if report.dry else 'done'} in {report.took:.1f} s")
    _warnings(report)
    if outcome.skipped:
        click.echo()
        _say(f"nothing was looked at: {outcome.skipped}")
        return
    results, found = report.results(), groups(outcome.verdicts)
    for turn in report.policy.turns():
        of = (turn.profile, turn.plugin, turn.point)
        _plugin(
            report,
            of,
            [r for r in results if (r[0].profile, r[0].plugin, r[0].point) == of],
            [g for g in found if (g.profile, g.plugin, g.point) == of],
        )
    counts = Counter(result for _, result, _ in results)
    click.echo("\n" + (", ".join(f"{count} {result}" for result, count in sorted(counts.items())) or "nothing to evict"))


def _plugin(report: Report, of: tuple[str, str, str], results: list[tuple[Eviction, str, str]], stay: list[Group]) -> None:
    """What one plugin did, and why the other pods that it looked at stay."""
    profile, plugin, point = of
    kept = sum(len(group.pods) for group in stay)
    said = f"{_counted(len(results), 'pod')} to evict, {kept} looked at and left" if results or kept else "looked at no pod"
    click.echo()
    _say(f"{plugin} ({point}, profile {profile}): {said}", heading)
    if results:
        rows = [(report.name(eviction.pod), eviction.node, result, eviction.reason) for eviction, result, _ in results]
        table(("  POD", "NODE", "RESULT", "WHY"), [("  " + row[0], *row[1:]) for row in rows], flexible=("  POD", "NODE", "WHY"), wrap=("WHY",))
    for eviction, result, message in results:
        if message:
            _say(f"  {report.name(eviction.pod)}: {result}: {message}", faint)
    if stay:
        left = [(f"{len(group.pods):>6}", group.why, _examples(report, group)) for group in stay]
        table(("  LEFT", "WHY", "SUCH AS"), left, flexible=("WHY", "SUCH AS"), wrap=("WHY", "SUCH AS"))
    if plugin == DEFRAGMENTATION and report.made.planned is not None:
        _plan(report, report.made.planned)


def _plan(report: Report, planned: Planned) -> None:
    """As `restow defrag --dry-run` shows one; who stays has been told already."""
    click.echo()
    groups = msgspec.to_builtins(node_groups(report.state, planned.moves))
    planview.show({"groups": groups}, replace(planned, kept={}), True)
    if planned.moves:
        click.echo()
        _say(UNHELD)


def _warnings(report: Report) -> None:
    for name, why in report.seen.unread.items():
        _warn(f"{name} could not be listed ({why}): what depends on them is decided cautiously")
    if bad := report.seen.undecodable:
        one = bad[0]
        _warn(f"{_counted(len(bad), 'object')} could not be read, such as {one.kind} {one.namespace}/{one.name}: {one.message}")
    for note in report.notes:
        _warn(note)
    for warned in report.outcome.warnings:
        _warn(f"{f'profile {warned.profile}, ' if warned.profile else ''}{warned.plugin}: {warned.text}")


def _warn(text: str) -> None:
    _say(f"warning  {text}", lambda line: line.replace("warning", colored("warning", "yellow"), 1))


def _say(text: str, dressed: Callable[[str], str] = str) -> None:
    """In lines that fit; names stay whole."""
    first, *rest = textwrap.wrap(text, width(), subsequent_indent=" " * 4, break_long_words=False, break_on_hyphens=False)
    click.echo("\n".join((dressed(first), *rest)))


def _examples(report: Report, group: Group) -> str:
    return ", ".join(map(report.name, group.pods[:MOST])) + (", …" if len(group.pods) > MOST else "")


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"


def plain(report: Report) -> dict[str, Any]:
    """With stable keys; every pod that stays is there with its reason. `plan` is Defragmentation's; its targets are never held here."""
    results = {one.eviction.pod: one for one in report.carried}
    evictions = report.outcome.evictions if report.dry else [one.eviction for one in report.carried]

    def pod(uid: PodUid) -> dict[str, str]:
        known = report.state.pods[uid].fact
        return {"namespace": known.namespace, "name": known.name, "uid": uid}

    def carried(uid: PodUid) -> dict[str, str]:
        one = results.get(uid)
        return {"result": "dry-run", "message": ""} if one is None else {"result": one.result, "message": one.message}

    return {
        "policy": report.file,
        "api": report.url,
        "dryRun": report.dry,
        "skipped": report.outcome.skipped,
        "evictions": [
            pod(e.pod)
            | {"node": e.node, "profile": e.profile, "plugin": e.plugin, "extensionPoint": e.point, "reason": e.reason}
            | carried(e.pod)
            for e in evictions
        ],
        "kept": [
            pod(v.pod) | {"profile": v.profile, "plugin": v.plugin, "extensionPoint": v.point, "why": v.why}
            for v in report.outcome.verdicts
        ],
        "plan": None if report.made.planned is None else msgspec.to_builtins(report.made.planned),
        "held": False,
        "notes": list(report.notes),
        "warnings": [{"profile": w.profile, "plugin": w.plugin, "text": w.text} for w in report.outcome.warnings],
        "unread": report.seen.unread,
        "undecodable": [
            {"kind": u.kind, "namespace": u.namespace, "name": u.name, "message": u.message} for u in report.seen.undecodable
        ],
    }
