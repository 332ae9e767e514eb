"""The chart's broker takes a renewed certificate while it runs: nothing else would tell it."""

import socket
import ssl
import subprocess
import time

import pytest
from deploy.manifests import containers, named, rendered

from restow.eventlog.server import find_binary
from restow.eventlog.testing import free_ports

CONFIG = """
listen: 127.0.0.1:{port}
tls {{ cert_file: "{tls}/tls.crt", key_file: "{tls}/tls.key", ca_file: "{tls}/ca.crt", verify: true }}
"""
OPENSSL = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-addext", "subjectAltName=IP:127.0.0.1"]


def command(*values: str) -> list[str]:
    return containers(named(rendered("--set", ",".join(values)), "StatefulSet", "restow-nats"))[0]["command"]


def test_only_one_whose_certificate_is_renewed_needs_a_shell():
    assert command("nats.replicas=1") == ["nats-server", "--config", "/etc/nats/nats.conf"]
    assert command("nats.tls.enabled=true") == ["nats-server", "--config", "/etc/nats/nats-tls.conf"]
    for values in (["nats.tls.certificate=cert-manager"], ["nats.tls.certificate=existing", "nats.tls.existingSecret=s"]):
        assert command("nats.replicas=3", "nats.tls.enabled=true", *values)[:2] == ["sh", "-c"]


@pytest.fixture
def secret(tmp_path):
    """As the kubelet writes one: all files change at once."""
    (folder := tmp_path / "tls").mkdir()
    for file in ("tls.crt", "tls.key", "ca.crt"):
        (folder / file).symlink_to(f"..data/{file}")

    def write(name):
        (version := folder / f"..{name}").mkdir()
        subprocess.run([*OPENSSL, "-subj", f"/CN={name}", "-keyout", version / "tls.key", "-out", version / "tls.crt"], check=True, capture_output=True)
        (version / "ca.crt").write_bytes((version / "tls.crt").read_bytes())
        (folder / "..next").symlink_to(version.name)
        (folder / "..next").rename(folder / "..data")

    write("first")
    return folder, write


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path, secret):
    folder, write = secret
    (port,) = free_ports(1)
    (config := tmp_path / "nats.conf").write_text(CONFIG.format(port=port, tls=folder))
    _, _, script = command("nats.tls.enabled=true", "nats.tls.certificate=cert-manager")
    for there, here in (("nats-server --config /etc/nats/nats-tls.conf", f"{find_binary()} --config {config}"), ("/tls/", f"{folder}/"), ("sleep 10", "sleep 0.1"), ("kill -HUP 1", "kill -HUP $$")):
        assert there in script
        script = script.replace(there, here)
    server = subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert shown(port, folder) == "first"
        write("second")
        until = time.monotonic() + 20
        while (now := shown(port, folder)) != "second" and time.monotonic() < until:
            time.sleep(0.1)
        assert now == "second"
        assert server.poll() is None
    finally:
        subprocess.run(["kill", "-KILL", "--", f"-{server.pid}"], check=False)
        server.wait()


def shown(port: int, folder) -> str:
    """The name in the certificate that the server shows."""
    until = time.monotonic() + 20
    while True:
        # Which one it is is the question, and not whether it is to be believed.
        context = ssl._create_unverified_context()
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as plain:
                plain.recv(4096)
                with context.wrap_socket(plain) as encrypted:
                    return _name(encrypted.getpeercert(binary_form=True))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _name(der: bytes) -> str:
    said = subprocess.run(["openssl", "x509", "-inform", "DER", "-noout", "-subject", "-nameopt", "multiline"], input=der, capture_output=True, check=True).stdout.decode()
    return said.rpartition("= ")[2].strip()
