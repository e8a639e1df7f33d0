"""Asks the program whether it takes the settings that rendered pods, or compose's services, give it.

    settings.py PROGRAM RENDERED...
"""

import base64
import os
import re
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
    "POSTGRES_PASSWORD": os.urandom(24).hex(),
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
            value = entry.get("value", "a-pod")
            variables[name] = re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], value)
    return variables


def gateways(document):
    """The environment of each gateway in a document."""
    if "services" in document:
        services = document["services"].items()
        yield from (service["environment"] for name, service in services if name.startswith("gateway"))
    elif document["kind"] == "Deployment":
        yield from map(environment, document["spec"]["template"]["spec"]["containers"])


def main():
    program, *files = sys.argv[1:]
    asked = 0
    for file in files:
        with open(file) as rendered:
            documents = [document for document in yaml.safe_load_all(rendered) if document]
        for variables in (variables for document in documents for variables in gateways(document)):
            answer = subprocess.run(
                [program, "config", "check"], env=variables, capture_output=True, text=True, timeout=30
            )
            if answer.returncode != 0:
                sys.exit(f"{file}: the program does not take these settings:\n{answer.stdout}{answer.stderr}")
            asked += 1
    if asked == 0:
        sys.exit("no settings were found to ask about")


main()
