"""Every promise by its id, as a user would say it; and which one a sentence of the judge of logs (`tests/checker.py`) is about."""

import re

PROMISES = {
    "log-whole": "The log has every sequence once, and its times do not run backwards.",
    "durable": "What the broker has acknowledged stays in the log, at its sequence, until the collector truncates it.",
    "decided-on-the-past": "A decision reads only what was in the log before it.",
    "one-writer": "Only a family's latest leader writes it, and epochs count up by one.",
    "own-family": "A service writes events of its own family only.",
    "overcommitted": "No node, device or CPU is promised to more than it has, in the log or in the API.",
    "placed-once": "A pod is placed once and bound once; neither is changed.",
    "open-node": "Pods and holds come only to nodes that are ready, not cordoned, tolerated and asked for.",
    "right-devices": "Who gets devices, CPUs or ports gets as many as asked for, and nobody else has them.",
    "hold-lifecycle": "A hold is placed for a valid Reservation, within what it asks for, and released or handed over once.",
    "hold-owner": "A hold goes to an owner, within its policy.",
    "hold-left": "No hold outlives its Reservation, its migration or its expiry.",
    "saga-order": "A migration takes its steps in order.",
    "place-first": "A pod is evicted only when a place is held that its successor can use.",
    "word-first": "Nobody is moved without the word of a workload that is to be asked, and no question stays on a pod.",
    "protected": "Critical, static, DaemonSet and do-not-disrupt pods are nobody's victims; within a queue nobody preempts from below.",
    "gang-minimum": "No eviction of ours leaves a gang with fewer than its minMember, and none starts with fewer.",
    "budget": "Nobody is chosen as a victim whose disruption budget is known to allow nothing.",
    "whole-nodes": "Of a plan that empties nodes wholly nobody is evicted before all of the node have their places, nor when one of them stays.",
    "one-at-a-time": "Not more pods of a workload are moved at once than maxUnavailable says.",
    "eviction-budget": "Not more pods are evicted by moves in a time than the policy's budgets allow.",
    "for-somebody": "Who is evicted for another goes for one that room is held for.",
    "reserved-node": "Nobody comes to a node that is reserved for a starving job's task.",
    "capability": "Placements leave each queue within its capability.",
    "decided-effect": "Pods are bound, evicted and deleted only as the log has decided.",
    "fits-runs": "When nothing is broken any more, whatever fits certainly runs within a stated time.",
    "fits-held": "When nothing is broken any more, a Reservation whose places certainly fit holds them within a stated time.",
    "deserved": "A queue that has less than it deserves and whose pods fit does not wait; where they would fit if a queue that has more gave back, it does (action `reclaim`).",
    "migration-ends": "Every migration ends.",
    "nothing-left": "No Reservation of an ended migration and no Lease without a living holder is left.",
    "expired": "A Reservation whose time is over holds nothing and says so.",
    "ended-only": "The collector takes away only what has ended.",
    "rejected": "Of one workload of ours kubelets do not reject one pod after the other without end.",
    "beside": "A slot for a pod of another scheduler is held by a placeholder of its size that runs, and is handed over in order: nominated, placeholder deleted, gate removed; nobody is evicted whose old node is not kept.",
    "fails-open": "With Restow away for some minutes, no new pod gets its gate.",
    "plans-are-made": "No plan fails by a fault of Restow's own.",
    "judge": "The judge itself understands what it sees.",
}

_OF = [
    (r"^plan .* fail|^plan .* by a fault of", "plans-are-made"),
    (r"^placeholder", "beside"),
    (r"it was decided at", "decided-on-the-past"),
    (r"in a commit of", "own-family"),
    (r"^epoch |sequence \d+ is missing", "one-writer"),
    (r"are promised \(last to", "overcommitted"),
    (r"was placed on .* already|went from .* to|released without having been placed", "placed-once"),
    (r"gets other (devices|CPUs)|has (its|their) port", "right-devices"),
    (r"evicts before a landing slot", "place-first"),
    (r"was ended, but its migrations", "decided-effect"),
    (r"is to go for|which does not wait for any|nothing is held for it", "for-somebody"),
    (r"which is reserved for pod", "reserved-node"),
    (r"^gang ", "gang-minimum"),
    (r"^queue .* may use", "capability"),
    (r"which does not own it|pod spec is another|which is (Restricted|Covering)|gets .* of it from the hold|is handed over to .*, but it (has|is unsch|does not hold)", "hold-owner"),
    (r"^at the end migration", "migration-ends"),
    (r"is still held|is not released", "hold-left"),
    (r"^migration |unknown migration", "saga-order"),
    (r"^\('.*', '.*'\) ", "hold-lifecycle"),
]


def promise_of(sentence):
    return next((promise for pattern, promise in _OF if re.search(pattern, sentence)), "judge")
