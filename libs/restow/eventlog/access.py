"""The files by which a client of the broker is known and knows the broker: certificates and credentials."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from restow.eventlog.port import NotAllowed
from restow.machine.files import Stamp, stamp

_log = logging.getLogger(__name__)
_SEED = re.compile(rb"\bSU[A-Z2-7]{56}\b")
"""The seed of a user's nkey: base32, by its prefix of no account and no operator."""


class AccessFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Paths, each empty where there is none. `credentials`: a user's nkey seed, or a credentials file (JWT and seed) of a broker with an operator. `ca`:
    whom to believe, PEM; without it those whom the machine believes. `certificate` and `key`: who we are, for a broker that verifies its clients, PEM.
    They may be renewed while we run: a new connection takes them as they are then."""

    credentials: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""

    @property
    def encrypt(self) -> bool:
        """Whether a connection without TLS is refused."""
        return bool(self.ca or self.certificate)

    def check(self) -> None:
        """Raises NotAllowed where a file is missing, or is not what its name says."""
        if bool(self.certificate) != bool(self.key):
            there, missing = ("certificate", "key") if self.certificate else ("key", "certificate")
            raise NotAllowed(f"{variable(there)} names a file and {variable(missing)} none; give both, or neither")
        for what in ("credentials", "ca", "certificate", "key"):
            # Not what it says: a key or seed itself, put where its path belongs, is no word of ours.
            if (path := getattr(self, what)) and not os.path.isfile(path):
                raise NotAllowed(f"{variable(what)} does not name a file that exists")
        if self.credentials:
            self.is_seed()
        if self.encrypt:
            self.context()

    def is_seed(self) -> bool:
        """Whether the credentials are a seed alone. Raises NotAllowed where they are neither that nor JWT and seed."""
        try:
            with open(self.credentials, "rb") as file:
                text = file.read(65_536)
        except OSError as error:
            raise NotAllowed(f"{self.credentials} cannot be read: {error.strerror}") from None
        if not _SEED.search(text):
            raise NotAllowed(f"{self.credentials} holds no seed of a user's nkey (SU..., 58 letters and digits) and is no credentials file of `nsc`")
        return b"BEGIN NATS USER JWT" not in text

    def context(self) -> ssl.SSLContext:
        """What a connection is made with now. Raises NotAllowed where a file cannot be taken."""
        try:
            made = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ValueError) as error:
            raise NotAllowed(f"{self.ca} holds no certificates to believe (PEM): {_reason(error)}") from None
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate:
            try:
                made.load_cert_chain(self.certificate, self.key)
            except (OSError, ValueError) as error:
                raise NotAllowed(f"{self.certificate} and {self.key} are no certificate and its key (PEM): {_reason(error)}") from None
        return made


NO_FILES = AccessFiles()


class Certificates:
    """The TLS context of `files`, made anew when one of them has changed. While they cannot be taken (one is written just now), the last one that could."""

    def __init__(self, files: AccessFiles) -> None:
        self._files = files
        self._seen = self._versions()
        self._context = files.context()
        self.problem = ""
        """Why the files as they are now are not used; empty where they are."""

    def context(self) -> ssl.SSLContext:
        """For a connection that is made now."""
        versions = self._versions()
        if versions != self._seen or self.problem:
            try:
                self._context, self._seen, self.problem = self._files.context(), versions, ""
                _log.info("took the certificates as they are now")
            except NotAllowed as error:
                if self.problem != str(error):
                    _log.warning("the broker's certificates have changed and cannot be taken, the former ones are used: %s", error)
                self.problem = str(error)
        return self._context

    def _versions(self) -> tuple[Stamp | None, ...]:
        return tuple(stamp(path) for path in (self._files.ca, self._files.certificate, self._files.key) if path)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error)
    return str(reason).lower().replace("_", " ")


def encrypted(addresses: Iterable[str], files: AccessFiles) -> bool:
    """Whether a connection to one of these addresses must be encrypted."""
    return files.encrypt or any(urlsplit(address).scheme == "tls" for address in addresses)


def of_environment(environment: Mapping[str, str]) -> AccessFiles:
    """As `RESTOW_NATS_CREDENTIALS`, `_CA`, `_CERTIFICATE` and `_KEY` say, which the services' settings are called, too."""
    return AccessFiles(**{name: environment.get(variable(name), "") for name in AccessFiles.__struct_fields__})


def variable(name: str) -> str:
    """What the file of this field is called in the environment."""
    return f"RESTOW_NATS_{name.upper()}"
