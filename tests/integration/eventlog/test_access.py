"""TLS, client certificates and nkeys, with the files of deploy/nats on real servers; and that renewed ones are taken without a restart."""

import asyncio
import contextlib
import os
import shutil
import signal
import ssl
from datetime import UTC, datetime, timedelta

import nats.errors
import nkeys
import pytest
import trustme

from restow.eventlog.access import AccessFiles, Certificates
from restow.eventlog.jetstream.connect import Broker
from restow.eventlog.port import BrokerRefused, NotAllowed, NotLetIn
from restow.eventlog.server import NatsServer, temporary_server
from restow.eventlog.testing import envelope, free_ports
from restow.garbage_collector.service import service as collector
from restow.runtime.certificate_ends import of_broker
from restow.runtime.process import Process
from restow.runtime.settings import Settings

from .helpers import BODY, end, follow, persist, until
from .test_permissions import CLUSTER, DEPLOY, PASSWORDS, USERS, guarded_server


class Files:
    """A CA, and in the folder what a Secret of cert-manager's holds: ca.crt, tls.crt, tls.key."""

    def __init__(self, folder):
        self.folder, self.ca = folder, trustme.CA()
        folder.mkdir()
        self.issue()

    def issue(self, *names, ca=None, **times):
        """Written beside and moved, as a kubelet does."""
        issued = (ca or self.ca).issue_cert(*(names or ("127.0.0.1", "localhost")), **times)
        self._write("ca.crt", (ca or self.ca).cert_pem.bytes())
        self._write("tls.key", issued.private_key_pem.bytes())
        self._write("tls.crt", b"".join(pem.bytes() for pem in issued.cert_chain_pems))

    def _write(self, name, text):
        (self.folder / f".{name}").write_bytes(text)
        os.replace(self.folder / f".{name}", self.folder / name)

    @property
    def client(self):
        return AccessFiles(**{name: str(self.folder / file) for name, file in (("ca", "ca.crt"), ("certificate", "tls.crt"), ("key", "tls.key"))})


def deployed(name, tls, routes=0):
    """A file of deploy/nats without what it includes, for this machine."""
    text = "\n".join(line for line in (DEPLOY / name).read_text().splitlines() if not line.startswith("include"))
    return text.replace('"/tls/', f'"{tls}/').replace("0.0.0.0:6222", f"127.0.0.1:{routes}")


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "tls")


@pytest.fixture
def encrypted(files):
    with guarded_server(deployed("nats-tls.conf", files.folder)) as server:
        yield server


@pytest.fixture
def plain():
    server = temporary_server()
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(server.folder)


def as_user(user, files):
    return {"user": user, "password": f"p{user}", "files": files, "wait": 10.0}


async def test_a_service_with_a_certificate_and_its_password_reads_and_appends(encrypted, opened, files):
    log = await opened(encrypted.url, CLUSTER, **as_user("scheduler_session", files.client))
    assert await log.append("session", BODY, envelope(), expected_last=0) == 1
    assert log.broker.client._transport._io_writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: AccessFiles(), "shows a certificate that is not to be trusted"),
        (lambda files: AccessFiles(ca=files.ca), "does not take our certificate"),
        (lambda files: AccessFiles(certificate=files.certificate, key=files.key), "shows a certificate that is not to be trusted"),
    ],
    ids=["no files", "no certificate", "no ca"],
)
async def test_who_lacks_a_file_is_told_which_setting_names_it(encrypted, files, change, said):
    with pytest.raises(BrokerRefused, match=said):
        await Broker.connect(encrypted.url, user="cli", password="pcli", files=change(files.client), wait=10)


async def test_a_certificate_of_another_ca_is_refused_by_either_side(encrypted, files, tmp_path):
    other = Files(tmp_path / "other").client
    with pytest.raises(BrokerRefused, match="not to be trusted"):
        await Broker.connect(encrypted.url, user="cli", password="pcli", files=other, wait=10)
    with pytest.raises(BrokerRefused, match="does not take our certificate"):
        await Broker.connect(
            encrypted.url, user="cli", password="pcli", files=AccessFiles(ca=files.client.ca, certificate=other.certificate, key=other.key), wait=10
        )


