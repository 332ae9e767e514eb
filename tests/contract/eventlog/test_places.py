"""The rules of an archive are the same in a folder, in a bucket of the library's, and on a real S3 server (DESIGN 2)."""

import asyncio
import os
import random
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from obstore.store import LocalStore, MemoryStore, S3Store
from s3_server import s3_server  # noqa: F401
from slow_archiver import SlowArchiver

from restow.eventlog import bucket
from restow.eventlog.archive import covered, export, full_log, has_segments, import_, open_archive
from restow.eventlog.bucket import ArchiveAway, Bucket
from restow.eventlog.bucket_answers import said
from restow.eventlog.folder import Folder
from restow.eventlog.memory import MemoryLog
from restow.eventlog.port import LogMismatch, NotAllowed
from restow.eventlog.segment import ArchiveError
from restow.eventlog.testing import envelope


class InFolder:
    """A folder, and how to spoil it."""

    def __init__(self, path):
        self.path = path

    def place(self):
        """As another process has it."""
        return Folder(self.path)

    def names(self):
        return [file.name for file in self.place().files()]

    def read(self, name):
        return (self.path / name).read_bytes()

    def write(self, name, blob):
        (self.path / name).write_bytes(blob)

    def remove(self, name):
        (self.path / name).unlink()


class InBucket:
    def __init__(self, store):
        self.store = store

    def place(self):
        return Bucket(self.store, "backups/prod", "s3://bucket/backups/prod")

    def names(self):
        return [file.name for file in self.place().files()]

    def key(self, name):
        return f"backups/prod/chain-0001/{name}"

    def read(self, name):
        return bytes(self.store.get(self.key(name)).bytes())

    def write(self, name, blob):
        self.store.put(self.key(name), bytes(blob), use_multipart=False)

    def remove(self, name):
        self.store.delete(self.key(name))


KINDS = ["folder", "memory", "disk", "s3"]


@pytest.fixture(params=KINDS)
def shell(request, tmp_path):
    if request.param == "folder":
        return InFolder(tmp_path / "archive")
    if request.param == "memory":
        return InBucket(MemoryStore())
    if request.param == "disk":
        return InBucket(LocalStore(tmp_path))
    server = request.getfixturevalue("s3_server")
    name = f"bucket-{os.urandom(6).hex()}"
    server.bucket(name)
    said = server.environment()
    return InBucket(
        S3Store(name, endpoint=said["AWS_ENDPOINT_URL"], access_key_id=said["AWS_ACCESS_KEY_ID"], secret_access_key=said["AWS_SECRET_ACCESS_KEY"],
                client_options={"allow_http": True})
    )  # fmt: skip


async def fill(log, count):
    first = await log.tail() + 1
    for number in range(first, first + count):
        family = ("session", "cluster", "gc")[number % 3]
        await log.append(family, b'{"number":%d}' % number, envelope(family=family), expected_last=await log.last_of(family))


async def filled(count, **options):
    log = MemoryLog(**options)
    await fill(log, count)
    return log


async def three(shell):
    """A log of nine records, in an archive of three segments."""
    log = await filled(9)
    for end in (3, 6, 9):
        await export(log, shell.place(), to_seq=end)
    assert len(shell.names()) == 3
    return log


def sequences(shell, **options):
    return [record.seq for record in open_archive(shell.place(), **options).records()]


async def everything(batches, last):
    records = []
    async for batch in batches:
        records += batch
        if records[-1].seq >= last:
            return records


# -- one chain --------------------------------------------------------------------------------------------------------------


async def test_an_archive_goes_on_where_it_ended_also_from_another_process(shell):
    log = await filled(10)
    assert not has_segments(shell.place())
    place = shell.place()
    first = await export(log, place, segment_bytes=500)
    assert (first.first, first.last, first.log_id) == (1, 10, log.log_id)
    assert len(first.segments) > 2
    assert (await export(log, place)).last == 10, "nothing new is no error"
    await fill(log, 5)
    await export(log, place)
    await fill(log, 5)
    await export(log, shell.place())
    assert list(open_archive(shell.place(), log_id=log.log_id).records()) == await everything(log.read(1), 20)
    assert [r.seq for r in open_archive(shell.place()).records(18)] == [18, 19, 20]
    assert covered(shell.place(), 1) == 20
    with pytest.raises(ValueError, match="continued at 21 only"):
        await export(log, shell.place(), 3)


