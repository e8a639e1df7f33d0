"""Holds what clients got and what the server did against the activity log.

    python account.py UPSTREAM_LOG ITEMS EXPORT [KILLED_AT...]

UPSTREAM_LOG is the server's own, ITEMS the clients', EXPORT the activity log as JSON lines. KILLED_AT are the moments at which a
replica was killed without warning. What it may lose then is stated (docs/performance.md, "What can be lost"): the records of reads
that were under way or had ended within BUFFERED_S, and the ends of writes, whose records then say `unknown`. A record that is
missing outside of that bound is a fault, as is anything that failed or ran twice. Prints what was counted; exits with 1 at a fault.
"""

import json
import sys
from collections import Counter

BUFFERED_S = 0.5
"""How long the record of a read may wait in memory: 200 ms by the stated bound, the rest for a machine that is busy with a cluster."""
BUFFERED_MAX = 200
"""How many of them at most: so many are written at once."""
READ_S_MAX = 2
"""How long reads take, with some room."""
SHOWN_MAX = 5
"""Faults of a kind that are shown."""


def lines(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


class Run:
    def __init__(self, upstream: list[dict], items: list[dict], export: list[dict], killed: list[float]) -> None:
        self.export = export
        self.met = next((item["met"] for item in items if "met" in item), {})
        self.items = [item for item in items if "item" in item]
        self.done = Counter(line["item"] for line in upstream if line["what"] == "done")
        self.calls = [line for line in upstream if line["what"] != "done"]
        self.records: dict[str, list[dict]] = {}
        for record in export:
            self.records.setdefault(record["request_id"], []).append(record)
        unrecorded = [call for call in self.calls if call["attempt"] not in self.records]
        self.killed = killed
        self.answered_at = {item["attempts"][-1]: item["at"] for item in self.items if item["how"] == "answered"}
        self.lost_reads = [call for call in unrecorded if self.may_be_lost(call)]
        self.missing = [call for call in unrecorded if call not in self.lost_reads]

    def lost_by_kill(self) -> list[int]:
        """How many records of reads went with each replica that was killed."""
        kills = [min((at for at in self.killed if at >= call["at"]), default=0) for call in self.lost_reads]
        return list(Counter(kills).values())

    def oldest_lost_ms(self) -> int:
        """How long before the kill the oldest read had been answered whose record went with it."""
        ends = [self.answered_at[call["attempt"]] for call in self.lost_reads if call["attempt"] in self.answered_at]
        ages = [min(at - end for at in self.killed if at >= end) for end in ends]
        return round(1000 * max(ages, default=0))

    def may_be_lost(self, call: dict) -> bool:
        if call["what"] == "write_item":
            return False
        end = self.answered_at.get(call["attempt"])
        if end is None:
            return any(0 <= at - call["at"] <= READ_S_MAX for at in self.killed)
        return any(0 <= at - end <= BUFFERED_S for at in self.killed)

    def failed(self) -> list[dict]:
        return [item for item in self.items if item["how"].startswith("failed")]

    def statuses(self, attempt: str) -> list[str]:
        return [record["status"] for record in self.records.get(attempt, [])]

    def lost_ends(self) -> list[str]:
        """Answered calls whose replica was killed before it had written that they were."""
        return [
            attempt for attempt, end in self.answered_at.items()
            if self.statuses(attempt) == ["unknown"] and any(0 <= at - end <= BUFFERED_S for at in self.killed)
        ]

    def answered_unrecorded(self) -> list[str]:
        explained = {call["attempt"] for call in self.lost_reads} | set(self.lost_ends())
        return [
            attempt for attempt in self.answered_at
            if attempt not in explained and self.statuses(attempt) != ["success"]
        ]

    def recorded_twice(self) -> list[str]:
        ran = {call["attempt"] for call in self.calls}
        return [
            request_id for request_id, entries in self.records.items()
            if request_id in ran and sum(entry["type"] != "late_outcome" for entry in entries) != 1
        ]

    def not_written(self) -> list[dict]:
        writes = [item for item in self.items if item["tool"] == "write_item" and item not in self.failed()]
        return [item for item in writes if item["item"] not in self.done]

    def faults(self) -> dict[str, list]:
        begun = Counter(call["attempt"] for call in self.calls)
        return {
            "failed for the client": self.failed(),
            "ran without a record": self.missing,
            "killed replicas that lost more than a buffer": [count for count in self.lost_by_kill() if count > BUFFERED_MAX],
            "answered without a record of success": self.answered_unrecorded(),
            "ran, with more than one record": self.recorded_twice(),
            "sent twice to the server": [attempt for attempt, count in begun.items() if count > 1],
            "written twice": [item for item, count in self.done.items() if count > 1],
            "said to be written and were not": self.not_written(),
        }


def main() -> int:
    upstream, items, export = (lines(path) for path in sys.argv[1:4])
    run = Run(upstream, items, export, [float(text) for text in sys.argv[4:]])
    faults = run.faults()
    how = Counter(item["how"] for item in run.items if item not in faults["failed for the client"])
    print(f"{'items asked for':<44} {len(run.items)} {dict(how)}")
    print(f"{'calls that the server began':<44} {len(run.calls)}, items written {len(run.done)}")
    print(f"{'records of the activity log':<44} {len(export)} {dict(Counter(r['status'] for r in export))}")
    print(f"{'what clients met on the way':<44} {run.met}")
    for what, which in faults.items():
        print(f"{what:<44} {len(which)}")
        for one in which[:SHOWN_MAX]:
            print(f"    {one}")
    answered = sum(call["attempt"] in run.answered_at for call in run.lost_reads)
    print(f"{'reads lost with a killed replica: under way':<44} {len(run.lost_reads) - answered}")
    print(f"{'the same: answered, at most':<44} {answered}, {run.oldest_lost_ms()} ms before it was killed")
    print(f"{'ends of writes lost with it (`unknown`)':<44} {len(run.lost_ends())}")
    if not run.items or not run.calls:
        print("there was no load")
        return 1
    return 1 if any(faults.values()) else 0


sys.exit(main())
