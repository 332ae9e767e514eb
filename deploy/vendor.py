"""Fetch what the console's page is made with, exactly as pinned here (`make vendor`): with npm, checked against these hashes.

The result is committed, with licences and the hashes of every file (`vendor.json`), so that nobody who installs, tests or uses Restow needs npm.
A browser cannot resolve `from "preact"` without an import map, which is an inline script, so that one name is written as a path.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "services" / "restow" / "console" / "page" / "vendor"
PACKAGES = {
    "preact@11.2.0": (
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE"},
    ),
    "htm@3.1.1": (
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"},
    ),
}
"""Package → (the hash of its archive as the registry states it, file in it → file here)."""


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    said: dict[str, dict] = {}
    for package, (integrity, wanted) in PACKAGES.items():
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["npm", "pack", package, "--silent", "--pack-destination", scratch], check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(scratch).glob("*.tgz")
            found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            if found != integrity:
                sys.exit(f"{package}: its archive is {found}, pinned is {integrity}")
            files = {}
            with tarfile.open(archive) as packed:
                for inside, name in wanted.items():
                    member = packed.extractfile(f"package/{inside}")
                    assert member is not None, inside
                    body = _for_browsers(member.read()) if name.endswith(".js") else member.read()
                    (FOLDER / name).write_bytes(body)
                    files[name] = hashlib.sha256(body).hexdigest()
        said[package] = {"integrity": integrity, "files": files}
    (FOLDER / "vendor.json").write_text(json.dumps(said, indent=2) + "\n")


def _for_browsers(body: bytes) -> bytes:
    text = re.sub(r'from\s*"preact"', 'from"./preact.js"', body.decode())
    return (re.sub(r"\n?//# sourceMappingURL=.*", "", text).rstrip() + "\n").encode()


if __name__ == "__main__":
    main()
