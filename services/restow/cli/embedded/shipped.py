"""Files that ship with Restow: beside the checkout, or inside the installed package."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from restow.cli.embedded.failures import StackError

T = TypeVar("T")


def _found(look: Callable[[Path], T]) -> T | None:
    """What there is in the package's own folder, else in the checkout's `deploy`."""
    here = Path(__file__).resolve()
    return look(here.parents[1]) or look(here.parents[4] / "deploy") or None


def crds() -> list[Path]:
    """The CRDs."""
    found = _found(lambda folder: sorted(p for p in (folder / "crds").glob("*.yaml") if p.name != "kustomization.yaml"))
    if not found:
        raise StackError("the CRDs (deploy/crds) were not found beside this installation; reinstall Restow")
    return found


def others() -> list[Path]:
    """Definitions that clusters have from elsewhere and kubesim only from here."""
    return sorted((crds()[0].parent / "embedded").glob("*.yaml"))


def permissions() -> Path:
    """Who may do what at the broker: the same file that a cluster's broker has."""
    found = _found(lambda folder: file if (file := folder / "nats" / "permissions.conf").is_file() else None)
    if found is None:
        raise StackError("the broker's permissions (deploy/nats/permissions.conf) were not found beside this installation; reinstall Restow")
    return found