async def test_archive_and_log_are_one_log_and_the_archive_makes_a_new_one(shell):
    log = await filled(12)
    before = await everything(log.read(1), 12)
    await export(log, shell.place(), segment_bytes=700)
    await log.truncate(9)
    await fill(log, 3)
    whole = await everything(full_log(shell.place(), log), 15)
    assert [r.seq for r in whole] == list(range(1, 16))
    assert whole[:12] == before
    copy = MemoryLog(log_id=log.log_id)
    assert await import_(shell.place(), copy) == 12
    assert [r.body for r in await everything(copy.read(1), 12)] == [r.body for r in before]


async def test_a_log_without_an_archive_says_what_is_missing(shell):
    log = await filled(9)
    await log.truncate(4)
    with pytest.raises(ArchiveError, match="no archive here, and the log begins at 5: records 1 to 4 are missing"):
        await everything(full_log(shell.place(), log), 9)
    with pytest.raises(ArchiveError, match="holds no segment"):
        open_archive(shell.place())
    assert covered(shell.place(), 1) == 0


async def test_two_who_continue_an_archive_leave_one_chain_and_whoever_is_second_learns_it(shell, monkeypatch):
    """One has lost its lease in the middle of a segment and has not ended yet; they write to different ends."""
    log = await filled(50)
    await export(log, shell.place(), to_seq=10)
    slow = SlowArchiver(monkeypatch)
    slower = asyncio.create_task(export(log, shell.place(), to_seq=20))
    async with asyncio.timeout(30):
        await slow.writing.wait()
        slow.others()
        faster = asyncio.create_task(export(log, shell.place(), to_seq=30))
        await asyncio.wait({faster})
        before = {name: shell.read(name) for name in shell.names()}
        slow.may.set()
        results = await asyncio.gather(slower, faster, return_exceptions=True)
    (refused,) = [one for one in results if isinstance(one, Exception)]
    assert isinstance(refused, ArchiveError)
    assert "another process" in str(refused)
    assert {name: shell.read(name) for name in before} == before
    assert (await export(log, shell.place(), to_seq=40)).last == 40
    assert sequences(shell, log_id=log.log_id) == list(range(1, 41))


async def test_an_export_that_is_cancelled_leaves_whole_segments_only(shell):
    log = await filled(3000)
    task = asyncio.create_task(export(log, shell.place(), segment_bytes=50_000))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if names := shell.names():
        assert sequences(shell)[-1] == covered(shell.place(), 1), names
    await export(log, shell.place())
    assert sequences(shell, log_id=log.log_id) == list(range(1, 3001))


async def test_an_archive_that_was_put_aside_stays_and_a_new_one_begins_in_its_place(shell):
    log = await three(shell)
    names = shell.names()
    before = {name: shell.read(name) for name in names}
    other = await filled(5)
    place = shell.place()
    with pytest.raises(ArchiveError, match=f"it is from log {log.log_id}, not from {other.log_id}"):
        await export(other, place)
    where = place.set_aside(9)
    assert not has_segments(place)
    await export(other, place)
    assert [r.body for r in open_archive(shell.place(), log_id=other.log_id).records()] == [r.body for r in await everything(other.read(1), 5)]
    if isinstance(shell, InFolder):
        assert sorted(file.name for file in Folder(type(shell.path)(where)).files()) == names
        assert open_archive(where).last == 9
    else:
        assert where == "s3://bucket/backups/prod/chain-0001"
        assert {name: shell.read(name) for name in names} == before
        old = Bucket(shell.store, "backups/prod/chain-0001", where)
        assert (open_archive(old).log_id, open_archive(old).last) == (log.log_id, 9)


