"""The deterministic simulator: the five services, their HTTP and kubesim in one process on virtual time, with faults by seed.

    loop       virtual time; processes that can be killed, paused and have clocks of their own
    network    connections in memory between them
    seams      the machine (`restow.machine`) that they run on here: time and chance of the simulation
    broker     the memory log behind a model of a broker: slow, gone, restarted; answers lost, late, repeated
    plan       what a seed means: nodes, workloads, and two timed lists, of users and of faults, drawn up front
    draw       seed → plan                       manifests   the objects that plans speak of
    processes  services under a supervisor       world       all of it wired, run to its end
    users      what users do                     faults      what goes wrong
    replayed   what needs our code: fold, snapshots, `verify`, the watcher beside the API
    judge      what needs none: the rules of the seeds, judged at every commit and write
    runner     a forked process a seed, with a limit of wall time            shrink   a smaller plan that breaks the same
    report     what is printed                   __main__    `restow simulate`

docs/simulator.md says how to use it.
"""
