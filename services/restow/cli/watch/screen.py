"""What `restow watch` says: each plan with what it would win, each look back, and the score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from restow.cli import plan_tables, plan_worth
from restow.cli.output import emit_line, faint, number
from restow.contracts.times import day_and_time

if TYPE_CHECKING:
    from restow.contracts.events import Planned
    from restow.contracts.ids import PlanId
    from restow.domain.records import Plan, Score
    from restow.domain.state import ClusterState


class Screen:
    """`look` after each commit. Of what was there before `begin` the latest plan is told."""

    def __init__(self, state: ClusterState, output: str) -> None:
        self._state, self._json = state, output == "json"
        self._plans: set[PlanId] = set()
        self._score = state.score
        self._shown: Planned | None = None

    def begin(self, resumed: bool) -> None:
        state = self._state
        if resumed:
            self._plans, self._score = set(list(state.plans)[:-1]), state.score
        if self._json:
            return emit_line({"what": "watching", "nodes": len(state.nodes), "pods": len(state.pods), "score": msgspec.to_builtins(state.score)})
        click.echo(f"{number(len(state.nodes))} nodes, {number(len(state.pods))} pods")
        if resumed and state.plans:
            click.echo(f"goes on after {plan_tables.counted(len(state.plans), 'plan')}. {score_text(state.score)}")
        return None

    def look(self) -> None:
        state = self._state
        for id in [id for id in state.plans if id not in self._plans]:
            self._plans.add(id)
            self._plan(state.plans[id])
        self._plans &= set(state.plans)
        if state.score != self._score:
            before, self._score = self._score, state.score
            self._looked(before, state.score)

    def _plan(self, plan: Plan) -> None:
        planned = plan.planned
        if self._json:
            return emit_line({"what": "plan", "at": plan.at, "plan": msgspec.to_builtins(planned)})
        before, self._shown = self._shown, planned
        if before is not None and _same(before, planned):
            return click.echo(f"{faint(day_and_time(plan.at))} the same (plan {planned.plan})")
        click.echo(f"\n{faint(day_and_time(plan.at))}")
        plan_tables.said(plan_tables.headline(planned, {}, dry=True) + f" (plan {planned.plan})")
        if planned.reason:
            plan_tables.said(planned.reason)
        plan_tables.groups((), planned)
        if any(one.pods or one.running for one in planned.before.fits):
            plan_tables.sizes(planned)
        if planned.worth is not None:
            plan_tables.said(plan_worth.headline(planned.worth))
            if planned.worth.missed is not None:
                plan_tables.said(plan_worth.missed(planned.worth.missed, planned.worth.unit))
        return None

    def _looked(self, before: Score, after: Score) -> None:
        if self._json:
            return emit_line({"what": "score", "at": self._state.time, "score": msgspec.to_builtins(after)})
        click.echo(f"\n{faint(day_and_time(self._state.time))} {_difference(before, after)}")
        click.echo(score_text(after))
        return None


def _same(one: Planned, other: Planned) -> bool:
    """Whether nothing that is shown of them differs."""
    pods = [[(move.pod, move.target) for move in planned.moves] for planned in (one, other)]
    return pods[0] == pods[1] and (one.before, one.after, one.reason) == (other.before, other.after, other.reason)


def _difference(before: Score, after: Score) -> str:
    parts = []
    if after.plans > before.plans:
        moves, free, early = after.moves - before.moves, after.free - before.free, after.early - before.early
        parts.append(f"looked back: {number(free)} of {number(moves)} predicted slots are free" + (f", {plan_tables.counted(early, 'pod')} had ended before" if early else ""))
    if after.aged > before.aged:
        parts.append(f"looked back: {number(after.ended - before.ended)} of {number(after.aged - before.aged)} pods that would have moved have ended within an hour")
    return "; ".join(parts)


def score_text(score: Score) -> str:
    """The whole score in one line."""
    if not score.plans:
        return "SCORE  nothing to look back at yet"
    slots = f"{_share(score.free, score.moves)} of {number(score.moves)} predicted slots were free when looked at" if score.moves else "no slot to look at"
    ended = f"; {_share(score.ended, score.aged)} of {plan_tables.counted(score.aged, 'pod')} had ended within an hour" if score.aged else ""
    return f"SCORE  {plan_tables.counted(score.plans, 'plan')}: {slots}{ended}"


def _share(part: int, whole: int) -> str:
    return f"{part * 100 / whole:.1f} %" if whole else "none"
