"""Load on the gateway from clients of both eras, until the file STOP appears.

    python main.py HOST PORT SERVER STOP OUT < keys

Keys are read from the input, one a line: the clients' own, each as many clients as CLIENTS_PER_KEY. OUT gets a line per item:
{"at", "item", "tool", "how", "attempts"}; `how` is `failed: …` where a caller would have seen a failure. The last line counts
what clients met on the way.
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter

from client import Client, Failed

CLIENTS_PER_KEY = 6
SECONDS_MAX = 1200
"""The load ends then by itself."""
KEPT_CALLS_MAX = 40
"""Calls on one connection, so that new replicas get some too."""
PAUSE_S = (0.01, 0.1)


class Log:
    def __init__(self, path: str) -> None:
        self.file, self.lock = open(path, "w", buffering=1, encoding="utf-8"), threading.Lock()

    def write(self, entry: dict) -> None:
        with self.lock:
            self.file.write(json.dumps(entry) + "\n")


def work(client: Client, name: str, stop: str, until: float, log: Log) -> None:
    number = kept = 0
    while time.monotonic() < until and not os.path.exists(stop):
        number += 1
        item = f"{name}-{number}"
        # mostly quick ones; some last long enough to be met by the end of their replica
        pause_ms = random.choices([0, 30, 1500], [60, 25, 15])[0]
        tool = random.choice(["read_item", "write_item"])
        entry = {"item": item, "tool": tool}
        try:
            do = client.read if tool == "read_item" else client.write
            how, attempts = do(item, pause_ms)
            entry |= {"how": how, "attempts": attempts}
        except Failed as error:
            entry |= {"how": f"failed: {error}", "attempts": []}
        log.write({"at": time.time()} | entry)
        kept += 1
        if kept >= random.randint(1, KEPT_CALLS_MAX):
            client.wire.close()
            kept = 0
        time.sleep(random.uniform(*PAUSE_S))


def main() -> None:
    host, port, server, stop, out = sys.argv[1:]
    keys = sys.stdin.read().split()
    log, until = Log(out), time.monotonic() + SECONDS_MAX
    clients = [
        Client(host, int(port), key, number % 2 == 0, server)
        for number, key in enumerate(key for key in keys for _ in range(CLIENTS_PER_KEY))
    ]
    threads = [
        threading.Thread(target=work, args=(client, f"c{number}", stop, until, log))
        for number, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.write({"met": sum((client.seen for client in clients), Counter())})


main()
