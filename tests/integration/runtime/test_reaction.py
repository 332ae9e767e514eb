"""How long a service takes to react, and how far it is behind the log."""

import asyncio

from domain.build import node

from .rig import cluster, facts, memory, running, soon


def reactions(rig):
    return rig.metrics.registry.get_sample_value("restow_reaction_seconds_count", {"family": "session"})


async def test_a_commit_that_follows_from_others_is_a_reaction_and_what_leads_to_nothing_is_none():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        before = reactions(rig)
        await cluster(log)
        await soon(rig.bound.get())
        assert reactions(rig) > before
        await rig.folded(await log.tail())
        for _ in range(5):
            await asyncio.sleep(0)
        since = rig.follower.looked()
        assert since == 0.0, "whatever came was looked at"


async def test_a_standby_looks_at_nothing_and_owes_no_reaction_for_what_it_has_read():
    log = memory()
    async with running(log) as rig:
        await rig.folded(await facts(log, node("n1")))
        await asyncio.sleep(0.01)
        assert rig.follower.looked() == 0.0


async def test_the_lag_is_what_the_log_was_seen_to_have_and_nobody_waits_for_it():
    log = memory()
    async with running(log) as rig:
        seq = await facts(log, node("n1"))
        await rig.folded(seq)
        assert rig.follower.lag == 0
        rig.follower.seen = seq + 1_500
        assert rig.follower.lag == 1_500
        assert rig.follower.caught_up
