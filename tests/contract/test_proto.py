"""`proto/` is what the Structs say, and what was published once stays readable for ever."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from contract.asyncapi import problems
from jsonschema import Draft7Validator

from restow.contracts import codec, commands, events
from restow.contracts.envelope import Envelope
from restow.contracts.publish import differences, render, write
from restow.contracts.publish.catalogue import by_family, meaning, tag
from restow.contracts.publish.files import golden
from restow.contracts.publish.schemas import EXAMPLE_ENVELOPE

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto"
EVENT_SAMPLES = sorted((PROTO / "golden").glob("*.json"))
COMMAND_SAMPLES = sorted((PROTO / "golden" / "commands").glob("*.json"))


def test_the_folder_is_what_the_structs_say():
    assert differences(PROTO) == [], "run `make proto` and commit the result"


def test_the_same_structs_always_render_the_same_bytes():
    assert render() == render()
    assert golden() == golden()


def test_check_names_what_is_missing_outdated_and_left_over(tmp_path):
    write(tmp_path)
    (tmp_path / "events.md").write_text("changed by hand")
    (tmp_path / "subjects.md").unlink()
    (tmp_path / "schemas" / "events" / "session.forgotten.json").write_text("{}")
    found = " ".join(differences(tmp_path))
    assert "events.md: outdated" in found
    assert "subjects.md: missing" in found
    assert "session.forgotten.json: left over" in found
    write(tmp_path)
    assert differences(tmp_path) == []


def test_a_golden_sample_is_never_written_again(tmp_path):
    write(tmp_path)
    sample = tmp_path / "golden" / "session.pod_placed.json"
    sample.write_text("as it was published")
    write(tmp_path)
    assert sample.read_text() == "as it was published"


def test_the_command_line_checks(tmp_path):
    command = [sys.executable, "-m", "restow.contracts.publish", str(tmp_path), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "make proto" in run.stderr


# -- golden samples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EVENT_SAMPLES, ids=lambda p: p.stem)
def test_every_event_sample_decodes_and_encodes_to_the_same_bytes(path):
    raw = path.read_bytes().removesuffix(b"\n")
    event = codec.decode_event(raw)
    assert not isinstance(event, events.Unknown), f"{path.name} can no longer be read: add an upcaster, keep the sample"
    assert codec.name_of(event) == path.stem
    assert codec.encode_event(event) == raw


@pytest.mark.parametrize("path", COMMAND_SAMPLES, ids=lambda p: p.stem)
def test_every_command_sample_decodes_and_encodes_to_the_same_bytes(path):
    raw = path.read_bytes().removesuffix(b"\n")
    command = codec.decode_command(raw)
    assert not isinstance(command, events.Unknown), f"{path.name} can no longer be read: add an upcaster, keep the sample"
    assert codec.name_of(command) == path.stem
    assert msgspec.json.encode(command) == raw


def test_every_event_and_command_has_a_sample():
    assert {tag(e) for e in events.EVENTS} <= {p.stem for p in EVENT_SAMPLES}
    assert {tag(c) for c in commands.COMMANDS} <= {p.stem for p in COMMAND_SAMPLES}


def test_no_published_sample_was_changed_or_removed():
    """Against the last commit, and against every release (a tag): samples are only ever added. Where an event's form changed, the
    sample of the old form goes on, byte for byte, in `earlier`."""
    if _git("rev-parse", "HEAD").returncode != 0:
        pytest.skip("not a git checkout")
    for ref in ["HEAD", *_git("tag").stdout.split()]:
        changed = _git("diff", "--name-status", "--no-renames", "--diff-filter=MDT", ref, "--", "proto/golden").stdout
        lost = [path for path in changed.split() if path.startswith("proto/") and _published(ref, path) not in _earlier()]
        assert not lost, f"changed or removed since {ref}: {lost}"


def _published(ref: str, path: str) -> str:
    return _git("show", f"{ref}:{path}").stdout


def _earlier() -> set[str]:
    return {path.read_text() for path in (PROTO / "golden" / "earlier").glob("*.json")}


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


# -- schemas ---------------------------------------------------------------------------------------------------------


def schema(name: str) -> dict:
    return json.loads((PROTO / "schemas" / name).read_bytes())


def test_every_schema_is_valid_and_complete_in_itself():
    for path in (PROTO / "schemas").rglob("*.json"):
        found = json.loads(path.read_bytes())
        Draft7Validator.check_schema(found)
        for ref in _refs(found):
            assert ref.removeprefix("#/definitions/") in found["definitions"], f"{path}: {ref}"


@pytest.mark.parametrize("path", [*EVENT_SAMPLES, *COMMAND_SAMPLES], ids=lambda p: p.stem)
def test_every_sample_is_valid_by_its_schema(path):
    folder = "commands" if path.parent.name == "commands" else "events"
    Draft7Validator(schema(f"{folder}/{path.stem}.json")).validate(json.loads(path.read_bytes()))


def test_the_schema_of_a_commit_takes_what_the_codec_writes_and_refuses_nonsense():
    placed = codec.decode_event((PROTO / "golden" / "session.pod_placed.json").read_bytes())
    body = codec.encode([codec.Decision(commands.Schedule(time=1), (placed,), cause="7/0")])  # type: ignore[arg-type]
    check = Draft7Validator(schema("commit.json"))
    assert check.is_valid(json.loads(body))
    assert not check.is_valid({"decisions": [{"command": {"type": "schedule", "time": "noon"}, "events": []}]})
    assert not check.is_valid({"decisions": {}})


def test_the_schema_of_the_headers_is_the_envelope():
    check = Draft7Validator(schema("headers.json"))
    check.validate(EXAMPLE_ENVELOPE.headers())
    assert Envelope.from_headers(EXAMPLE_ENVELOPE.headers()) == EXAMPLE_ENVELOPE
    for missing in EXAMPLE_ENVELOPE.headers():
        may = missing in {"traceparent", "restow-log", "restow-release", "restow-digest", "restow-reader"}
        assert check.is_valid({k: v for k, v in EXAMPLE_ENVELOPE.headers().items() if k != missing}) == may


def test_every_header_is_explained():
    for name, found in schema("headers.json")["properties"].items():
        assert found["description"], f"add {name} to HEADER_MEANINGS"


def _refs(part) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        return own + [r for v in part.values() for r in _refs(v)]
    return [r for v in part for r in _refs(v)] if isinstance(part, list) else []


# -- pages and AsyncAPI ----------------------------------------------------------------------------------------------


def test_every_event_is_in_the_tables_with_a_meaning():
    page, subjects = (PROTO / "events.md").read_text(), (PROTO / "subjects.md").read_text()
    for family, found in by_family().items():
        assert f"`restow.<cluster>.{family}`" in subjects
        for event in found:
            assert f"| `{tag(event)}` | {family} |" in page
            assert meaning(event).rstrip()


def test_asyncapi_is_well_formed_and_every_reference_leads_somewhere():
    document = yaml.safe_load((PROTO / "asyncapi.yaml").read_text())
    assert problems(document, PROTO) == []


def test_each_subject_has_one_sender_and_five_receivers():
    document = yaml.safe_load((PROTO / "asyncapi.yaml").read_text())
    for name, channel in document["channels"].items():
        assert channel["address"] == f"restow.{{cluster}}.{name}"
        here = [o["action"] for o in document["operations"].values() if o["channel"]["$ref"].endswith(f"/{name}")]
        assert (here.count("send"), here.count("receive")) == (1, 5)


def test_the_asyncapi_check_can_fail():
    document = yaml.safe_load((PROTO / "asyncapi.yaml").read_text())
    document["operations"]["descheduler.append"]["action"] = "publish"
    document["channels"]["gc"]["messages"]["commit"]["$ref"] = "#/components/messages/nothing"
    del document["channels"]["session"]["parameters"]
    found = " ".join(problems(document, PROTO))
    assert "publish" in found
    assert "nothing" in found
    assert "{cluster}" in found
