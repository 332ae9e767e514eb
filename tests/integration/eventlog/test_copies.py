"""What STREAM.INFO of nats-server 2.15 said while two of three brokers were away, and since when Restow tells of it."""

from restow.eventlog.jetstream.copies import LASTS, SILENT, Copies

NO_LEADER = {"leader": None, "replicas": [{"name": name, "current": name == "n1", "active": 0} for name in ("n0", "n1", "n2")]}


def led(**active):
    return {"leader": "n1", "replicas": [{"name": name, "current": seconds < 10, "active": int(seconds * 1e9)} for name, seconds in active.items()]}


def told(copies):
    return copies.too_few(), copies.some_silent()


def test_one_of_three_that_is_silent_is_named_and_commits_are_taken():
    copies = Copies()
    copies.hear(led(n0=SILENT - 0.1, n2=0.1), 100.0)
    assert told(copies) == ("", "")
    copies.hear(led(n0=SILENT, n2=0.1), 105.0)
    assert told(copies) == ("", "a broker that keeps a copy of the log is silent: n0, of 3; if one more goes, no commit is taken")
    copies.hear({"leader": "n1", "replicas": [{"name": "n0", "active": 0, "offline": True}, {"name": "n2", "active": 0}]}, 110.0)
    assert "silent: n0, of 3" in copies.some_silent()
    copies.hear(led(n0=0.5, n2=0.1), 115.0)
    assert told(copies) == ("", "")


def test_a_leader_that_was_killed_and_that_its_successor_has_never_heard_of_is_silent():
    copies = Copies()
    after = {"leader": "n1", "replicas": [{"name": "n0", "current": False, "active": 0, "lag": 2}, {"name": "n2", "current": True, "active": 300_000_000}]}
    copies.hear(after, 100.0)
    assert told(copies) == ("", "")
    copies.hear(after, 100.0 + SILENT)
    assert "silent: n0, of 3" in copies.some_silent()
    # It catches up.
    copies.hear({"leader": "n1", "replicas": [{"name": "n0", "current": False, "active": 1, "lag": 2}, {"name": "n2", "current": True, "active": 0}]}, 110.0)
    assert told(copies) == ("", "")
    copies.hear(after, 115.0)
    assert told(copies) == ("", "")


def test_one_of_five_may_go_and_one_more():
    copies = Copies()
    copies.hear(led(n0=9, n2=0.1, n3=0.1, n4=0.1), 100.0)
    assert copies.some_silent() == "a broker that keeps a copy of the log is silent: n0, of 5"


def test_too_few_are_told_of_once_that_lasts_and_no_longer_than_it_does():
    copies = Copies()
    copies.hear(led(n0=20, n2=20), 100.0)
    assert told(copies) == ("", "")
    copies.hear(led(n0=25, n2=25), 100.0 + LASTS)
    assert told(copies) == ("no commit is taken: of the 3 brokers that keep the log n0, n2 are silent, and 2 must be there: start them again", "")
    # The leader gives up leading.
    copies.hear(NO_LEADER, 120.0)
    assert told(copies) == ("no commit is taken: of the 3 brokers that keep the log none leads it, and 2 must be there: start them again", "")
    copies.hear(led(n0=0.1, n2=0.1), 125.0)
    assert told(copies) == ("", "")


def test_an_election_is_no_trouble():
    copies = Copies()
    copies.hear(NO_LEADER, 100.0)
    copies.hear(NO_LEADER, 100.0 + LASTS - 0.1)
    assert told(copies) == ("", "")
    copies.hear(led(n0=0.1, n2=0.1), 106.0)
    copies.hear(NO_LEADER, 110.0)
    assert told(copies) == ("", "")


def test_one_broker_has_nobody_to_hear_of():
    copies = Copies()
    for cluster in ({}, {"leader": "n0"}):
        copies.hear(cluster, 100.0)
        copies.hear(cluster, 200.0)
        assert told(copies) == ("", "")
