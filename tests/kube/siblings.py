"""Realistic pods, as `kubectl get -o json` shows them, and siblings of them as their controllers would make them."""

import hashlib
from pathlib import Path

from restow.kube import wire
from restow.kube.decode import PODS

MANIFESTS = Path(__file__).parent / "manifests"
NAMES = sorted(path.stem for path in MANIFESTS.glob("*.json"))


def manifest(name: str, i: int = 0) -> bytes:
    """One sibling: what differs between siblings differs here."""
    rand = hashlib.sha256(f"{name}{i}".encode()).hexdigest()
    text = (MANIFESTS / f"{name}.json").read_text()
    for token, value in (
        ("$UID", f"{rand[:8]}-0000-4000-8000-{i:012d}"),
        ("$VERSION", str(1000 + i)),
        ("$RAND", rand[8:13]),
        ("$NODE", f"node-{i:03d}"),
        ("$I", str(i)),
    ):
        text = text.replace(token, value)
    return text.encode()


def pod(name: str, i: int = 0) -> wire.Pod:
    got = PODS.object(manifest(name, i))
    assert isinstance(got, wire.Pod), got
    return got
