"""POST /defragment: a plan now, or only what it would be."""

import re
import secrets

import msgspec
from aiohttp import web

from restow.contracts import commands as c
from restow.contracts.codec import decode, encode
from restow.contracts.ids import PlanId
from restow.domain.decider import Rejected, decide_all
from restow.runtime.commander import MANY, Outcome, Refused
from restow.runtime.http import Route, answer
from restow.runtime.offload import in_copy
from restow.runtime.service import Context

_TRIGGER = re.compile(r"[a-z][a-z0-9-]{0,39}")


class Defragment(msgspec.Struct, forbid_unknown_fields=True):
    trigger: str = "api"


def routes(context: Context) -> list[Route]:
    api = _Api(context)
    return [
        Route(
            "POST", "/defragment", "Make a plan and carry it out; with dryRun only say what it would be", api.defragment,
            {200: "the plan's events", 400: "bad request", 409: "rejected, with the reason", 503: "not the leader, or stopping"},
            query={"dryRun": {"type": "boolean", "default": False}},
            body={"trigger": {"type": "string", "default": "api", "pattern": _TRIGGER.pattern}},
        )
    ]


class _Api:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def defragment(self, request: web.Request) -> web.Response:
        dry = request.query.get("dryRun", "false").lower()
        if dry not in ("true", "false"):
            return answer({"error": f"dryRun is {dry!r}; allowed: true, false"}, 400)
        try:
            body = msgspec.json.decode(await request.read() or b"{}", type=Defragment)
        except msgspec.DecodeError as error:
            return answer({"error": f"body: {error}; allowed: {{\"trigger\": \"api\"}}"}, 400)
        if not _TRIGGER.fullmatch(body.trigger):
            return answer({"error": f"trigger is {body.trigger!r}; allowed: {_TRIGGER.pattern}"}, 400)
        command = c.Defragment(self._context.clock.now(), body.trigger, PlanId(f"p{secrets.token_hex(5)}"))
        return await self._plan(command) if dry == "true" else await self._carry_out(command)

    async def _plan(self, command: c.Defragment) -> web.Response:
        """Decided on the present state, by any process, and forgotten."""
        state = self._context.state
        read = state.seq

        def decide() -> bytes:
            return encode(decide_all(state, self._context.service.decider, [command], cause="dry run"))

        try:
            body = await in_copy(decide) if len(state.pods) >= MANY else decide()
        except Rejected as error:
            return answer({"error": str(error)}, 409)
        except RuntimeError as error:
            return answer({"error": str(error).strip().splitlines()[-1]}, 409)
        events = [event for decision in decode(body) for event in decision.events]
        return answer({"dryRun": True, "read": read, "plan": command.plan, "events": events})

    async def _carry_out(self, command: c.Defragment) -> web.Response:
        context = self._context
        if not context.leadership.leading:
            leader = context.state.leaders[context.service.family]
            return answer({"error": f"not the leader; {leader.holder or 'nobody'} is"}, 503)
        try:
            outcome: Outcome = await context.commander.submit(command, cause=command.trigger)
        except Rejected as error:
            return answer({"error": str(error)}, 409)
        except Refused as error:
            return answer({"error": str(error)}, 503)
        return answer({"dryRun": False, "seq": outcome.seq, "plan": command.plan, "events": outcome.events})
