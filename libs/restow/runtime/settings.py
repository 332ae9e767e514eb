"""A service's settings: `RESTOW_*` in the environment, each also a flag. Checked at start; a bad one is refused with its
name, its value and what is allowed. Passwords and tokens come from the environment only and are never shown."""

import argparse
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from restow.contracts.redact import redacted
from restow.eventlog import bucket
from restow.eventlog.access import AccessFiles
from restow.eventlog.port import NotAllowed, check_address, check_login
from restow.runtime import bearer

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("json", "console")
LONGEST_DRAIN = 86_400
REPLICAS = ("1", "3", "5")
"""Of an even number, no more may be lost than of one less."""


_SHOWN = 200
"""Characters of a value: more is no setting but a file's content, put where its path belongs."""


class BadSetting(ValueError):
    """A setting that is not allowed. Says which, what it is and what is allowed."""

    def __init__(self, name: str, value: str, allowed: str) -> None:
        shown = redacted(value)
        super().__init__(f"{name} is {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...'!r}; allowed: {allowed}")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`kube`: URL of an API server, path of a kubeconfig, empty inside a cluster. `http_file`: where to write the address
    that HTTP listens on (for port 0). `api_token`, or a file with it, opens what changes something over HTTP. `lease`: off lets the
    process lead at once; `read_only`: on keeps it from writing anything to Kubernetes; `archive`: address of a bucket; `lease_duration`: seconds. `namespace`: of the lease. `nats_replicas`: copies that the log must have; 0 for as many as it has, one where it is made."""

    cluster: str = "default"
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: str = ""
    nats_credentials: str = ""
    nats_ca: str = ""
    nats_certificate: str = ""
    nats_key: str = ""
    nats_replicas: int = 0
    kube: str = ""
    http: str = "0.0.0.0:8080"
    http_file: str = ""
    api_token: str = ""
    api_token_file: str = ""
    answers_token_file: str = ""
    config: str = ""
    data: str = ""
    archive: str = ""
    image: str = ""
    placeholder_image: str = ""
    log_level: str = "info"
    log_format: str = "json"
    identity: str = ""
    lease: str = "on"
    lease_duration: int = 2
    read_only: str = "off"
    namespace: str = "restow-system"
    drain: float = 10.0

    def shown(self) -> dict[str, str]:
        """For logs: without what is secret."""
        shown = {name: redacted(str(getattr(self, name))) for name in self.__struct_fields__ if getattr(self, name) != ""}
        return shown | {name: "***" for name in SECRETS if getattr(self, name)}

    def archive_of(self, cluster: str) -> str | None:
        """Where the archive of this cluster's log is: in a bucket, or a folder; None where this service has neither."""
        if self.archive:
            return f"{self.archive.rstrip('/')}/{cluster}"
        return str(Path(self.data) / "archive" / cluster) if self.data else None

    @property
    def nats_files(self) -> AccessFiles:
        return AccessFiles(**{name: getattr(self, f"nats_{name}") for name in AccessFiles.__struct_fields__})

    @property
    def listen(self) -> tuple[str, int]:
        host, _, port = self.http.rpartition(":")
        return host.strip("[]"), int(port)


SECRETS = ("nats_password", "api_token")
"""Environment only: flags can be read by everybody on the machine."""

_HELP = {
    "cluster": "name of the cluster, one subject token",
    "nats_url": "address of the broker, several separated by commas",
    "nats_user": "user at the broker",
    "nats_credentials": "file with the user's nkey seed, or its credentials file, instead of a password",
    "nats_ca": "file with the certificates to believe of the broker (PEM); the connection is encrypted, or refused",
    "nats_certificate": "file with our certificate, for a broker that verifies its clients (PEM)",
    "nats_key": "file with its key (PEM)",
    "nats_replicas": "copies of the log on as many brokers: 1, 3 or 5; empty for as many as it has, one where it is made",
    "kube": "URL of the Kubernetes API, path of a kubeconfig, or empty inside a cluster",
    "http": "address for health, metrics and API; port 0 chooses a free one",
    "http_file": "file to write that address to",
    "api_token_file": "file with the token of the API, one a line; may appear later",
    "answers_token_file": "file with another token, for the console: it may answer plans, set the mode and pause, and nothing else",
    "config": "path of the configuration (YAML)",
    "data": "folder for this service's files (archive)",
    "archive": "bucket for the archive, s3://BUCKET/PREFIX, instead of that folder; its credentials are in AWS_ACCESS_KEY_ID and so on",
    "image": "image that this runs from, with its digest: named in the log beside the version",
    "placeholder_image": "image of placeholders and canaries, where registry.k8s.io cannot be reached: it must sleep for ever as any user (session)",
    "log_level": "one of " + ", ".join(LEVELS),
    "log_format": "one of " + ", ".join(FORMATS),
    "identity": "who this process is, in leases and in the log",
    "lease": "on, or off to lead without a Kubernetes Lease",
    "read_only": "on: send Kubernetes nothing but GET, and carry out nothing (with lease off); or off",
    "lease_duration": "seconds without a renewal after which another process may take the Lease",
    "namespace": "namespace of the lease",
    "drain": "seconds that a stop may take to finish what is in flight",
}