@pytest.mark.parametrize(
    ("whose", "said"),
    [("ours", r"does not take our certificate, which has ended or has not begun: renew the one in"), ("the broker's", r"not to be trusted \(certificate has expired\): renew it and tell the broker")],
)
async def test_a_certificate_that_has_ended_is_said_to_be_that(files, whose, said):
    """Ours: that no broker answers, and to start one; the broker's: to name its CA or correct the host's name."""
    client = files.client
    if whose == "ours":
        (old := Files(files.folder.with_name("old"))).issue(ca=files.ca, not_after=datetime(2021, 1, 1))
        client = AccessFiles(ca=client.ca, certificate=old.client.certificate, key=old.client.key)
    else:
        files.issue(not_after=datetime(2021, 1, 1))
    with guarded_server(deployed("nats-tls.conf", files.folder)) as server, pytest.raises(NotLetIn, match=said):
        await Broker.connect(server.url, user="cli", password="pcli", files=client, wait=10)


async def test_a_certificate_for_another_host_is_refused(encrypted, files):
    files.issue("broker.example")
    os.kill(encrypted.pid, signal.SIGHUP)

    async def until_the_broker_has_read_it():
        while True:
            await (await Broker.connect(encrypted.url, user="cli", password="pcli", files=files.client, wait=10)).close()
            await asyncio.sleep(0.05)

    with pytest.raises(BrokerRefused, match=r"not valid for '127\.0\.0\.1'"):
        await asyncio.wait_for(until_the_broker_has_read_it(), 60)


@pytest.mark.parametrize(("times", "taken"), [(1, True), (99, False)], ids=["once", "always"])
async def test_who_is_refused_while_the_broker_reads_its_configuration_anew_asks_once_more(plain, times, taken):
    """A reload refuses everybody who is connected and has not told a name yet (seen with nats-server 2.14)."""
    host, port = plain.url.removeprefix("nats://").split(":")
    asked = 0

    async def relay(reader, writer):
        nonlocal asked
        asked += 1
        there, to = await asyncio.open_connection(host, port)
        writer.write(await there.readline())
        if asked <= times:
            await reader.readline()
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            await writer.drain()
        else:
            await asyncio.wait([asyncio.ensure_future(pump(*ends)) for ends in ((reader, to), (there, writer))], return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, to):
            one.close()

    async def pump(source, sink):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as relayed:
        opening = Broker.connect(f"nats://127.0.0.1:{relayed.sockets[0].getsockname()[1]}", user="cli", password="pcli", wait=10)
        if taken:
            await (await opening).close()
        else:
            with pytest.raises(BrokerRefused, match="does not accept this user or password"):
                await opening
    assert asked == 2


async def test_a_client_with_a_ca_says_no_password_to_a_broker_without_tls(plain, files):
    for url, given in ((plain.url, files.client), (plain.url.replace("nats://", "tls://"), AccessFiles())):
        with pytest.raises(BrokerRefused, match="does not offer TLS there"):
            await Broker.connect(url, user="cli", password="pcli", files=given, wait=10)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("full", [False, True], ids=["idle", "with much unsent"])
async def test_a_broker_that_hangs_is_left_for_another_one_within_seconds(files, tls, full):
    """As one whose machine is gone. TLS would wait 30 s for its last word, and the kernel for much longer to send it what is unsent."""
    more = deployed("nats-tls.conf", files.folder) if tls else ""
    with guarded_server(more) as one, guarded_server(more) as other:
        broker = await Broker.connect([one.url, other.url], user="cli", password="pcli", files=files.client if tls else AccessFiles(), wait=10)
        hangs = next(server for server in (one, other) if server.url.endswith(f":{broker.client.connected_url.port}"))
        hangs.pause()
        try:
            sending = asyncio.create_task(flood(broker)) if full else None
            await until(lambda: broker.client.is_connected and broker.client.connected_url.port != hangs.port, 20)
            await asyncio.wait_for(broker.close(), 5)
            if sending is not None:
                await end(sending)
        finally:
            hangs.resume()


async def flood(broker):
    """More than what the kernel keeps for a broker that reads nothing, unless the client ends before."""
    with contextlib.suppress(nats.errors.ConnectionClosedError):
        for _ in range(20):
            await broker.client.publish("nobody.listens", bytes(900_000))


async def test_a_client_ends_while_its_broker_hangs_and_much_is_unsent(plain):
    broker = await Broker.connect(plain.url)
    plain.pause()
    try:
        sending = asyncio.create_task(flood(broker))
        await asyncio.sleep(0.5)
        await asyncio.wait_for(broker.close(), 5)
        await end(sending)
    finally:
        plain.resume()


