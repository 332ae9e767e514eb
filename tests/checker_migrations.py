"""What the judge of logs knows of migrations: their steps in order, a place before the eviction, and landing where it was planned;
in plain Python, nothing of `restow.domain`."""

from checker_holds import FINAL


class MigrationRules:
    """One part of the judge: `checker.Judge` has the books and says what is broken."""

    def migration_planned(self, event):
        self.planned = True
        if event.get("fault"):
            self.say(self.seq, f"plan {event['plan']} {event['reason']}")
        if not event.get("mode"):
            self.begin(event.get("moves", ()))
        elif event["mode"] == "propose":
            self.proposals[event["plan"]] = event.get("moves", ())

    def migration_search_ended(self, event):
        if event["reason"] == "Failed":
            self.say(self.seq, f"plan {event['plan']} failed: {event['message']}")

    def migration_plan_approved(self, event):
        """From here on as if it had been planned now. Nothing else lets a move of such a plan take a step: until then it is unknown."""
        moves = self.proposals.pop(event["plan"], None)
        if moves is None:
            return self.say(self.seq, f"plan {event['plan']} is approved, and does not wait for anybody")
        if not event["by"]:
            self.say(self.seq, f"nobody has approved plan {event['plan']}")
        return self.begin([move for move in moves if not event.get("moves") or move["migration"] in event["moves"]])

    def migration_plan_rejected(self, event):
        if self.proposals.pop(event["plan"], None) is None:
            self.say(self.seq, f"plan {event['plan']} is rejected, and does not wait for anybody")

    def migration_plan_cancelled(self, event):
        self.proposals.pop(event["plan"], None)

    def begin(self, moves):
        for move in moves:
            if move["migration"] in self.migrations:
                self.say(self.seq, f"migration {move['migration']} is planned twice")
            if self.has_somebody_to_move(move):
                self.migrations[move["migration"]] = {"step": "planned", **move}

    def has_somebody_to_move(self, move):
        """A move of a pod that had gone before the plan was stored is void; so is what follows one that is void or over."""
        if move.get("follows") and not move["pod"]:
            return self.migrations.get(move["follows"], {"step": "failed"})["step"] not in FINAL
        return move["pod"] in self.pods

    def step(self, event, *allowed):
        name, migration = event["type"].partition(".")[2], self.migrations.get(event["migration"])
        if migration is None:
            return self.say(self.seq, f"{name} of the unknown migration {event['migration']}")
        if migration["step"] not in allowed:
            self.say(self.seq, f"migration {event['migration']} is {name} after {migration['step']}")
        migration["step"] = name
        if name in FINAL and name != "landed":
            self.give_up_holds(event["migration"], "of a finished migration")
        return migration

    def give_up_holds(self, id, why):
        """What is known of its Reservations is void with it: a place that is chosen for one later is none."""
        for uid, record in self.reservations.items():
            if record["fact"].get("migration") == id:
                self.die({"reservation": uid}, why)

    def migration_turning_back(self, event):
        migration = self.migrations.get(event["migration"])
        if migration is None or migration["step"] != "evicted":
            return self.say(self.seq, f"migration {event['migration']} turns back after {migration['step'] if migration else 'nothing'}")
        if any(self.is_there(h.pod) for key, h in self.holds.items() if h.state == "used" and self.is_hold_of(key, event["migration"])):
            return None  # void: its successor took the place in between
        self.give_up_holds(event["migration"], "of a move that turned back")
        migration["target"], migration["back"] = migration["source"], True
        return None

    def is_hold_of(self, key, id):
        return self.reservations[key[0]]["fact"].get("migration") == id

    def is_there(self, uid):
        """It runs, or is on its way to: who terminates leaves the next one to come."""
        return uid in self.pods and not self.pods[uid].get("deleting")

    def migration_holding(self, event):
        migration = self.step(event, "planned") or {}
        for first in (*migration.get("after", ()), *filter(None, [migration.get("follows")])):
            if self.migrations.get(first, {}).get("step") != "landed":
                self.say(self.seq, f"migration {event['migration']} begins before {first} has landed")

    def migration_held(self, event):
        self.step(event, "holding")

    def migration_evicting(self, event):
        # Who needs no place has ended, or nobody makes it again.
        needs = self.migrations.get(event["migration"], {}).get("target", "?")
        self.step(event, "held" if needs else "planned")
        if needs and event["migration"] not in self.held_before:
            self.say(self.seq, f"migration {event['migration']} evicts before a landing slot was held")

    def migration_evicted(self, event):
        migration = self.step(event, "holding", "held", "evicting", "aborting")
        if migration:
            migration["evicted"] = True

    def migration_aborting(self, event):
        self.step(event, "evicting")

    def migration_landed(self, event):
        migration = self.step(event, "evicted")
        pod = self.pods.get(event["pod"], {})
        if not migration or event["node"] != migration["target"]:
            self.say(self.seq, f"migration {event['migration']} landed on {event['node']}, not on its target")
        # The fact may have changed between the decision's read and its commit; where it is says enough.
        elif pod and pod.get("node") != event["node"]:
            self.say(self.seq, f"migration {event['migration']} landed, but pod {event['pod']} is on {pod.get('node')}")
        for other in self.migrations.values():
            if other.get("follows") == event["migration"]:
                other["pod"] = event["pod"]

    def migration_failed(self, event):
        self.step(event, "planned", "holding", "held", "aborting", "evicted")

    def migration_not_recreated(self, event):
        self.step(event, "evicted")

    def migration_removed(self, event):
        migration = self.step(event, "evicting", "aborting")
        if migration and migration["target"]:
            self.say(self.seq, f"migration {event['migration']} ended as removed, although a place was promised on {migration['target']}")
