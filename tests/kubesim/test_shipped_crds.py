"""kubesim serves the CRDs that ship with Restow: objects are taken whole, listed, watched, patched and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from kubesim.conformance.harness import MERGE, TABLE, Api, Target

from restow.kubesim.testing import kubesim

ROOT = Path(__file__).parents[2]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRDS = {p.stem: yaml.safe_load(p.read_text()) for p in sorted((ROOT / "deploy" / "crds").rglob("*.*.yaml"))}
SAMPLES = {p.stem: yaml.safe_load(p.read_text()) for p in sorted((ROOT / "tests" / "deploy" / "samples").glob("*.yaml"))}
COLUMNS = {
    "podgroup-migrating": ["Name", "STATUS", "minMember", "RUNNINGS", "MIGRATION", "AGE", "QUEUE"],
    "queue": ["Name", "PARENT", "WEIGHT", "STATE", "AGE"],
    "noderesourcetopology": ["Name", "Age"],
    "device": ["Name", "Age"],
}


def crd_of(sample: dict[str, Any]) -> dict[str, Any]:
    group = sample["apiVersion"].split("/")[0]
    return next(c for c in CRDS.values() if (c["spec"]["group"], c["spec"]["names"]["kind"]) == (group, sample["kind"]))


@pytest.mark.parametrize("name", COLUMNS)
async def test_a_shipped_crd_is_served(name: str) -> None:
    sample, crd = SAMPLES[name], crd_of(SAMPLES[name])
    namespaced = "namespaces/default/" if crd["spec"]["scope"] == "Namespaced" else ""
    path = f"/apis/{sample['apiVersion']}/{namespaced}{crd['spec']['names']['plural']}"
    async with kubesim() as server, aiohttp.ClientSession() as session:
        api = Api(Target("kubesim", server.url), session)
        await api.fails(404, None, "GET", path)
        await api.ok("POST", DEFINITIONS, crd)
        version = (await api.ok("GET", path))["metadata"]["resourceVersion"]
        async with api.watch(path, resourceVersion=version) as watch:
            made = await api.ok("POST", path, sample)
            assert (await watch.until("ADDED", sample["metadata"]["name"]))["object"] == made
        plain = {key: value for key, value in sample.items() if key not in ("metadata", "status")}
        assert {key: made[key] for key in plain} == plain
        one = f"{path}/{sample['metadata']['name']}"
        if "status" in sample:
            got = await api.ok("PATCH", f"{one}/status", {"status": sample["status"]}, media=MERGE)
            assert got["status"] == sample["status"]
        else:
            got = await api.ok("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
            assert got["metadata"]["labels"] == {"a": "b"}
        table = await api.ok("GET", path, accept=TABLE)
        assert [column["name"] for column in table["columnDefinitions"]] == COLUMNS[name]
        assert table["rows"][0]["cells"][0] == sample["metadata"]["name"]
