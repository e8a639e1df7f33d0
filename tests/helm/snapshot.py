"""Compares what was rendered with a snapshot, byte for byte but for what is generated; `--update` writes it.

    snapshot.py RENDERED SNAPSHOT [--update]
"""

import difflib
import pathlib
import re
import sys

GENERATED = re.compile(r"^(  (?:sessions-key|bootstrap-key|password|database-url): )([A-Za-z0-9+/=]{40,})$", re.M)
# Files of others that the chart only carries: rules.py compares them with what is rendered.
CARRIED = [
    re.compile(r"(# Source: mcpproxy/templates/dashboards\.yaml\n(?:(?!---\n).*\n)*?data:\n)(?:(?!---\n).*\n)*"),
    re.compile(r"(kind: PrometheusRule\n(?:(?!---\n).*\n)*?spec:\n)(?:(?!---\n).*\n)*"),
]


def main():
    rendered, snapshot, *update = sys.argv[1:]
    text = GENERATED.sub(r"\1GENERATED", pathlib.Path(rendered).read_text())
    for carried in CARRIED:
        text = carried.sub(r"\1  CARRIED\n", text)
    snapshot = pathlib.Path(snapshot)
    if update:
        snapshot.write_text(text)
        return
    before = snapshot.read_text() if snapshot.exists() else ""
    if text == before:
        return
    lines = difflib.unified_diff(
        before.splitlines(), text.splitlines(), str(snapshot), "rendered now", lineterm=""
    )
    sys.exit("\n".join([*lines, "if that is what it should be: tests/helm/check.sh --update"]))


main()
