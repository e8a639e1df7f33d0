"""Compares what was rendered with a snapshot, byte for byte but for what is generated or carried; `--update` writes it.

    snapshot.py RENDERED SNAPSHOT [--update]
"""

import difflib
import pathlib
import re
import sys

GENERATED = re.compile(r"^(  (?:sessions-key|bootstrap-key|password|database-url): )([A-Za-z0-9+/=]{40,})$", re.M)
# Documents that only carry a file of the chart: rules.py compares them with it.
CARRIED = re.compile(r"^(# Source: mcpproxy/templates/dashboards\.yaml|kind: PrometheusRule)$", re.M)


def main():
    rendered, snapshot, *update = sys.argv[1:]
    documents = re.split(r"^(?=---$)", pathlib.Path(rendered).read_text(), flags=re.M)
    text = "".join(document for document in documents if not CARRIED.search(document))
    text = GENERATED.sub(r"\1GENERATED", text)
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
