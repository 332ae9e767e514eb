"""Whatever workloads answer, whenever, and whoever asks: nobody is evicted without the word of a workload that is to be asked, every move ends by its
deadlines, and nothing stays behind. The saga's own property test, with hooks."""

from collections import Counter
from typing import ClassVar

from domain.build import pod, then
from domain.test_migration_property import OWNER, VICTIMS, Saga, decider
from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import hooks
from restow.domain.effects import AskConsent, TellWorkload, WithdrawRequest
from restow.domain.records import Step


class Asked(Saga):
    declared: ClassVar = {
        "p1": {hooks.BEFORE: "annotation", hooks.DEADLINE: "1m"},
        "p2": {hooks.BEFORE: ":8080/", hooks.AFTER: ":8080/", hooks.DEADLINE: "100s"},
        "p3": {hooks.BEFORE: ":8080/", hooks.ON_SILENCE: "evict", hooks.DEADLINE: "30s"},
    }

    def check(self, events, command, before) -> None:
        super().check(events, command, before)
        for event in events:
            if isinstance(event, e.Evicting):
                assert e.ConsentGiven in [kind for kind, _ in self.history[event.migration]], "nobody goes without the word of its workload"
            if isinstance(event, e.ConsentAsked):
                seen = Counter(kind for kind, _ in self.history[event.migration])
                assert seen[e.ConsentAsked] == 1, "it is one question"
            if isinstance(event, e.ConsentGiven) and event.silent:
                assert self.state.consents[event.migration].evicts_on_silence
                assert self.now >= self.state.consents[event.migration].deadline
            if isinstance(event, e.MigrationFailed) and event.reason == "NoWord":
                assert self.now >= self.state.consents[event.migration].deadline

    @rule(word=st.sampled_from(["agreed", "agreed", "refused", "silent"]))
    def workloads_answer_by_http(self, word: str) -> None:
        for effect in list(decider.pending(self.state, None)):
            if isinstance(effect, AskConsent) and self.state.consents[effect.migration].way != hooks.ANNOTATION:
                self.command(c.ReportConsent(self.now, effect.migration, word))

    @rule(victim=st.sampled_from(VICTIMS), word=st.sampled_from([hooks.ACKNOWLEDGED, hooks.ACKNOWLEDGED, hooks.REFUSED]), id=st.sampled_from(["x-1", "x-2", "x-3"]))
    def workloads_answer_on_a_pod(self, victim: str, word: str, id: str) -> None:
        self.write(victim, **{word: id})

    @rule()
    def requests_reach_their_pods(self) -> None:
        for effect in list(decider.pending(self.state, None)):
            if isinstance(effect, AskConsent) and self.state.consents[effect.migration].way == hooks.ANNOTATION:
                self.write(self.state.migrations[effect.migration].move.pod, **{hooks.REQUESTED: effect.migration})

    def write(self, uid: str, **annotations: str | None) -> None:
        known = self.state.pods.get(uid)
        if known is None or known.live.deleting or known.live.phase != "Running":
            return
        said = {key: value for key, value in {**known.fact.annotations, **annotations}.items() if value is not None}
        then(self.state, pod(uid, node="a", owner=OWNER, annotations=said))

    @rule()
    def asking_goes_well(self) -> None:
        self.all_goes_well_up_to_the_eviction()
        self.requests_reach_their_pods()
        self.workloads_answer_by_http("agreed")
        for id in list(self.state.consents):
            self.write(self.state.migrations[id].move.pod, **{hooks.ACKNOWLEDGED: id})
        self.advance()

    @rule()
    def workloads_are_told(self) -> None:
        for effect in list(decider.pending(self.state, None)):
            if isinstance(effect, TellWorkload):
                self.command(c.ReportTold(self.now, effect.migration, "nobody answers"))
            elif isinstance(effect, WithdrawRequest):
                self.write(self.state.migrations[effect.migration].move.pod, **{hooks.REQUESTED: None})

    @invariant()
    def who_is_asked_is_under_way(self) -> None:
        if hasattr(self, "state"):
            assert all(self.state.migrations[id].step in (Step.HELD, Step.EVICTING, Step.ABORTING, Step.EVICTED) for id in self.state.consents)

    def teardown(self) -> None:
        if hasattr(self, "state"):
            for _ in range(20):
                self.now += 400_000
                self.advance()
            self.workloads_are_told()
            left = [effect for effect in decider.pending(self.state, None) if isinstance(effect, TellWorkload | WithdrawRequest | AskConsent)]
            # On a pod that has ended nothing is written any more.
            assert all(isinstance(one, WithdrawRequest) for one in left)
            for one in left:
                then(self.state, e.PodGone(self.state.migrations[one.migration].move.pod))
        super().teardown()


Asked.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestAsked = Asked.TestCase


def test_a_refusal_that_is_there_before_anybody_has_asked_ends_the_move_in_its_turn():
    story = Asked()
    story.start(lost=0)
    story.workloads_answer_on_a_pod(victim="p1", word=hooks.REFUSED, id="x-1")
    story.all_goes_well_up_to_the_eviction()
    story.who_is_asked_is_under_way()
    story.teardown()
    assert not story.state.void
