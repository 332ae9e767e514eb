"""The folder `proto/`: what should be in it, what differs, and writing it."""

from pathlib import Path

import msgspec

from restow.contracts import commands, events
from restow.contracts.publish.asyncapi import document
from restow.contracts.publish.pages import README, events_page, subjects_page
from restow.contracts.publish.samples import file_name, sample
from restow.contracts.publish.schemas import all_schemas

GOLDEN = "golden"
GENERATED = ("schemas",)
"""Folders that hold generated files only: anything else in them is a leftover."""


def render() -> dict[str, bytes]:
    """Path below the folder → content, for every file that is generated from the present Structs."""
    found = {
        f"schemas/{name}": msgspec.json.format(msgspec.json.encode(schema)) + b"\n"
        for name, schema in all_schemas().items()
    }
    found["asyncapi.yaml"] = msgspec.yaml.encode(document())
    found["events.md"] = events_page().encode()
    found["subjects.md"] = subjects_page().encode()
    found["README.md"] = README.encode()
    return found


def golden() -> dict[str, bytes]:
    """Path → sample, one line each, for every event and command: used only where there is none yet."""
    named = [(file_name(c, True), c) for c in events.EVENTS] + [(file_name(c, False), c) for c in commands.COMMANDS]
    return {f"{GOLDEN}/{name}": msgspec.json.encode(sample(cls)) + b"\n" for name, cls in named}


def leftovers(folder: Path, wanted: dict[str, bytes]) -> list[Path]:
    """Files in generated folders that nothing generates any more."""
    present = [p for sub in GENERATED for p in sorted((folder / sub).rglob("*")) if p.is_file()]
    return [p for p in present if p.relative_to(folder).as_posix() not in wanted]


def differences(folder: Path) -> list[str]:
    """One line a file that is missing, outdated or left over."""
    wanted = render()
    found = []
    for name, content in wanted.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{path}: missing")
        elif path.read_bytes() != content:
            found.append(f"{path}: outdated")
    found += [f"{path}: left over" for path in leftovers(folder, wanted)]
    found += [f"{folder / name}: missing sample" for name in golden() if not (folder / name).is_file()]
    return found


def write(folder: Path) -> list[str]:
    """Bring the folder up to date; one line a file that changed. A golden sample that exists is never written."""
    wanted = render()
    done = []
    for name, content in {**wanted, **golden()}.items():
        path = folder / name
        if path.is_file() and (name.startswith(f"{GOLDEN}/") or path.read_bytes() == content):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        done.append(f"{path}: written")
    for path in leftovers(folder, wanted):
        path.unlink()
        done.append(f"{path}: removed")
    return done
