"""docs/beside.md: its commands run as they stand, its policy is what the service takes, its rights are those that are shipped."""

import re
import shutil

import pytest
import yaml
from docs.pages import PAGES, ROOT, section
from docs.walks import blocks, walk

from restow.runtime.policy_file import read

PAGE = ROOT / "docs" / "beside.md"


def test_the_policies_that_it_shows_are_those_that_its_commands_name():
    for shown, name in zip(blocks(PAGE, "yaml"), ("policy", "plans"), strict=True):
        assert shown == (ROOT / "docs" / "beside" / f"{name}.yaml").read_text()
        policy = read(yaml.safe_load(shown))
        assert (policy.beside, policy.defragmentation is not None) == (("default-scheduler",), name == "plans")


def test_its_rights_are_those_that_are_shipped():
    rights = [one for one in yaml.safe_load_all((ROOT / "deploy" / "beside" / "rights.yaml").read_text()) if one]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section("What it may do").splitlines() if line.startswith("| ")][1:]
    said = {service: (everywhere, there) for service, everywhere, there in rows}
    for role in [one for one in rights if one["kind"] in ("Role", "ClusterRole")]:
        service = role["metadata"]["name"].removeprefix("restow-").removesuffix("-beside")
        cell = said[service][role["kind"] == "Role"].lower()
        for rule in role["rules"]:
            wanted = {*rule["verbs"], *(re.sub("ss?es$", "s", resource) for resource in rule["resources"])}
            assert {word for word in wanted if word.rstrip("s") not in cell} == set(), (service, rule)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the walk needs kubectl")
def test_its_commands_run_as_they_stand(tmp_path):
    printed, reserved = walk(PAGE, tmp_path)
    assert re.search(r"nightly\S* on node-\d+|node-\d+.*nightly", reserved), reserved
    assert "1 landed in" in printed
    assert re.search(r"landed +default/web-\S+ on node-\d+ as web-", printed), printed


def test_it_names_each_verdict_and_reason_that_is_about_other_schedulers():
    assert {word for word in ("NotGated", "HoldStolen", "Elsewhere", "NotChosen") if f"`{word}`" not in PAGES["beside"]} == set()
