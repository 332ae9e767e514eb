"""The descheduler's HTTP API: plan, move one pod, cancel, and look. Whatever changes something asks for the token."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from restow import machine
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import decode, encode
from restow.contracts.ids import MigrationId, PlanId
from restow.contracts.times import rfc3339
from restow.descheduler import http_requests
from restow.descheduler.follow import Followers
from restow.descheduler.http_requests import Refused
from restow.descheduler.sampler import Sampler
from restow.domain import eviction_budgets
from restow.domain.decider import Rejected, decide_all
from restow.domain.migration import next_trigger, of_dry_runs, open_hours, search, turns_of, wants_samples
from restow.domain.migration.bounds import bound_of
from restow.domain.migration.warnings import warnings
from restow.domain.planview import demand_slots_of, migrations_of, node_groups, plan_view
from restow.domain.records import MODES, Step
from restow.domain.state import ClusterState
from restow.runtime import command_queue, logs
from restow.runtime.command_queue import Outcome
from restow.runtime.http import Handler, Route, answer
from restow.runtime.long_decisions import apart
from restow.runtime.offload import CopyFailed, WorkFailed, in_copy
from restow.runtime.service import TO_REPAIR, Context

DRY_RUNS = 8
"""That wait for their turn: each may take all of a CPU for seconds, and anybody may ask where there is no token."""
STARTS = 10.0
"""Seconds that a request waits for a process that is about to lead."""
PLANS, MOST_PLANS = 20, 1_000
MIGRATIONS, MOST_MIGRATIONS = 500, 10_000
_BAD, _NONE, _CONFLICT, _AWAY = "bad request", "there is no such thing", "rejected, with the reason", "not the leader, or stopping"
_UNSURE = "it was stopping meanwhile, and it may have been done"
_DRY = {"dryRun": {"type": "boolean", "default": False}}
_GROUPS = {"groupBy": {"type": "string", "default": "", "description": "label of nodes; without it nodes of a size are a group"}}
_WHO = {"by": {"type": "string", "maxLength": http_requests.LONGEST_NAME, "description": "who asks, as they call themselves"}}
_CHOSEN = {"moves": {"type": "array", "items": {"type": "string"}, "description": "migrations of the plan; without any, all of them"}}
_REASON = {"reason": {"type": "string", "maxLength": http_requests.LONGEST_REASON}}


def routes(context: Context, followers: Followers, sampler: Sampler | None = None) -> list[Route]:
    api = _Api(context, followers, sampler)
    act = {400: _BAD, 404: _NONE, 409: _CONFLICT, 503: _AWAY, 504: _UNSURE}
    unless_dry = act | {403: "the service has no token: nothing but a dry run is allowed"}
    return [
        Route(
            "POST", "/defragment", "Make a plan and carry it out; with dryRun only say what it would be (that changes nothing)",
            _safely(api.defragment), {200: "the plan's event, and what it does to each group of nodes"} | unless_dry,
            query=_DRY | _GROUPS, guard="reads",
            body={
                "trigger": {"type": "string", "default": "api", "pattern": http_requests.TRIGGER.pattern, "not": {"enum": list(http_requests.OWN_TRIGGERS)}},
                "demand": {"type": "string", "description": f"free capacity for this job: {http_requests.JOBS}"},
            },
        ),
        Route(
            "POST", "/deschedule", "Run all plugins of the policy, each of which makes a plan; with dryRun only say what these would be",
            _safely(api.deschedule), {200: "the plans' events, and what they do to each group of nodes"} | unless_dry,
            query=_DRY | _GROUPS, guard="reads",
            body={"trigger": {"type": "string", "default": "api", "pattern": http_requests.TRIGGER.pattern, "not": {"enum": list(http_requests.OWN_TRIGGERS)}}},
        ),
        Route(
            "POST", "/migrations", "Move one pod, to a node or wherever is best, or all pods of a PodGroup as one; with dryRun only say where that is",
            _safely(api.move), {200: "the plan's event, with its moves"} | unless_dry, query=_DRY, guard="reads",
            body={
                "pod": {"type": "string", "description": http_requests.PODS}, "target": {"type": "string"},
                "podGroup": {"type": "string", "description": "instead of a pod: NAMESPACE/NAME"},
            },
        ),
        Route(
            "POST", "/plans/{plan}/cancel", "Nothing more of this plan: what was not evicted yet is rolled back",
            _safely(api.cancel), {200: "what was cancelled"} | act, body=_REASON, guard="changes",
        ),
        Route(
            "POST", "/plans/cancel", "The same of all plans that are under way",
            _safely(api.cancel), {200: "what was cancelled"} | act, body=_REASON, guard="changes",
        ),
        Route(
            "POST", "/plans/{plan}/approve", "Let a proposed plan be carried out, or some of its moves; the others are declined",
            _safely(api.approve), {200: "what is carried out"} | act, body=_WHO | _REASON | _CHOSEN, guard="answers",
        ),
        Route(
            "POST", "/plans/{plan}/reject", "Do not let a proposed plan be carried out; its pods are left alone for a while",
            _safely(api.reject), {200: "rejected"} | act, body=_WHO | _REASON, guard="answers",
        ),
        Route(
            "POST", "/mode", "What becomes of plans: observe, propose or automatic; a restart does not change that", _safely(api.mode), {200: "set"} | act,
            body={"mode": {"type": "string", "enum": list(MODES)}} | _WHO | _REASON, guard="answers",
        ),
        Route(
            "POST", "/pause", "Stop all moves that have not evicted their pods yet, and begin none until they are resumed; a restart does not end that",
            _safely(api.pause), {200: "since when"} | act, body=_WHO | _REASON, guard="answers",
        ),
        Route("POST", "/resume", "End the pause", _safely(api.resume), {200: "resumed"} | act, body=_WHO | _REASON, guard="answers"),
        Route(
            "GET", "/plans", "The latest plans, the newest first", _safely(api.plans), {200: "plans", 400: _BAD}, guard="reads",
            query={"limit": {"type": "integer", "minimum": 1, "maximum": MOST_PLANS, "default": PLANS}},
        ),
        Route(
            "GET", "/plans/{plan}", "One plan with its moves; with follow a line of JSON for each change until it is over",
            _safely(api.plan), {200: "the plan", 400: _BAD, 404: _NONE, 503: "too many follow plans already"}, guard="reads",
            query={"follow": {"type": "boolean", "default": False}},
        ),
        Route(
            "GET", "/migrations", "Migrations, the latest plan's first", _safely(api.migrations), {200: "migrations", 400: _BAD},
            guard="reads",
            query={
                "plan": {"type": "string"},
                "step": {"type": "string", "enum": [str(step) for step in Step]},
                "active": {"type": "boolean", "default": False, "description": "only those that are not over"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_MIGRATIONS, "default": MIGRATIONS},
            },
        ),
        Route("GET", "/status", "What triggers plans, what is under way, and what came of the last plan", _safely(api.status), {200: "status", 400: _BAD}, guard="reads"),
    ]  # fmt: skip


def _safely(handler: Handler) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refused as error:
            return answer({"error": str(error)}, error.status)
        except Rejected as error:
            return answer({"error": str(error)}, 409)
        except command_queue.Unsure as error:
            # No 503: whoever asks another descheduler then would have it done twice.
            return answer({"error": str(error)}, 504)
        except command_queue.Refused as error:
            return answer({"error": str(error)}, 503)
        except (RuntimeError, TimeoutError) as error:
            said = error.why if isinstance(error, WorkFailed) else (str(error).strip() or "it took too long").splitlines()[-1]
            logs.get(family="migration").error("request failed", path=request.path, reason=str(error) or "timeout")
            return answer({"error": f"this failed, which it should not: {said}; the service's log says more"}, 500)

    return handle


class _Api:
    def __init__(self, context: Context, followers: Followers, sampler: Sampler | None) -> None:
        self._context, self._followers, self._sampler = context, followers, sampler
        self._planning, self._asked = asyncio.Lock(), 0

    # -- what changes something ------------------------------------------------------------------------------------------

    async def defragment(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request, "dryRun", "groupBy")
        dry, group_by = http_requests.flag(request, "dryRun"), request.query.get("groupBy", "")
        body = await http_requests.body(request, http_requests.Defragment)
        trigger, demand = http_requests.trigger(body.trigger), http_requests.demand(self._context.state, body.demand)
        command = c.Defragment(self._context.clock.now(), trigger, _fresh(), demand)
        return await self._plan(request, command, dry, group_by)

    async def deschedule(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request, "dryRun", "groupBy")
        dry, group_by = http_requests.flag(request, "dryRun"), request.query.get("groupBy", "")
        body = await http_requests.body(request, http_requests.Deschedule)
        trigger = http_requests.trigger(body.trigger)
        if not dry and (refusal := self._context.gate.refusal(request.headers.getall("Authorization", []), "changes")):
            # Before anybody is asked for metrics.
            return answer({"error": refusal.reason}, refusal.status)
        samples = await self._sampler.sample() if self._sampler is not None else None
        return await self._plan(request, c.Deschedule(self._context.clock.now(), trigger, _fresh(), samples), dry, group_by)

    async def move(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request, "dryRun")
        dry, state = http_requests.flag(request, "dryRun"), self._context.state
        body = await http_requests.body(request, http_requests.Move)
        if group := http_requests.gang(state, body):
            return await self._plan(request, c.MoveGang(self._context.clock.now(), _fresh(), group), dry, None)
        pod, target = http_requests.pod(state, body.pod), http_requests.target(state, body.target)
        return await self._plan(request, c.MovePod(self._context.clock.now(), _fresh(), pod, target), dry, None)

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request)
        body = await http_requests.body(request, http_requests.Cancel)
        plan = PlanId(request.match_info.get("plan", ""))
        if plan and plan not in self._context.state.plans:
            raise Refused(f"there is no plan {plan!r}; allowed: one of GET /plans (`restow get plans`)", 404)
        outcome = await self._submit(c.CancelPlan(self._context.clock.now(), plan, http_requests.reason(body.reason)), "cancelled over HTTP")
        plans = [event.plan for event in outcome.events if isinstance(event, e.PlanCancelled)]
        return answer({"seq": outcome.seq, "plans": plans, "events": outcome.events})

    async def approve(self, request: web.Request) -> web.StreamResponse:
        said = await http_requests.approving(request)
        moves = tuple(MigrationId(one) for one in said.moves)
        outcome = await self._submit(c.Approve(self._context.clock.now(), self._plan_of(request), said.by, said.reason, moves), "approved over HTTP")
        return answer({"seq": outcome.seq, "events": outcome.events})

    async def reject(self, request: web.Request) -> web.StreamResponse:
        by, reason = await http_requests.rejecting(request)
        outcome = await self._submit(c.Reject(self._context.clock.now(), self._plan_of(request), by, reason), "rejected over HTTP")
        return answer({"seq": outcome.seq, "events": outcome.events})

    async def mode(self, request: web.Request) -> web.StreamResponse:
        said = await http_requests.mode(request)
        outcome = await self._submit(c.SetMode(self._context.clock.now(), said.mode, said.by, said.reason), "mode set over HTTP")
        return answer({"seq": outcome.seq, "events": outcome.events})

    def _plan_of(self, request: web.Request) -> PlanId:
        """Raises Refused."""
        plan = PlanId(request.match_info.get("plan", ""))
        if plan not in self._context.state.plans:
            raise Refused(f"there is no plan {plan!r}; allowed: one of GET /plans (`restow plans`)", 404)
        return plan

    async def pause(self, request: web.Request) -> web.StreamResponse:
        by, reason = await http_requests.pausing(request)
        outcome = await self._submit(c.Pause(self._context.clock.now(), by, reason), "paused over HTTP")
        return answer({"seq": outcome.seq, "plans": [event.plan for event in outcome.events if isinstance(event, e.PlanCancelled)], "events": outcome.events})

    async def resume(self, request: web.Request) -> web.StreamResponse:
        by, reason = await http_requests.pausing(request)
        outcome = await self._submit(c.Resume(self._context.clock.now(), by, reason), "resumed over HTTP")
        return answer({"seq": outcome.seq, "events": outcome.events})

    async def _plan(self, request: web.Request, command: c.Defragment | c.Deschedule | c.MovePod | c.MoveGang, dry: bool, group_by: str | None) -> web.Response:
        """`group_by`: what the plan does to which groups of nodes is told, too; None of a move by hand: it would take another copy of the process for what nobody reads."""
        context = self._context
        if dry:
            command = search.bounded(context.state, command)
            read, events, groups, bound = await self._forget(command, group_by)
            told = {"groups": groups, "bound": bound, "warnings": self._warnings()}
            return answer({"dryRun": True, "read": read, "plan": command.plan, "events": events} | told)
        if refusal := context.gate.refusal(request.headers.getall("Authorization", []), "changes"):
            return answer({"error": refusal.reason}, refusal.status)
        trigger = "moved over HTTP" if isinstance(command, c.MovePod | c.MoveGang) else command.trigger
        outcome = await self._submit(command, trigger)
        # Nothing has moved yet: what the nodes were is still what they are.
        groups = [] if group_by is None else await self._groups(outcome.events, group_by)
        return answer({"dryRun": False, "seq": outcome.seq, "plan": command.plan, "events": outcome.events, "groups": groups, "warnings": self._warnings()})

    def _warnings(self) -> list[str]:
        """Whoever has just written a policy takes a plan for one of his, also where the policy is refused."""
        refused = self._context.refused()
        return [refused, *warnings(self._context.state)] if refused else warnings(self._context.state)

    async def _submit(self, command: c.Command, cause: str) -> Outcome:
        context = self._context
        # Who has just been started again leads in a moment: until then the log names the process before.
        if not await context.leadership.within(STARTS, alone=context.settings.lease == "off"):
            leader = context.state.leaders[context.service.family]
            raise Refused(f"not the leader; {leader.holder or 'nobody'} is", 503)
        if broken := context.follower.broken:
            # It would be decided after the repair, whenever that is, and nobody would wait for it any more.
            raise Refused(f"{broken}. {TO_REPAIR}", 503)
        outcome: Outcome = await context.commander.submit(command, cause=cause)
        return outcome

    async def _forget(self, command: c.Command, group_by: str | None) -> tuple[int, Sequence[Any], Any, Any]:
        """Decided on the present state, by any process, and forgotten. (read, events, groups, bound)."""
        state = self._context.state
        if self._asked >= DRY_RUNS:
            raise Refused(f"{DRY_RUNS} dry runs are under way already; ask again later", 503)

        def decide(asked: c.Command) -> bytes:
            decisions = decide_all(state, of_dry_runs, [asked], cause="dry run")
            groups = node_groups(state, _moves(decisions[0].events), group_by) if decisions and group_by is not None else []
            bound = bound_of(state, asked, decisions[0].events) if decisions else None
            return msgspec.json.encode((msgspec.Raw(encode(decisions)), groups, bound))

        self._asked += 1
        try:
            async with self._planning:
                read = state.seq
                _, found = await apart(decide, command, search.leave_out)
        except CopyFailed as error:
            raise Rejected(f"it came to no end: {error}. Ask for less, or bound what it may search") from None
        finally:
            self._asked -= 1
        decisions, groups, bound = msgspec.json.decode(found, type=tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw])
        return read, [event for decision in decode(bytes(decisions)) for event in decision.events], groups, bound

    async def _groups(self, events: Sequence[e.Event], group_by: str) -> msgspec.Raw:
        """Of a plan that is in the log and carried out already: that they cannot be told must not make its answer a refusal."""
        state = self._context.state
        try:
            return msgspec.Raw(await in_copy(lambda: msgspec.json.encode(node_groups(state, _moves(events), group_by))))
        except (RuntimeError, TimeoutError) as error:
            logs.get(family="migration").error("what a plan does to groups of nodes cannot be told", reason=str(error) or "timeout")
            return msgspec.Raw(b"[]")

    # -- what only looks ---------------------------------------------------------------------------------------------------

    async def plans(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request, "limit")
        state, limit = self._context.state, http_requests.limit(request, PLANS, MOST_PLANS)
        newest = _newest(state)
        return answer({"seq": state.seq, "items": [plan_view(state, plan) for plan in newest[:limit]], "total": len(newest)})

    async def plan(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request, "follow")
        state, plan = self._context.state, PlanId(request.match_info["plan"])
        view = plan_view(state, plan)
        if view is None:
            raise Refused(f"there is no plan {plan!r} (any more); allowed: one of GET /plans (`restow get plans`)", 404)
        if http_requests.flag(request, "follow"):
            if self._followers.full:
                raise Refused("too many follow plans already; ask again later, or without follow", 503)
            return await self._followers.stream(request, plan)
        return answer({"seq": state.seq, "plan": view, "migrations": migrations_of(state, plan), "slots": demand_slots_of(state, plan)})

    async def migrations(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request, "plan", "step", "active", "limit")
        state, limit = self._context.state, http_requests.limit(request, MIGRATIONS, MOST_MIGRATIONS)
        step, active = http_requests.one_of(request, "step", tuple(str(s) for s in Step)), http_requests.flag(request, "active")
        wanted = PlanId(request.query.get("plan", ""))
        if wanted and wanted not in state.plans:
            raise Refused(f"there is no plan {wanted!r} (any more); allowed: one of GET /plans (`restow get plans`)", 404)
        found = []
        for plan in [wanted] if wanted else _newest(state):
            found += [m for m in migrations_of(state, plan) if (not step or m.step == step) and not (active and m.over)]
            if len(found) >= limit:
                break
        return answer({"seq": state.seq, "items": found[:limit]})

    async def status(self, request: web.Request) -> web.StreamResponse:
        http_requests.known_query(request)
        context, state = self._context, self._context.state
        config, leader = state.migration_config, state.leaders[context.service.family]
        args = config.defragmentation
        sampled = next_trigger(state) if wants_samples(state) else None
        deadlines = (context.service.decider.deadline(state), sampled[0] if sampled is not None else None)
        deadline = min((at for at in deadlines if at is not None), default=None)
        open_plans = {state.migrations[id].plan for id in (*state.backlog, *state.active)}
        last = max(state.plans.values(), key=lambda plan: (plan.at, plan.planned.plan), default=None)
        return answer(
            {
                "seq": state.seq,
                "leader": leader.holder,
                "leading": context.leadership.leading,
                "changes": "allowed with the token" if context.gate.configured() else "refused: no token is configured",
                "paused": {"since": rfc3339(state.pause.since), "by": state.pause.by, "reason": state.pause.reason} if state.pause.since else None,
                "closed": open_hours.said(config, context.clock.now()),
                "budgets": eviction_budgets.accounts(state, context.clock.now()),
                "mode": {"name": state.mode.name, "since": rfc3339(state.mode.since) if state.mode.since else "", "by": state.mode.by, "reason": state.mode.reason},
                "proposed": [plan_view(state, plan) for plan in state.proposals],
                "triggers": {
                    "intervalSeconds": config.interval / 1000,
                    "cron": config.cron,
                    "timeZone": config.time_zone,
                    "demand": bool(args is not None and args.demand),
                    "next": rfc3339(deadline) if deadline is not None and not open_plans else "",
                },
                "plugin": "Defragmentation" if args is not None else "",
                "plugins": [{"profile": t.profile, "point": t.point, "plugin": t.plugin} for t in turns_of(state)],
                "planner": args.planner if args is not None else "",
                "underWay": [plan_view(state, PlanId(plan)) for plan in sorted(open_plans)],
                "waiting": len(state.backlog),
                "active": len(state.active),
                "steps": _steps(context),
                "last": plan_view(state, last.planned.plan) if last is not None else None,
                "leftAlone": len(state.left_alone),
                "warnings": self._warnings(),
            }
        )


def _newest(state: ClusterState) -> list[PlanId]:
    return sorted(state.plans, key=lambda plan: (state.plans[plan].at, plan), reverse=True)


def _steps(context: Context) -> dict[str, int]:
    counts: dict[str, int] = {}
    for migration in context.state.migrations.values():
        counts[str(migration.step)] = counts.get(str(migration.step), 0) + 1
    return dict(sorted(counts.items()))


def _fresh() -> PlanId:
    return PlanId(f"p{machine.token(5)}")


def _moves(events: Sequence[e.Event]) -> Sequence[Any]:
    return [move for event in events if isinstance(event, e.Planned) for move in event.moves]