def read(service: str, argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Flags over environment over defaults. Raises BadSetting; `--help` and unknown flags end the process."""
    parser = argparse.ArgumentParser(
        prog=f"restow-{service.replace('_', '-')}",
        description=f"Restow's {service.replace('_', ' ')}.",
        epilog="Every flag can be given as RESTOW_<NAME> in the environment; RESTOW_NATS_PASSWORD and RESTOW_API_TOKEN only so.",
        # What is secret must not become a flag by being a part of one's name.
        allow_abbrev=False,
    )
    for name, text in _HELP.items():
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="VALUE", help=text)
    flags = vars(parser.parse_args(argv))
    given = {name: environment.get(_variable(name)) for name in Settings.__struct_fields__}
    given |= {name: value for name, value in flags.items() if value is not None}
    return check({name: value for name, value in given.items() if value is not None})


def check(given: Mapping[str, str]) -> Settings:
    """Settings from texts. Raises BadSetting."""
    values: dict[str, str | float] = {**given}
    _match(given, "cluster", r"[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 lower-case letters, digits, '-' and '_'")
    try:
        for address in given.get("nats_url", "nats://localhost").split(","):
            check_address(address)
    except NotAllowed:
        raise BadSetting(_variable("nats_url"), given["nats_url"], "nats://host:port with a port of 1 to 65535, several separated by commas") from None
    try:
        check_login(given.get("nats_url", "").split(","), given.get("nats_user"), given.get("nats_password"))
    except NotAllowed:
        raise BadSetting(_variable("nats_user"), given["nats_user"], "nothing, or the same user and password, where RESTOW_NATS_URL names a user") from None
    _check_files(given)
    if replicas := given.get("nats_replicas"):
        _one_of(given, "nats_replicas", REPLICAS)
        values["nats_replicas"] = int(replicas)
    else:
        values.pop("nats_replicas", None)
    _match(given, "http", r"(\[[0-9a-f:]+\]|[^\s:]*):\d{1,5}", "host:port, such as 0.0.0.0:8080")
    _match(given, "namespace", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a namespace name")
    _match(given, "image", r"[!-~]{1,300}", "the name of an image, such as registry/restow@sha256:...")
    _match(given, "placeholder_image", r"[!-~]{0,300}", "the name of an image, such as registry/pause:3.10")
    _one_of(given, "log_level", LEVELS)
    _one_of(given, "log_format", FORMATS)
    _one_of(given, "lease", ("on", "off"))
    _one_of(given, "read_only", ("on", "off") if given.get("lease") == "off" else ("off",))
    if "lease_duration" in given:
        _match(given, "lease_duration", r"[1-9]\d?", "seconds, 1 to 99")
        values["lease_duration"] = int(given["lease_duration"])
    if "http" in given and int(given["http"].rpartition(":")[2]) > 65535:
        raise BadSetting(_variable("http"), given["http"], "a port up to 65535")
    kube = given.get("kube", "")
    # `os.path.isfile`: what the system takes for no path at all is no file, and no exception that shows it (`Path.is_file`).
    if kube and not kube.startswith(("http://", "https://")) and not os.path.isfile(kube):
        raise BadSetting(_variable("kube"), kube, "a URL (http:// or https://) or the path of a kubeconfig that exists")
    _check_archive(given)
    if given.get("config") and not os.path.isfile(given["config"]):
        raise BadSetting(_variable("config"), given["config"], "the path of a file that exists")
    if given.get("api_token") and not bearer.is_token(given["api_token"]):
        raise BadSetting(_variable("api_token"), "***", bearer.ALLOWED)
    if given.get("api_token") and given.get("api_token_file"):
        raise BadSetting(_variable("api_token_file"), given["api_token_file"], "nothing beside RESTOW_API_TOKEN")
    if "drain" in given:
        try:
            values["drain"] = drain = float(given["drain"])
            if not 0 <= drain <= LONGEST_DRAIN:
                raise ValueError
        except ValueError:
            raise BadSetting(_variable("drain"), given["drain"], f"seconds, 0 to {LONGEST_DRAIN}, such as 10") from None
    if not given.get("identity"):
        values["identity"] = f"{socket.gethostname()}-{os.getpid()}"
    return Settings(**values)  # type: ignore[arg-type]


def _check_archive(given: Mapping[str, str]) -> None:
    """Shown is no address that is none: it may have a password in it."""
    if not (address := given.get("archive")):
        return
    try:
        bucket.check_address(address)
    except NotAllowed:
        raise BadSetting(_variable("archive"), "***", f"{bucket.ALLOWED}; for a folder there is RESTOW_DATA") from None
    try:
        bucket.connect(address)
    except NotAllowed as error:
        raise BadSetting(_variable("archive"), address, f"a bucket that can be used here; {error}") from None


def _check_files(given: Mapping[str, str]) -> None:
    """Of the broker, whose paths may be put where their contents belong."""
    files = AccessFiles(**{name: given.get(f"nats_{name}", "") for name in AccessFiles.__struct_fields__})
    for name in AccessFiles.__struct_fields__:
        if (path := getattr(files, name)) and not os.path.isfile(path):
            raise BadSetting(f"RESTOW_NATS_{name.upper()}", "***" if name in ("credentials", "key") else path, "the path of a file that exists")
    try:
        files.check()
    except NotAllowed as error:
        raise BadSetting("RESTOW_NATS_CREDENTIALS, _CA, _CERTIFICATE or _KEY", "", str(error)) from None
    if files.credentials and given.get("nats_password"):
        raise BadSetting(_variable("nats_credentials"), files.credentials, "nothing beside RESTOW_NATS_PASSWORD")


def _variable(name: str) -> str:
    return f"RESTOW_{name.upper()}"


def _match(given: Mapping[str, str], name: str, pattern: str, allowed: str) -> None:
    if name in given and not re.fullmatch(pattern, given[name]):
        raise BadSetting(_variable(name), given[name], allowed)


def _one_of(given: Mapping[str, str], name: str, allowed: Sequence[str]) -> None:
    if name in given and given[name] not in allowed:
        raise BadSetting(_variable(name), given[name], ", ".join(allowed))
