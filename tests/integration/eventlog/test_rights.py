"""What each credential can do, asked of the real server: every user, every call of JetStream's API, every subject, and every reply subject. docs/rights.md is the table."""

import asyncio
import runpy

import pytest

from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.jetstream.connect import Broker
from restow.eventlog.server import find_binary
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import envelope

from .helpers import BODY
from .test_permissions import CLUSTER, DEPLOY, FAMILIES, USERS, guarded_server

RIGHTS = runpy.run_path(str(DEPLOY.parent / "rights.py"))
DECLARED = {user.name: user for user in RIGHTS["USERS"]}
STREAMS = ("restow-main", "OBJ_restow-main")
HARMLESS = b'{"filter":"nothing.has.this.subject"}'
"""To a purge it says: of nothing; to all others: nothing that they could do."""
NOBODYS = "nobody.may.say.this"


@pytest.fixture(scope="module")
def guarded():
    with guarded_server(sync=False) as server:
        yield server


@pytest.fixture
async def filled(guarded):
    """A log with one commit of each family, and one snapshot."""
    log = await connect(guarded.url, CLUSTER, user="garbage_collector", password="pgarbage_collector")
    if not await log.tail():
        for user, family in FAMILIES.items():
            one = await connect(guarded.url, CLUSTER, user=user, password=f"p{user}")
            await one.append(family, BODY, envelope(), expected_last=0)
            await one.close()
        await (await open_snapshots(log)).put(Snapshot(log_id=log.log_id, seq=1, fold_version=1, body=b"x"))
    yield log
    await log.close()


async def as_user(server, user):
    return await Broker.connect(server.url, user=user, password=f"p{user}", wait=10)


async def let_through(broker, subjects, payload=HARMLESS, headers=None):
    """Of each subject whether the broker lets this user say it, whoever hears it (a consumer that does not exist hears nothing). A broker refuses in the order in which it is
    told: when the last one, which nobody may say, is refused, all others are that are to be."""
    denied, all_said = set(), asyncio.Event()

    def note(what, subject):
        assert what == "publish", (what, subject)
        denied.add(subject)
        if subject == NOBODYS:
            all_said.set()

    broker.on_denied.add(note)
    for subject in (*subjects, NOBODYS):
        await broker.client.publish(subject, payload, broker.client.new_inbox(), headers)
    async with asyncio.timeout(60):
        await all_said.wait()
    broker.on_denied.remove(note)
    return [subject.lower() not in denied for subject in subjects]


def test_the_page_says_what_is_declared():
    assert RIGHTS["RIGHTS_PAGE"].read_text() == RIGHTS["page"](), "run `make rights`"
    assert tuple(DECLARED) == USERS


def test_every_declared_call_is_one_of_the_servers():
    """As far as their names go: none is misspelt."""
    program = find_binary().read_bytes()
    known = {call.split(".{")[0] for call in (*RIGHTS["OF_A_STREAM"], *RIGHTS["OF_THE_BROKER"])}
    for call in known:
        assert call.split(".restow")[0].removesuffix(".LOG").encode() in program, call


@pytest.mark.parametrize("user", USERS)
async def test_a_user_can_call_what_the_table_says_and_nothing_else(guarded, filled, user):
    broker = await as_user(guarded, user)
    try:
        for prefix in ("JS.LOG.API", "$JS.API", "$JS.LOG.API", "JS.SNAPSHOTS.API"):
            subjects = [f"{prefix}.{call}" for call in RIGHTS["calls"]()]
            found = await let_through(broker, subjects)
            wanted = [RIGHTS["may"](DECLARED[user], subject) for subject in subjects]
            assert [subject for subject, it, should in zip(subjects, found, wanted, strict=True) if it != should] == []
            assert any(found) == (prefix == "JS.LOG.API")
    finally:
        await broker.close()


