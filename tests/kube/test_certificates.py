"""Whom an API server with a caBundle would trust: as a handshake with OpenSSL says, which asks for the signature, too."""

import contextlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from restow.kube.certificates import mistrusted, valid_times

NOW = datetime.now(UTC).replace(microsecond=0)
HOST = "restow-webhook.restow-system.svc"
DAY = timedelta(days=1)


class Made:
    """A certificate and its key. `by`: who signs it; itself otherwise. `marks`: with the marks of both keys, as most tools do, but not Helm."""

    def __init__(self, name=HOST, by=None, *, hosts=(HOST,), begin=-1, end=9, authority=False, marks=True):
        self.key, self.name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = by or self
        builder = x509.CertificateBuilder(signer.name, self.name, self.key.public_key(), x509.random_serial_number(), NOW + begin * DAY, NOW + end * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in hosts]), critical=False)
        if marks:
            builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        self.pem = builder.sign(signer.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def trusted(self, shown, believed, folder):
        """As OpenSSL sees it, a certificate that is believed itself being enough, as for Go."""
        (folder / "chain").write_text(shown)
        (folder / "key").write_bytes(self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=believed)
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        client.verify_flags &= ~ssl.VERIFY_X509_STRICT
        server.load_cert_chain(folder / "chain", folder / "key")
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        one, other = client.wrap_bio(back, there, server_hostname=HOST), server.wrap_bio(there, back, server_side=True)
        try:
            for end in (one, other) * 3:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        except ssl.SSLCertVerificationError:
            return False
        return True


ROOT, SAME_NAME = Made("root", authority=True, hosts=()), Made("root", authority=True, hosts=())
BETWEEN = Made("between", ROOT, authority=True, hosts=())
OWN, RENEWED, BARE = Made(), Made(), Made(marks=False)
SIGNED, BELOW = Made(by=ROOT), Made(by=BETWEEN)
ENDED, LATER, ELSEWHERE, WILD = Made(begin=-9, end=-1), Made(begin=1), Made(hosts=("a.svc", "b.svc")), Made(hosts=("*.restow-system.svc",))
OLD_ROOT = Made("old", authority=True, hosts=(), begin=-9, end=-1)
NEITHER = "neither in it nor signed by one that is"


@pytest.mark.parametrize(
    ("own", "more", "believed", "said"),
    [
        (OWN, [], [OWN], ""),
        (OWN, [], [RENEWED], NEITHER),
        (OWN, [], [RENEWED, OWN], ""),
        (BARE, [], [BARE], ""),
        (BARE, [], [Made(marks=False)], NEITHER),
        (SIGNED, [], [ROOT], ""),
        (SIGNED, [], [SIGNED], ""),
        (SIGNED, [], [SAME_NAME], NEITHER),
        (SIGNED, [], [SAME_NAME, ROOT], ""),
        (SIGNED, [], [OWN], NEITHER),
        (BELOW, [BETWEEN], [ROOT], ""),
        (BELOW, [BETWEEN], [SAME_NAME], NEITHER),
        (BELOW, [], [ROOT], NEITHER),
        (BELOW, [], [BETWEEN], ""),
        (Made(by=OLD_ROOT), [], [OLD_ROOT], NEITHER),
        (ENDED, [], [ENDED], "has ended at"),
        (LATER, [], [LATER], "is valid from"),
        (ELSEWHERE, [], [ELSEWHERE], f"is for a.svc, b.svc, not for {HOST}"),
        (Made(hosts=()), [], [OWN], f"is for no host, not for {HOST}"),
        (WILD, [], [WILD], ""),
    ],
)
def test_a_certificate_is_trusted_where_a_handshake_says_so(own, more, believed, said, tmp_path):
    shown, bundle = "".join(one.pem for one in (own, *more)), "".join(one.pem for one in believed)
    found = mistrusted(shown, bundle, HOST, NOW)
    assert (said in found) if said else not found, found
    assert own.trusted(shown, bundle, tmp_path) is not bool(said)


def test_what_cannot_be_read_is_not_judged():
    assert mistrusted("", OWN.pem, HOST, NOW) == mistrusted(OWN.pem, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", HOST, NOW) == ""


def test_the_times_of_each_are_read():
    assert valid_times(OWN.pem + ENDED.pem) == [(NOW - DAY, NOW + 9 * DAY), (NOW - 9 * DAY, NOW - DAY)]