async def test_what_a_new_archive_begins_with_stays_in_the_old_one_too(shell):
    log = await three(shell)
    place = shell.place()
    archive = open_archive(place)
    assert len(archive.segments) > 2
    kept, whole = archive.segments[:-2], [r.seq for r in archive.records()]
    where = place.set_aside(archive.last, kept)
    for now in (open_archive(place), open_archive(shell.place())):
        assert [s.digest for s in now.segments] == [s.digest for s in kept]
    old = Folder(type(shell.path)(where)) if isinstance(shell, InFolder) else Bucket(shell.store, "backups/prod/chain-0001", where)
    assert [s.digest for s in open_archive(old).segments] == [s.digest for s in archive.segments]
    await export(log, place)
    assert [r.seq for r in open_archive(shell.place(), log_id=log.log_id).records()] == whole


class BreaksOff:
    """A bucket that goes away after so many objects were put."""

    def __init__(self, store, puts):
        self.store, self.left, self.puts = store, puts, 0

    def __getattr__(self, name):
        return getattr(self.store, name)

    def put(self, *arguments, **named):
        if self.left == 0:
            raise OSError("the network is gone")
        self.left, self.puts = self.left - 1, self.puts + 1
        return self.store.put(*arguments, **named)


@pytest.mark.parametrize("puts", range(5))
@pytest.mark.parametrize("same", [True, False])
async def test_a_bucket_that_goes_away_while_a_new_archive_gets_its_beginning_keeps_the_old_one(puts, same):
    """The new chain ended too early, so that it did not fit the log either, and all that was before was in an old one only."""
    shell = InBucket(MemoryStore())
    log = await filled(15)
    for end in (3, 6, 9, 12, 15):
        await export(log, shell.place(), to_seq=end)
    breaks = BreaksOff(shell.store, -1)
    place = Bucket(breaks, "backups/prod", "s3://bucket/backups/prod")
    archive = open_archive(place)
    kept, whole = archive.segments[:-1], [r.seq for r in archive.records()]
    place._prove()
    breaks.left = puts
    with pytest.raises(ArchiveAway):
        place.set_aside(archive.last, kept)
    for now in (open_archive(place), open_archive(shell.place())):
        assert [r.seq for r in now.records()] == whole
    breaks.left, breaks.puts = -1, 0
    place = place if same else Bucket(breaks, "backups/prod", "s3://bucket/backups/prod")
    kept = open_archive(place).segments[:-1]
    assert place.set_aside(archive.last, kept) == "s3://bucket/backups/prod/chain-0001"
    # What is there is not put again, but for what says which is the last of it (and, by another process, the proof).
    assert breaks.puts == len(kept) + 1 - max(puts - 1, 0) + (not same and puts - 1 < len(kept))
    for now in (open_archive(place), open_archive(shell.place())):
        assert [s.digest for s in now.segments] == [s.digest for s in kept]
    await export(log, place)
    assert [r.seq for r in open_archive(shell.place(), log_id=log.log_id).records()] == whole
    assert {str(key["path"]).split("/")[2] for batch in shell.store.list() for key in batch} == {"chain-0001", "chain-0002", "restow-archive"}


async def test_what_was_begun_with_another_beginning_is_passed_over():
    shell = InBucket(MemoryStore())
    log = await three(shell)
    breaks = BreaksOff(shell.store, 2)
    place = Bucket(breaks, "backups/prod", "s3://bucket/backups/prod")
    archive = open_archive(place)
    with pytest.raises(ArchiveAway):
        place.set_aside(9, archive.segments[:2])
    place = shell.place()
    archive = open_archive(place)
    place.set_aside(9, archive.segments[:1])
    assert open_archive(shell.place()).last == 3
    place.set_aside(3)
    assert not has_segments(place)
    await export(log, place)
    assert {str(key["path"]).split("/")[2] for batch in shell.store.list() for key in batch} == {"chain-0001", "chain-0002", "chain-0003", "chain-0004", "restow-archive"}
    assert open_archive(shell.place()).last == 9


# -- what is refused ----------------------------------------------------------------------------------------------------------


