"""The log: one total order of commits for a cluster, behind one port (DESIGN 2).

port        EventLog, Record, and every way in which a log can refuse
memory      in this process: tests, what-if
file        a journal in a folder, for one process
jetstream   the real one; `connect`, and snapshots in the broker's object store
snapshots   the Snapshots port, in memory and in a folder
archive     sealed segments: export, import, archive + stream as one full log; `segment` is one file of it, `folder` and `bucket` are where they are kept
parquet     one row an event, for SQL
server      a nats-server as a child process; `testing` helps tests with it
"""
