"""Every run that ever broke a promise, with the promise and what was mended, as a tape, which is run for ever.

A seed's meaning changes when what is allocated changes; a tape (`tapes/*.json`) is the plan itself, and keeps its meaning: as it was allocated
(`-small`: with 4 nodes and half a minute), or made as small as it could be by `restow simulate --shrink`. Each defect also has a test of its
own in plain words.
"""

from pathlib import Path

ABOUT: dict[str, str] = {
    "finishers-5": "crash: a Job's pod ended by itself while it was about to be evicted, and was looked for among those that had not (movable)",
    "lease-forbidden": "nothing-left: the API refused the Lease for a moment as a process started, and it led without one for ever (seed 100573 with 50 nodes)",
    "seed-3-small": "spin: kubesim's stalled watch went round without waiting (reads._stream); protected, as seed 303",
    "seed-6-small": "facts: a commit that arrived late took the changes of another along; they were never logged",
    "seed-303-small": "protected: drf, in a tier after priority's, let a pod of low priority make one of higher priority go (victims._above)",
    "seed-307": "hold-lifecycle: a hold is placed again after a kubelet's rejection whose pod was gone in the same commit; a false alarm (checker_holds)",
    "seed-307-small": "facts: the API came back from a backup, and had overtaken the version known before a bookmark said that it was behind (kube/reflector)",
    "seed-321": "verify: the hold that a move gave up when it turned back was noticed late, so that a decision made again was another (evolve/migration)",
    "seed-100078": "rests: pods with ten minutes of grace took them, and two migrations waited for that; a false alarm (world)",
    "seed-400143": "same-fold: a draft that dropped an entry put it back at the end of its map, so that a state was another than its log (maps)",
    "seed-400234": "gang-minimum: a member went for a preemptor while two others had just been given nodes; a false alarm (judging/victims)",
    "seed-437": "for-somebody: an eviction was on its way when who it was for left; a false alarm (judging/log)",
}

OPEN: dict[str, str] = {}
"""Of these, what is not settled. Nothing may be in here for good."""

TAPES = sorted((Path(__file__).parent / "tapes").glob("*.json"))
