"""A real S3 server for tests: versitygw, where one is on the PATH (`S3=1 tests/kubernetes/build.sh FOLDER` builds it)."""

import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from restow.eventlog.testing import free_ports

BINARY = shutil.which("versitygw")
LACKING = "needs the S3 server versitygw on the PATH: S3=1 ONLY=1 tests/kubernetes/build.sh .kubernetes"
ACCESS, SECRET = "restow-tests", "not-to-be-shown-anywhere"


class S3Server:
    """versitygw on a folder; each folder in it is a bucket."""

    def __init__(self, folder, certificate=None):
        """`certificate`: files of a certificate and its key, for TLS."""
        self.folder, self.port, self._process, self._certificate = folder, free_ports(1)[0], None, certificate
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self):
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self.port}"

    def environment(self, secret=SECRET):
        return {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": secret, "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"}

    def bucket(self, name):
        (self.folder / name).mkdir()
        return self.folder / name

    def start(self):
        tls = ["--cert", str(self._certificate[0]), "--key", str(self._certificate[1])] if self._certificate else []
        said = (self.folder.parent / "versitygw.log").open("ab")
        self._process = subprocess.Popen(
            [BINARY, "--port", f"127.0.0.1:{self.port}", *tls, "--health", "/health", "posix", str(self.folder)],
            env={**os.environ, "ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}, stdout=said, stderr=said,
        )
        until = time.monotonic() + 30
        while True:
            try:
                # Not verified: whether it runs is the question.
                with urllib.request.urlopen(f"{self.url}/health", timeout=2, context=ssl._create_unverified_context()):
                    return self
            except (OSError, urllib.error.URLError):
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def stop(self):
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    if BINARY is None:
        pytest.skip(LACKING)
    server = S3Server(tmp_path_factory.mktemp("s3") / "data").start()
    yield server
    server.stop()
