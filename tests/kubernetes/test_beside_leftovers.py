"""The garbage collector finds and removes what is left, with the rights of its account."""

from __future__ import annotations

import msgspec
from kubernetes.lab import Lab
from kubernetes.moves import LOG
from kubernetes.world import World

from restow.domain.leftovers import Remove
from restow.kube import canary, leftovers
from restow.kube.client import ClientConfig, connect
from restow.kube.effects import Done
from restow.kube.gates import Gates
from restow.kube.placeholder import hold_class


def as_json(manifest: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(manifest))


async def test_everything_with_a_logs_label_is_found_and_removed(world: World, lab: Lab, descheduler: Gates) -> None:
    await world.node("n")
    log = f"{LOG}-left"
    await world.api.ok("POST", "/api/v1/namespaces/restow-holds/pods", as_json(canary.guest("default-scheduler", "n", log, "left")))
    await world.api.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", as_json(hold_class(77, log)))
    assert await descheduler.landing(log, {"u-1": 1_000}) == Done()
    account = lab.account("garbage-collector")
    async with await connect(ClientConfig(kubeconfig=str(lab.kubeconfig(account, "collector")))) as client:
        found = [one for one in await leftovers.listed(client) if one.log == log]
        assert sorted((one.kind, one.name, one.canary) for one in found) == [
            ("Landing", log, False), ("Pod", "canary-guest-left", True), ("PriorityClass", "restow-hold-77", False),
        ]  # fmt: skip
        for one in found:
            if one.kind == "Landing":
                await leftovers.remove(client, Remove(one, ("u-1",)))
                assert not (await world.api.ok("GET", f"/apis/restow.dev/v1/landings/{log}"))["spec"].get("open")
            await leftovers.remove(client, Remove(one))
        assert [one for one in await leftovers.listed(client) if one.log == log] == []
