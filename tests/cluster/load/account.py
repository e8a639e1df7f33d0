"""Holds what clients got and what the server did against the activity log.

    python account.py UPSTREAM_LOG ITEMS EXPORT [KILLED_AT...]

UPSTREAM_LOG is the server's own, ITEMS the clients', EXPORT the activity log as JSON lines. KILLED_AT are the moments at which a
replica was killed without warning: of reads that ran within BUFFERED_S before, the records may be lost (they are written some
50 ms later; of what writes, never). Prints what was counted; exits with 1 if anything failed, is missing, or ran twice.
"""

import json
import sys
from collections import Counter

BUFFERED_S = 0.3
"""How long the record of a read may wait in memory, with some room for clocks and a busy machine."""


def lines(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def main() -> int:
    upstream, items, export = (lines(path) for path in sys.argv[1:4])
    killed = [float(text) for text in sys.argv[4:]]
    met = next((item["met"] for item in items if "met" in item), {})
    items = [item for item in items if "item" in item]
    records: dict[str, list[dict]] = {}
    for record in export:
        records.setdefault(record["request_id"], []).append(record)

    failed = [item for item in items if item["how"].startswith("failed")]
    writes = Counter(line["item"] for line in upstream if line["what"] == "done")
    upstream = [line for line in upstream if line["what"] != "done"]
    ran = Counter(call["attempt"] for call in upstream)
    twice_sent = [attempt for attempt, count in ran.items() if count > 1]
    twice_written = [item for item, count in writes.items() if count > 1]
    done_writes = [item["item"] for item in items if item["tool"] == "write_item" and item not in failed]
    not_written = [item for item in done_writes if item not in writes]

    missing = [call for call in upstream if call["attempt"] not in records]
    buffered = [
        call for call in missing
        if call["what"] != "write_item" and any(-BUFFERED_S <= call["at"] - at <= 0.05 for at in killed)
    ]
    missing = [call for call in missing if call not in buffered]
    answered = [item for item in items if item["how"] == "answered"]
    lost_with_them = {call["attempt"] for call in buffered}
    unrecorded = [
        item for item in answered
        if item["attempts"][-1] not in lost_with_them
        and [record["status"] for record in records.get(item["attempts"][-1], [])] != ["success"]
    ]
    doubled = [
        request_id for request_id, entries in records.items()
        if request_id in ran and len([entry for entry in entries if entry["type"] != "late_outcome"]) != 1
    ]

    print(f"items asked for                              {len(items)}")
    print(f"  how they were done                         {dict(Counter(i['how'] for i in items if i not in failed))}")
    print(f"calls that the server began                  {len(upstream)}, items written {len(writes)}")
    print(f"records of the activity log                  {len(export)} {dict(Counter(r['status'] for r in export))}")
    print(f"what clients met on the way                  {met}")
    faults = {
        "failed for the client": failed,
        "ran without a record": missing,
        "answered without a record of success": unrecorded,
        "ran, with more than one record": doubled,
        "sent twice to the server": twice_sent,
        "written twice": twice_written,
        "said to be written and were not": not_written,
    }
    for what, which in faults.items():
        print(f"{what:<44} {len(which)}")
        for one in which[:5]:
            print(f"    {one}")
    print(f"{'records of reads lost with a killed replica':<44} {len(buffered)}")
    if not items or not upstream:
        print("there was no load")
        return 1
    return 1 if any(faults.values()) else 0


sys.exit(main())