@pytest.mark.parametrize("user", USERS)
async def test_a_user_can_publish_what_the_table_says_and_nothing_else(guarded, filled, user):
    others = [name for name in USERS if name != user]
    foreign = [
        f"_INBOX_{others[0]}.x", "_INBOX.x", "restow.other.cluster", "$KV.x.y", "$SYS.REQ.SERVER.PING", "$SYS.ACCOUNT.LOG.x", "$NRG.V.x", "$JSC.R.x",
        "$JS.ACK.restow-main.c.1.1.1.1.0", "$JS.FC.restow-main.c.x", "$JS.EVENT.ADVISORY.API", "$GNR.x", "_GR_.x", "_R_.x", f"_INBOX_{user}.x",
    ]  # fmt: skip
    broker = await as_user(guarded, user)
    try:
        subjects = [*RIGHTS["publishes"](), *foreign]
        wanted = [RIGHTS["may"](DECLARED[user], subject) for subject in subjects]
        # A message that is let through must not be stored: the stream expects another one before it.
        headers = {"Nats-Expected-Last-Sequence": "999999"}
        found = await let_through(broker, subjects, b"x", headers)
        assert [subject for subject, it, should in zip(subjects, found, wanted, strict=True) if it != should] == []
    finally:
        await broker.close()


@pytest.mark.parametrize("user", USERS)
async def test_a_user_can_listen_on_its_own_inbox_and_nowhere_else(guarded, user):
    broker = await as_user(guarded, user)
    denied = []
    broker.on_denied.add(lambda what, subject: denied.append(subject))
    patterns = [
        ">", "*", "*.>", "restow.>", "restow.main.*", "$O.>", "$JS.>", "JS.LOG.API.>", "$SYS.>", "_INBOX.>", "$JS.EVENT.>", "_R_.>", "_GR_.>",
        *(f"_INBOX_{other}.>" for other in USERS if other != user),
    ]  # fmt: skip
    try:
        for pattern in patterns:
            await broker.client.subscribe(pattern)
        own = await broker.client.subscribe(f"_INBOX_{user}.mine")
        await broker.client.flush()
        async with asyncio.timeout(30):
            while len(denied) < len(patterns):
                await asyncio.sleep(0.01)
        assert sorted(denied) == sorted(pattern.lower() for pattern in patterns)
        assert not own._closed
    finally:
        await broker.close()


@pytest.mark.parametrize("user", USERS)
async def test_no_answer_of_the_broker_reaches_a_stream_or_another_user(guarded, filled, user):
    """Whatever a user may say, with every reply subject that would be worth something: a subject of a stream, a call of the API, another user's inbox."""
    heard = []

    async def hear(message):
        heard.append(message)

    other = await as_user(guarded, "cli" if user != "cli" else "console")
    victim = f"_INBOX_{'cli' if user != 'cli' else 'console'}"
    await other.client.subscribe(f"{victim}.>", cb=hear)
    await other.client.flush()
    before = await states(filled)
    broker = await as_user(guarded, user)
    calls = [f"JS.LOG.API.{call}" for call in RIGHTS["calls"]()]
    say = [subject for subject in (*calls, *RIGHTS["publishes"]()) if RIGHTS["may"](DECLARED[user], subject)]
    replies = [
        *RIGHTS["publishes"](), f"{victim}.forged",
        *(f"{prefix}.STREAM.{verb}.{stream}" for prefix in ("$JS.API", "JS.LOG.API") for stream in STREAMS for verb in ("PURGE", "DELETE", "UPDATE")),
    ]  # fmt: skip
    try:
        for reply in replies:
            for subject in say:
                message = subject in RIGHTS["publishes"]()
                await broker.client.publish(subject, b"x" if message else HARMLESS, reply, {"Nats-Expected-Last-Sequence": "999999"} if message else None)
        # Answers come in the order of the requests: the last one's shows that all are done.
        await broker.request(f"JS.LOG.API.STREAM.INFO.{STREAMS[0]}", b"")
        await other.request(f"JS.LOG.API.STREAM.INFO.{STREAMS[0]}", b"")
        await other.client.flush()
        await asyncio.sleep(0.2)
        assert await states(filled) == before
        assert [message.subject for message in heard if message.subject.endswith(".forged")] == []
    finally:
        await broker.close()
        await other.close()


async def states(log):
    """How much there is in both streams, and that their settings are what they were."""
    found = []
    for stream in STREAMS:
        info = await log.broker.api(f"STREAM.INFO.{stream}")
        found.append((info["state"]["messages"], info["state"]["first_seq"], info["state"]["last_seq"], info["config"]))
    return found