async def test_a_client_ends_while_its_broker_has_come_back_with_a_certificate_that_it_does_not_believe(plain, files):
    """As where TLS was turned on: services of before are stopped then, and were killed after 30 s."""
    broker = await Broker.connect(plain.url)
    await asyncio.to_thread(plain.stop)
    again = NatsServer(plain.folder, port=plain.port, extra=deployed("nats-tls.conf", files.folder))
    await asyncio.to_thread(again.start)
    try:
        await until(lambda: isinstance(broker._last_error, ssl.SSLError), 20)
        await asyncio.wait_for(broker.close(), 5)
    finally:
        again.stop()


async def test_who_waits_for_a_broker_whose_certificate_has_ended_says_so(encrypted, opened, files):
    """It said that it waits, and nothing else."""
    log = await opened(encrypted.url, CLUSTER, **as_user("scheduler_session", files.client))
    assert log.away() == ""
    files.issue(not_after=datetime.now(UTC) - timedelta(hours=1))
    await asyncio.to_thread(encrypted.stop)
    await asyncio.to_thread(encrypted.start)
    await until(lambda: "certificate has expired" in log.away(), 20)
    assert log.away().startswith("the broker is out of reach: waiting for it (")
    files.issue()
    os.kill(encrypted.pid, signal.SIGHUP)
    await until(lambda: log.away() == "", 30)


def test_a_certificate_is_spoken_of_before_it_ends(files):
    """Whoever is connected stays so when it ends, so nobody notices until the next restart of a broker, which stops all."""
    now = datetime.now(UTC)

    def said(**left):
        files.issue(not_after=now + timedelta(**left), not_before=now - timedelta(days=60))
        return of_broker(files.client, now)

    assert said(days=30) == ""
    assert "RESTOW_NATS_CERTIFICATE ends at" in said(days=9), "a sixth of 69 days is more"
    assert said(days=13) == "", "a sixth of 73 days is less"
    assert "RESTOW_NATS_CERTIFICATE has ended at" in said(days=-1)
    assert "RESTOW_NATS_CA" not in said(days=-1), "its authority lives on"
    assert of_broker(AccessFiles(), now) == of_broker(AccessFiles(certificate="/nowhere", key="/nowhere"), now) == ""
    assert "RESTOW_NATS_CA has ended" in of_broker(files.client, datetime(4000, 1, 1, tzinfo=UTC))


def test_an_alert_can_go_by_a_certificate_that_ends_also_while_its_service_waits_for_the_broker(files):
    def metric(**left):
        files.issue(not_after=datetime.now(UTC) + timedelta(**left))
        paths = files.client
        process = Process(collector(), Settings(identity="a", nats_ca=paths.ca, nats_certificate=paths.certificate, nats_key=paths.key))
        return process._gauges()["broker_certificate_due"]

    assert (metric(days=30), metric(hours=1), metric(days=-1)) == (0, 1, 1)


@pytest.mark.slow
async def test_renewed_certificates_are_taken_without_a_restart_of_either_side(encrypted, opened, files, caplog):
    """A new CA altogether: who had kept the old one could not connect again."""
    log = await opened(encrypted.url, CLUSTER, **as_user("scheduler_session", files.client))
    reader, seen = follow(log, 1)
    await persist(log, "before")
    files.issue(ca=trustme.CA())
    os.kill(encrypted.pid, signal.SIGHUP)
    async with asyncio.timeout(60):
        while True:
            try:
                await (await Broker.connect(encrypted.url, user="cli", password="pcli", files=files.client, wait=2)).close()
                break
            except BrokerRefused:
                continue  # the broker has not read them yet
    assert log.broker.losses == 0
    await asyncio.to_thread(encrypted.stop)
    await asyncio.to_thread(encrypted.start)
    assert await persist(log, "after") == 2
    assert log.broker.losses == 1
    assert "eof_received" not in caplog.text, "asyncio warned of it each time that a broker ended"
    await until(lambda: len(seen) == 2)
    await end(reader)


async def test_a_half_written_certificate_leaves_the_last_one_in_use(files):
    certificates = Certificates(files.client)
    before = certificates.context()
    (files.folder / "tls.crt").write_text("-----BEGIN CERTIFICATE-----\nMII")
    assert certificates.context() is before
    assert "are no certificate and its key (PEM)" in certificates.problem
    files.issue()
    assert certificates.context() is not before
    assert certificates.problem == ""
    assert certificates.context() is certificates.context()


# -- nkeys -----------------------------------------------------------------------------------------------------------------


def seed_of(number):
    """A user's, by its number."""
    return nkeys.encode_seed(bytes([number] * 32), nkeys.PREFIX_BYTE_USER)


def public(number):
    return nkeys.from_seed(bytearray(seed_of(number))).public_key.decode()


