"""What the page is made with is what was pinned, and is shipped with its licences."""

import hashlib
import json
import re
from importlib.resources import files

from restow.console.service import page

PAGE = files("restow.console") / "page"
VENDOR = PAGE / "vendor"
SAID = json.loads((VENDOR / "vendor.json").read_text())


def test_every_file_has_the_hash_that_was_pinned_and_no_other_file_is_there():
    pinned = {name: digest for package in SAID.values() for name, digest in package["files"].items()}
    found = {entry.name: hashlib.sha256(entry.read_bytes()).hexdigest() for entry in VENDOR.iterdir() if entry.name != "vendor.json"}
    assert found == pinned, "run `make vendor`, or put back what was changed"


def test_every_package_is_pinned_by_version_and_hash_and_has_its_licence():
    for package, said in SAID.items():
        assert re.fullmatch(r"[a-z]+@\d+\.\d+\.\d+", package)
        assert said["integrity"].startswith("sha512-")
        assert any(name.endswith(".LICENSE") for name in said["files"]), package


def test_the_page_names_no_other_host_and_every_module_that_it_imports_is_served():
    served = page()
    for path, (body, kind) in served.items():
        text = body.decode()
        if not path.startswith("/vendor/"):
            assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text.replace("http://www.w3.org/2000/svg", "")) == [], path
            assert "innerHTML" not in text
            assert "dangerouslySetInnerHTML" not in text
        if kind == "text/javascript":
            folder = path.rpartition("/")[0]
            for name in re.findall(r'from\s*"([^"]+)"', text):
                assert name.startswith("./"), f"{path} imports {name}, which no browser resolves"
                assert f"{folder}/{name[2:]}" in served, (path, name)
