"""Two pods prove whether a scheduler honours nominations; the steps as a pure function."""

import json

import msgspec

from restow.kube.canary import Again, Asked, Dismiss, Invite, Probe, Seen, Verdict, Wait, guest, probe, step

INVITED, PROBED = Asked(invited=True), Asked(invited=True, probed=True)
TOUCHED, PROBED_AGAIN = Asked(invited=True, again=True), Asked(invited=True, probed=True, again=True)
DISMISSED = Asked(invited=True, probed=True, dismissed=True)


def test_first_the_nominated_pod_then_the_other():
    assert step(Asked(), Seen(False, "absent", 0)) == (INVITED, Invite())
    assert step(INVITED, Seen(True, "absent", 0)) == (PROBED, Probe())


def test_a_probe_that_is_refused_until_the_guest_has_gone_proves_it():
    assert step(PROBED, Seen(True, "new", 1)) == (PROBED, Wait())
    assert step(PROBED, Seen(True, "refused", 1)) == (DISMISSED, Dismiss())
    assert step(DISMISSED, Seen(False, "refused", 1)) == (DISMISSED, Wait())
    assert step(DISMISSED, Seen(False, "bound", 1)) == (DISMISSED, Verdict("honoured"))


def test_a_probe_that_is_bound_beside_the_guest_disproves_it_when_another_one_is_bound_beside_the_guest_that_was_touched():
    """The scheduler may have heard of the guest together with its nomination, which it counts only once the guest changes."""
    assert step(PROBED, Seen(True, "bound", 0)) == (TOUCHED, Again())
    assert step(TOUCHED, Seen(True, "absent", 0)) == (PROBED_AGAIN, Probe())
    assert step(PROBED_AGAIN, Seen(True, "new", 1)) == (PROBED_AGAIN, Wait())
    assert step(PROBED_AGAIN, Seen(True, "bound", 0))[1].said == "ignored"


def test_a_second_probe_that_is_refused_proves_it_as_the_first_one_would_have():
    dismissed, then = step(PROBED_AGAIN, Seen(True, "refused", 1))
    assert then == Dismiss()
    assert step(dismissed, Seen(False, "bound", 1))[1] == Verdict("honoured")


def test_what_proves_nothing_is_unknown_and_says_why():
    for asked, seen, why in (
        (PROBED, Seen(True, "new", 10), "the scheduler did not look at the probe within 10 s"),
        (DISMISSED, Seen(False, "refused", 10), "something else keeps pods away from the node within 10 s"),
        (INVITED, Seen(False, "absent", 0), "somebody deleted the gated pod"),
        (PROBED, Seen(False, "bound", 0), "somebody deleted the gated pod"),
        (DISMISSED, Seen(False, "absent", 0), "somebody deleted the probe"),
    ):
        assert step(asked, seen)[1] == Verdict("unknown", why)


def test_both_say_whose_they_are_and_ask_for_nothing_to_speak_of():
    for one in (guest("s", "n", "l0g", "abc"), probe("s", "n", "l0g", "abc")):
        got = json.loads(msgspec.json.encode(one))
        assert got["metadata"]["labels"]["restow.dev/log"] == "l0g"
        assert got["spec"]["schedulerName"] == "s"
        assert got["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1m", "memory": "1Mi"}
