"""PodGroups and Queues on the command line: tables, JSON, and why a gang waits."""

import pytest
from cli.conftest import export
from replay.handmade import node, pod, time_at
from replay.test_why import gang, replace

from restow.contracts import events as e


@pytest.fixture
def batch(tmp_path):
    """A gang that waits, a queue with limits in which one pod of a group runs, and one that is closed."""
    log = gang()
    limits = e.QueueObserved("batch", "uid-batch", time_at(1), 4, {"cpu": 8_000, "memory": 1 << 34})
    log.facts(limits, e.QueueObserved("shut", "uid-shut", time_at(1), state="Closed"), kind="queues")
    log.facts(e.PodGroupObserved("shop", "h", "uid-h", time_at(2), queue="batch", phase="Inqueue"), replace(node("c", 6_000), unschedulable=True))
    running = replace(pod("h-0"), annotations={"scheduling.k8s.io/group-name": "h"}, node="c", phase="Running", ready=True)
    log.facts(running)
    return export(tmp_path / "batch.jsonl.zst", log)


def test_podgroups_say_how_far_they_are_and_why_they_wait(restow, as_json, batch):
    assert restow("get", "podgroups", "--log", batch).output == (
        "NAMESPACE  NAME  PHASE    MIN  READY  WAIT  QUEUE    WHY\n"
        "shop       g     Inqueue    3      0     3  default  NotEnoughResources\n"
        "shop       h     Running    1      1     0  batch    -\n"
    )
    first, _ = as_json("get", "pg", "--log", batch)["items"]
    assert (first["phase"], first["waiting"], first["reason"]) == ("Inqueue", 3, "NotEnoughResources")
    assert first["message"].startswith("3/3 tasks in gang unschedulable: pod group is not ready")
    assert restow("get", "podgroups", "-n", "none", "--log", batch).output.startswith("no podgroups in namespace none")


def test_queues_say_what_they_use_deserve_and_may_use(restow, as_json, batch):
    lines = restow("get", "queues", "--log", batch).output.splitlines()
    assert lines[0].split("  ")[0] == "NAME"
    batch_line, default, shut = (line.split() for line in lines[1:])
    assert batch_line[:4] == ["batch", "Open", "1", "Running"]
    assert batch_line[4].startswith("2/2/8")
    assert default[:4] == ["default", "Open", "1", "Inqueue"]
    assert shut == ["shut", "Closed", "-", "-", "-", "-"]
    said = {queue["name"]: queue for queue in as_json("get", "queue", "--log", batch)["items"]}
    assert said["batch"]["allocated"] == {"cpu": 2_000, "memory": 1 << 30, "pods": 1}
    assert said["batch"]["capability"] == {"cpu": 8_000, "memory": 1 << 34}
    assert (said["default"]["exists"], said["shut"]["state"]) == (False, "Closed")


def test_the_summary_counts_them(restow, as_json, batch):
    assert "podgroups 2: 1 Inqueue, 1 Running; 3 queues" in restow("state", "--log", batch).said
    assert as_json("state", "--log", batch)["podGroupsByPhase"] == {"Inqueue": 1, "Running": 1}


def test_why_of_a_gang_and_of_its_pods(restow, as_json, batch):
    said = restow("why", "podgroup/shop/g", "--log", batch).said
    assert "it needs 3 at the same time: 0 ready, 3 wait, 1 of them fit now" in said
    assert "would start with 1 more empty node like a" in said
    assert "its gang shop/g needs 3 at the same time" in restow("why", "m-0", "--log", batch).said
    told = as_json("why", "pg/g", "--log", batch)
    assert (told["gang"]["fit"], told["gang"]["need"]) == (1, 3)
    assert told["reliefs"][0] == {"change": "1 more empty node like a", "nodes": 0}


def test_why_of_all_podgroups_lists_those_that_wait(restow, as_json, batch):
    (waits,) = as_json("why", "podgroups", "--log", batch)
    assert (waits["name"], waits["status"]) == ("shop/g", "Inqueue")
    assert all("waits" in row["why"] or "needs" in row["why"] for row in as_json("why", "pod", "--log", batch) if row["status"] == "Waiting")


def test_the_summary_counts_the_queues_that_are_listed_also_those_without_an_object(as_json, batch):
    assert as_json("state", "--log", batch)["queues"] == len(as_json("get", "queues", "--log", batch)["items"]) == 3


@pytest.mark.parametrize("command", [("get", "queues"), ("get", "podgroups"), ("why", "podgroup/g"), ("why", "m-2"), ("why", "pg"), ("state",)])
def test_everything_fits_100_columns(restow, batch, command):
    assert max(map(len, restow(*command, "--log", batch).output.splitlines())) <= 100


def test_a_podgroup_in_full_says_who_is_in_it_and_what_each_waits_for(restow, as_json, batch):
    said = restow("describe", "podgroup/shop/g", "--log", batch).said
    assert said.startswith("podgroup shop/g")
    assert "it needs 3 at the same time" in said
    assert "MEMBERS, 3" in said
    assert "shop/m-0" in said
    assert restow("describe", "pg/shop/h", "--log", batch).said.count("Running") >= 2
    told = as_json("describe", "pg/g", "--log", batch)
    assert (told["minMember"], told["ready"], len(told["members"])) == (3, 0, 3)
    assert {(one["status"], one["node"]) for one in told["members"]} == {("Waiting", "")}
    assert all("pod group is not ready" in one["why"] or "nodes are available" in one["why"] for one in told["members"])


def test_a_queue_in_full_says_what_it_may_use_and_uses_and_who_waits_in_it(restow, as_json, batch):
    lines = restow("describe", "queue/batch", "--log", batch).output.splitlines()
    assert [line.split() for line in lines if line.startswith("cpu")] == [["cpu", "2", "2", "-", "8"]]
    assert "PODGROUPS that are not over, 1" in lines
    told = as_json("describe", "q/default", "--log", batch)
    assert ([one["name"] for one in told["groups"]], told["waiting"]) == (["g"], [])
    assert restow("describe", "queue/none", "--log", batch).exit_code == 2


def test_who_waits_in_a_queue_without_a_podgroup_is_told_with_why(restow, as_json, tmp_path):
    log = gang()
    log.facts(replace(pod("alone"), annotations={"scheduling.volcano.sh/queue-name": "default"}), e.PodGroupGone("shop", "g"))
    told = as_json("describe", "queue/default", "--log", export(tmp_path / "alone.jsonl", log))
    assert "alone" in [one["name"] for one in told["waiting"]]


def test_a_queue_says_which_are_below_it(as_json, tmp_path):
    log = gang()
    log.facts(*(e.QueueObserved(name, f"uid-{name}", time_at(1), parent=above) for name, above in (("all", ""), ("a", "all"), ("b", "all"))), kind="queues")
    assert as_json("describe", "queue/all", "--log", export(tmp_path / "below.jsonl", log))["below"] == ["a", "b"]