async def test_sampled_damage_is_refused_with_file_and_place(shell):
    await three(shell)
    name = shell.names()[1]
    blob, chance = shell.read(name), random.Random(1)
    place = shell.place()
    open_archive(place)
    spoiled = [blob[:-1], blob[: len(blob) // 2], blob[:10], blob + b"x", b"x" + blob]
    for _ in range(40):
        one = bytearray(blob)
        one[chance.randrange(len(blob))] ^= 1 << chance.randrange(8)
        spoiled.append(bytes(one))
    for one in spoiled:
        shell.write(name, one)
        for reader in (shell.place(), place):
            with pytest.raises(ArchiveError) as refused:
                open_archive(reader)
            assert name in str(refused.value)
            assert refused.value.where
    shell.write(name, blob)
    assert sequences(shell) == list(range(1, 10))


async def test_a_missing_segment_is_refused_and_nothing_counts_as_covered_behind_it(shell):
    await three(shell)
    first, second, third = shell.names()
    shell.remove(second)
    with pytest.raises(ArchiveError, match=r"00007.*line 1: records 4 to 6 are missing before it"):
        open_archive(shell.place())
    assert covered(shell.place(), 1) == 3
    shell.remove(first)
    with pytest.raises(ArchiveError, match=r"00007.*a segment before it is missing"):
        open_archive(shell.place())
    assert covered(shell.place(), 1) == 0
    assert covered(shell.place(), 8) == 9
    shell.remove(third)
    assert covered(shell.place(), 1) == 0


async def test_replaced_renamed_and_foreign_segments_are_refused(shell, tmp_path):
    log = await three(shell)
    _, second, third = shell.names()
    kept = shell.read(second)
    other = MemoryLog(log_id=log.log_id)
    await fill(other, 2)
    for _ in range(7):
        await other.append("session", b'{"another":1}', envelope(), expected_last=await other.last_of("session"))
    beside = InFolder(tmp_path / "beside")
    await export(other, beside.place(), to_seq=3)
    await export(other, beside.place(), to_seq=6)
    shell.write(second, beside.read(beside.names()[1]))
    with pytest.raises(ArchiveError, match=r"00004.*line 1: it does not continue .*00001.*: that segment was replaced"):
        open_archive(shell.place())
    shell.write(second, shell.read(third))
    with pytest.raises(ArchiveError, match="the file was renamed or replaced"):
        open_archive(shell.place())
    shell.write(second, kept)
    assert sequences(shell) == list(range(1, 10))
    foreign = InFolder(tmp_path / "foreign")
    stranger = await filled(12)
    await stranger.truncate(9)
    await export(stranger, foreign.place())
    (name,) = foreign.names()
    shell.write(name, foreign.read(name))
    with pytest.raises(ArchiveError, match=f"it is from log {stranger.log_id}, the segment before from {log.log_id}"):
        open_archive(shell.place())


async def test_an_archive_of_a_history_that_its_log_has_lost_is_not_continued(shell):
    log = await three(shell)
    short = MemoryLog(log_id=log.log_id)
    await fill(short, 5)
    with pytest.raises(LogMismatch, match="the log has lost commits"):
        await export(short, shell.place())
    assert sequences(shell) == list(range(1, 10))


# -- a bucket alone -----------------------------------------------------------------------------------------------------------


class Counting:
    """A store that counts what is asked of it, and does what a test says first."""

    def __init__(self, store, first=lambda name, arguments: None):
        self._store, self._first, self.asked = store, first, []

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def ask(*arguments, **options):
            self.asked.append((name, *arguments[:1]))
            self._first(name, arguments)
            return method(*arguments, **options)

        return ask

    def got(self):
        return [asked for asked in self.asked if asked[0] == "get"]


async def test_what_was_found_whole_is_not_read_again_and_where_it_ends_takes_one_request_a_segment():
    store = MemoryStore()
    log = await filled(9)
    counting = Counting(store)
    place = Bucket(counting, "", "s3://bucket")
    for end in (3, 6, 9):
        await export(log, place, to_seq=end)
    open_archive(place)
    # Only the record at its end is: does the log still have it?
    assert all(key == "chain-0001/00000000000000000004.jsonl.zst" or key.endswith("01.jsonl.zst") for _, key in counting.got())
    counting.asked.clear()
    open_archive(place)
    assert covered(place, 1) == 9
    assert counting.got() == []
    another = Counting(store)
    assert covered(Bucket(another, "", "s3://bucket"), 1) == 9
    assert len(another.got()) == 3


async def test_a_reader_holds_a_block_of_an_object_and_asks_for_each_byte_once():
    store = MemoryStore()
    blob = random.Random(1).randbytes(9_000_000)
    store.put("big", blob)
    counting = Counting(store)
    place = Bucket(counting, "", "s3://bucket")
    with place._find("big").open("rb") as file:
        assert file.seek(0, os.SEEK_END) == len(blob)
        file.seek(0)
        read = b""
        while piece := file.read(100_000):
            read += piece
    assert read == blob
    assert len(counting.got()) <= 9
    with place._find("big").open("rb") as file:
        store.put("big", b"x" * len(blob))
        with pytest.raises(ArchiveError, match="s3://bucket/big: it was replaced while it was read"):
            file.read(10)
    with place._find("big").open("rb") as file:
        store.delete("big")
        with pytest.raises(ArchiveError, match="s3://bucket/big: it was removed while it was read"):
            file.read(10)


async def test_a_put_whose_answer_was_lost_is_known_as_ones_own():
    """It may be put again by the library, or by the next attempt of whoever archives."""
    store = MemoryStore()

    def lost(name, arguments):
        if name == "put" and arguments[0].endswith(".zst") and not list(store.list("chain-0001"))[0:]:
            arguments[1].seek(0)
            store.put(arguments[0], arguments[1].read(), mode="create")

    log = await filled(5)
    place = Bucket(Counting(store, lost), "", "s3://bucket")
    assert (await export(log, place)).last == 5
    await fill(log, 3)
    assert (await export(log, place)).last == 8
    assert [r.seq for r in open_archive(Bucket(store, "", "s3://bucket")).records()] == list(range(1, 9))


async def test_a_server_that_overwrites_what_is_there_is_refused_before_anything_is_in_it():
    class Overwriting:
        def __init__(self, store):
            self._store = store

        def __getattr__(self, name):
            return getattr(self._store, name)

        def put(self, key, file, mode):
            return self._store.put(key, file)

    place = Bucket(Overwriting(MemoryStore()), "p", "s3://bucket/p")
    with pytest.raises(ArchiveError, match=r"has overwritten an object although it was told not to .* Use a server that knows conditional writes"):
        await export(await filled(3), place)
    assert not has_segments(place)


async def test_segments_that_were_copied_from_a_folder_are_continued_and_a_copy_of_a_bucket_is_a_folder(tmp_path):
    log = await filled(9)
    folder, store = InFolder(tmp_path / "a"), MemoryStore()
    await export(log, folder.place(), to_seq=3)
    await export(log, folder.place(), to_seq=6)
    for name in folder.names():
        store.put(f"p/{name}", folder.read(name))
    place = Bucket(store, "p", "s3://bucket/p")
    assert (await export(log, place)).last == 9
    copy = tmp_path / "copy"
    copy.mkdir()
    for batch in store.list("p"):
        for meta in batch:
            (copy / meta["path"].removeprefix("p/")).write_bytes(bytes(store.get(meta["path"]).bytes()))
    await fill(log, 3)
    assert covered(copy, 1) == 9
    assert (await export(log, copy)).last == 12
    assert [r.seq for r in open_archive(copy).records()] == list(range(1, 13))


async def test_the_archive_of_a_cluster_is_not_one_whose_name_begins_like_it():
    store, log = MemoryStore(), await filled(3)
    await export(log, Bucket(store, "backups/prod-eu", "s3://bucket/backups/prod-eu"))
    assert not has_segments(Bucket(store, "backups/prod", "s3://bucket/backups/prod"))


@pytest.mark.parametrize(
    "address",
    ["s3://", "s3://B", "s3://key:secret@bucket/p", "s3://bucket?x=1", "s3://bucket/../other", "s3://bucket//a", "s3://bucket/a b", "s3://bucket/a%2fb", "https://bucket/a"],
)
def test_an_address_with_anything_but_bucket_and_prefix_is_refused_and_not_shown(address):
    with pytest.raises(NotAllowed) as refused:
        bucket.check_address(address)
    assert "s3://BUCKET or s3://BUCKET/PREFIX" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("address", "found"), [("s3://bucket", ("bucket", "")), ("s3://my.bucket-1/a/b=c/", ("my.bucket-1", "a/b=c"))])
def test_bucket_and_prefix_are_taken_from_an_address(address, found):
    assert bucket.check_address(address) == found


def test_a_bucket_without_the_library_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(NotAllowed, match=r"pip install 'restow\[s3\]'"):
        bucket.connect("s3://bucket")


def test_a_server_that_does_not_answer_is_away_and_that_says_nothing_of_what_it_holds(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-shown")
    place = bucket.connect("s3://bucket/prefix")
    for ask in (has_segments, open_archive, lambda place: covered(place, 1)):
        with pytest.raises(ArchiveAway, match=r"the archive in s3://bucket/prefix cannot be used: no answer \(Connection refused: ") as away:
            ask(place)
        assert "not-to-be-shown" not in str(away.value)


def test_the_query_of_an_address_is_in_no_message():
    """A web identity's token may be in one."""
    text = 'Error performing POST https://sts.example/?Action=Assume&WebIdentityToken=hidden in 3 ms - HTTP error\n\nDebug source:\n error: "failed to lookup address",\n uri: /?token=hidden'
    assert said(text) == "failed to lookup address: Error performing POST https://sts.example/ in 3 ms - HTTP error"
    answer = "Error performing PUT http://s3/b in 1 ms - status code: 507\n<Error><Code>QuotaExceeded</Code><Message>The bucket is full.</Message></Error>"
    assert said(answer) == "QuotaExceeded: The bucket is full."


class Answers(BaseHTTPRequestHandler):
    """Of a server that has nothing in its buckets, and answers a PUT as it is told to."""

    def do_GET(self):
        self.answer(200, '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>')

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append(dict(self.headers))
        status, code = self.server.answers
        self.answer(status, f"<Error><Code>{code}</Code><Message>its words</Message></Error>" if code else "")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("status", "code", "means"),
    [
        (403, "RequestTimeTooSkewed", "the clocks of this machine and of the server differ too much (RequestTimeTooSkewed: its words)"),
        (403, "AccessDenied", "the server refuses these credentials, or they lack a right (AccessDenied: its words)"),
        (400, "ExpiredToken", "the credentials have expired (ExpiredToken: its words)"),
        (507, "XMinioStorageFull", "the server has no space left for it (XMinioStorageFull: its words)"),
        (400, "AuthorizationHeaderMalformed", "the bucket is in another region: set AWS_REGION (AuthorizationHeaderMalformed: its words)"),
        (301, "", "the bucket is in another region: set AWS_REGION ("),
        (400, "InvalidRequest", "the server does not do what it is asked (InvalidRequest: its words)"),
    ],
)
async def test_what_a_server_answers_is_told_by_what_it_means_and_what_is_put_has_a_checksum(monkeypatch, status, code, means):
    """All of 403 was said to be the credentials, and a bucket with a lock on its objects takes nothing without a checksum."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.answers, server.heard = (status, code), []
    Thread(target=server.serve_forever, daemon=True).start()
    settings = {"ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": "secret", "ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "ALLOW_HTTP": "true"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(bucket, "_RETRY", bucket._RETRY | {"max_retries": 0})
    try:
        with pytest.raises(ArchiveAway) as away:
            await export(await filled(2), bucket.connect("s3://bucket/archive"))
        assert f"cannot be used: {means}" in str(away.value)
        assert server.heard[0]["x-amz-checksum-sha256"]
    finally:
        server.shutdown()
        server.server_close()