@pytest.fixture
def keyed(tmp_path):
    """A broker that knows public keys only, and the file of each user's seed."""
    environment = {f"RESTOW_NATS_{user.upper()}_NKEY": public(number) for number, user in enumerate(USERS, 1)}
    server = temporary_server(extra="include ./permissions-nkeys.conf", environment=environment)
    shutil.copy(DEPLOY / "permissions-nkeys.conf", server.folder)
    for number, user in enumerate([*USERS, "stranger"], 1):
        (tmp_path / user).write_bytes(seed_of(number) + b"\n")
    try:
        yield server.start(), lambda user: AccessFiles(credentials=str(tmp_path / user))
    finally:
        server.stop()
        shutil.rmtree(server.folder)


async def test_a_service_is_known_by_its_nkey_and_has_its_own_rights(keyed, opened):
    server, of = keyed
    log = await opened(server.url, CLUSTER, user="scheduler_session", files=of("scheduler_session"))
    assert await log.append("session", BODY, envelope(), expected_last=0) == 1
    with pytest.raises(BrokerRefused, match=r"forbid this user to publish to restow\.main\.cluster"):
        await log.append("cluster", BODY, envelope(), expected_last=0)
    assert await (await opened(server.url, CLUSTER, user="cli", files=of("cli"), create=False)).tail() == 1


async def test_an_unknown_nkey_is_refused_at_once(keyed):
    server, of = keyed
    with pytest.raises(BrokerRefused, match="does not accept this user or password, or key"):
        await Broker.connect(server.url, user="cli", files=of("stranger"), wait=10)


# -- files that are none ----------------------------------------------------------------------------------------------------


def test_files_that_are_no_files_are_refused_before_anything_is_connected(files, tmp_path):
    good = files.client
    (tmp_path / "text").write_text("hello")
    text, none = str(tmp_path / "text"), str(tmp_path / "none")
    for given, said in (
        (AccessFiles(certificate=good.certificate), "RESTOW_NATS_CERTIFICATE names a file and RESTOW_NATS_KEY none"),
        (AccessFiles(key=good.key), "RESTOW_NATS_KEY names a file and RESTOW_NATS_CERTIFICATE none"),
        (AccessFiles(ca=none), "RESTOW_NATS_CA does not name a file that exists"),
        (AccessFiles(ca=text), "holds no certificates to believe"),
        (AccessFiles(certificate=text, key=good.key), "are no certificate and its key"),
        (AccessFiles(credentials=text), "holds no seed of a user's nkey"),
    ):
        with pytest.raises(NotAllowed, match=said):
            given.check()


# -- three of them ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_three_brokers_with_the_files_of_deploy_keep_the_log_encrypted_and_lose_one(files, opened):
    routes = free_ports(3)
    environment = PASSWORDS | {
        "RESTOW_NATS_ROUTE_PASSWORD": "proute",
        "RESTOW_NATS_ROUTES": "[" + ", ".join(f'"nats://route:proute@127.0.0.1:{port}"' for port in routes) + "]",
    }
    servers = []
    try:
        for number, port in enumerate(routes):
            text = "\n".join(deployed(name, files.folder, port) for name in ("nats-tls.conf", "nats-three-tls.conf"))
            servers.append(temporary_server(extra=f"server_name: nats-{number}\ninclude ./permissions.conf\n{text}", environment=environment))
            servers[-1].folder.mkdir(exist_ok=True)
            shutil.copy(DEPLOY / "permissions.conf", servers[-1].folder)
            servers[-1].start()
        urls = [server.url for server in servers]
        log = await opened(urls, CLUSTER, replicas=3, **as_user("scheduler_session", files.client) | {"wait": 30.0})
        assert await persist(log, "one") == 1
        leader = int((await log.broker.api(f"STREAM.INFO.restow-{CLUSTER}"))["cluster"]["leader"][-1])
        await asyncio.to_thread(servers[leader].kill)
        assert await persist(log, "two") == 2
        await _no_stranger_joins(routes[(leader + 1) % 3], files)
    finally:
        for server in servers:
            server.kill()
            shutil.rmtree(server.folder, ignore_errors=True)


async def _no_stranger_joins(port, files):
    """Neither without TLS, nor with a certificate of ours and without the password of the routes."""
    for tls in (None, files.client.context()):
        said = b""
        try:
            async with asyncio.timeout(30):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
                writer.write(b'CONNECT {"verbose":false,"name":"evil","user":"route","pass":"wrong"}\r\nPING\r\n')
                while line := await reader.readline():
                    said += line
        except (ConnectionError, ssl.SSLError):
            pass
        assert b"PONG" not in said
