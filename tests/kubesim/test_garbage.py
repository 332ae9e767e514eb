"""Whatever a client sends, the answer is a Status, never a traceback, and the server goes on."""

from __future__ import annotations

import json
import random
from typing import Any

import aiohttp
import pytest

from restow.kubesim.resources import BUILTIN
from restow.kubesim.testing import kubesim

WORDS = [
    "metadata",
    "spec",
    "status",
    "name",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "containers",
    "template",
    "selector",
    "matchLabels",
    "replicas",
    "versions",
    "names",
    "group",
    "ports",
    "data",
    "type",
    "strategy",
    "rollingUpdate",
    "tolerations",
    "volumes",
    "resources",
    "limits",
    "requests",
    "cpu",
    "items",
    "kind",
    "apiVersion",
    "uid",
    "resourceVersion",
    "initContainers",
    "generateName",
    "maxUnavailable",
    "scope",
    "schema",
    "properties",
    "openAPIV3Schema",
    "subresources",
    "schedulingGates",
    "conditions",
    "preconditions",
    "deleteOptions",
    "target",
]
QUERIES = ("", "?limit=x", "?dryRun=All", "?labelSelector=%28%28", "?fieldSelector=a", "?gracePeriodSeconds=q", "?fieldValidation=Strict")  # fmt: skip
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PATCHES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
)


def value(rng: random.Random, depth: int = 0) -> Any:
    leaves: list[Any] = [None, True, rng.randint(-2, 5), rng.choice(["", "x", "a-b", "50%", "X_"]), 0.5, {}]
    pick = rng.randrange(9 if depth < 5 else 6)
    if pick < 6:
        return leaves[pick]
    if pick == 6:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(WORDS): value(rng, depth + 1) for _ in range(rng.randint(0, 5))}


def request(rng: random.Random) -> tuple[str, str, dict[str, str], Any]:
    resource = rng.choice(BUILTIN)
    root = f"/apis/{resource.group}/v1" if resource.group else "/api/v1"
    path = root + ("/namespaces/default" if resource.namespaced else "") + f"/{resource.plural}"
    shaped = {"metadata": {"name": rng.choice("abc")}, "spec": value(rng, 1), "data": value(rng, 3)}
    body = value(rng) if rng.random() < 0.2 else shaped
    method, media = rng.choice(["POST", "POST", "PUT", "PATCH", "DELETE", "GET"]), "application/json"
    if method != "POST":
        path += (
            "/"
            + rng.choice("abc")
            + rng.choice(["", "", "/status", "/scale", "/binding", "/finalize", "/log"])
        )
    elif rng.random() < 0.2:
        path += "/a/" + rng.choice(["binding", "eviction"])
    if method == "PATCH":
        media = rng.choice(PATCHES)
    headers = {"Content-Type": media, "Accept": rng.choice(["application/json", TABLE])}
    return method, path + rng.choice(QUERIES), headers, body


@pytest.mark.parametrize("seed", range(3))
async def test_garbage_is_answered_with_a_status(seed: int) -> None:
    rng = random.Random(seed)
    async with kubesim(rng=random.Random(seed)) as server, aiohttp.ClientSession() as session:
        for number in range(700):
            method, path, headers, body = request(rng)
            async with session.request(
                method, server.url + path, data=json.dumps(body), headers=headers
            ) as response:
                answer = await response.json()
            assert answer.get("reason") != "InternalError", (seed, number, method, path, body, answer)
