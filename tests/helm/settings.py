"""Asks the program whether it takes the settings that rendered pods give it.

    settings.py PROGRAM RENDERED...
"""

import base64
import os
import subprocess
import sys

import yaml

# Stands for what the Secrets hold.
STAND_INS = {
    "MCPPROXY__DATABASE__URL": "postgres://gateway:word@db:5432/gateway",
    "MCPPROXY__DATABASE__DIRECT_URL": "postgres://gateway:word@db:5432/gateway",
    "MCPPROXY__SECRETS__MASTER_KEY": base64.b64encode(os.urandom(32)).decode(),
    "MCPPROXY__SESSIONS__KEY": os.urandom(24).hex(),
    "MCPPROXY__AUTH__BOOTSTRAP_KEY": os.urandom(24).hex(),
    "MCPPROXY__SEARCH__EMBEDDINGS_API_KEY": os.urandom(24).hex(),
}


def environment(container):
    """The variables of a container, as a kubelet would set them."""
    variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for entry in container.get("env", []):
        source = entry.get("valueFrom", {})
        name = entry["name"]
        if "secretKeyRef" in source:
            variables[name] = STAND_INS[name]
        else:
            variables[name] = entry.get("value", "a-pod")
    return variables


def main():
    program, *files = sys.argv[1:]
    asked = 0
    for file in files:
        with open(file) as rendered:
            documents = [document for document in yaml.safe_load_all(rendered) if document]
        for document in documents:
            if document["kind"] != "Deployment":
                continue
            for container in document["spec"]["template"]["spec"]["containers"]:
                answer = subprocess.run(
                    [program, "config", "check"],
                    env=environment(container),
                    capture_output=True,
                    text=True,
                    timeout=30,
                )
                if answer.returncode != 0:
                    sys.exit(f"{file}: the program does not take these settings:\n{answer.stdout}{answer.stderr}")
                asked += 1
    if asked == 0:
        sys.exit("no settings were found to ask about")


main()
