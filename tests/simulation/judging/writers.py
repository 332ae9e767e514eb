"""One log, one writer a family: sequences, times, leaders."""


class WriterRules:
    def __init__(self, *args, **more):
        self.last_seq, self.last_at = 0, 0.0
        self.writer = {}
        self.acknowledged, self.truncated = {}, 0
        """Sequence → id of the commit of which its writer was told that it is stored; up to where the collector has said that it truncates."""
        super().__init__(*args, **more)

    def in_order(self, at, seq):
        """Whether there is anything new to judge."""
        if self.last_seq and seq != self.last_seq + 1:
            self.tell("log-whole", f"sequence {seq} follows {self.last_seq}")
            if seq <= self.last_seq:
                return False
        if at < self.last_at:
            self.tell("log-whole", f"sequence {seq} was stored at {at:.3f} s, before {self.last_seq} at {self.last_at:.3f} s")
        self.last_seq, self.last_at = seq, at
        return True

    def gc_truncated(self, event):
        self.truncated = max(self.truncated, event["upto"])

    def judge_kept(self, first, ids):
        """`ids`: what is in the log now, sequence → id; `first`: where it begins."""
        for seq, id in self.acknowledged.items():
            if first <= seq and ids.get(seq) != id:
                self.tell("durable", f"commit {id} was acknowledged as sequence {seq}; there is {ids.get(seq) or 'nothing'} now")
            elif self.truncated < seq < first:
                self.tell("durable", f"commit {id} was acknowledged as sequence {seq}; the log begins with {first}, and was truncated up to {self.truncated}")
        self.acknowledged = {seq: id for seq, id in self.acknowledged.items() if seq >= first}

    def judge_writer(self, family, source, events):
        """Who leads says so in its first commit; whoever led before writes no more."""
        led = any(event["type"] == f"{family}.led" for event in events)
        if led or family not in self.writer:
            self.writer[family] = source
            if not led:
                self.tell("one-writer", f"{source} writes {family} without having led")
        elif source != self.writer[family]:
            self.tell("one-writer", f"{source} writes {family}, which {self.writer[family]} leads")
