"""What Helm generates stays when it sees it in the cluster, here a server that knows a few Secrets and nothing else.

    lookup.py HELM
"""

import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMESPACE = "tools"
# What `helm template --dry-run=server` asks for beside Secrets: which kinds there are.
KINDS = {
    "v1": ["Secret", "Service", "ServiceAccount", "PersistentVolumeClaim", "Pod"],
    "apps/v1": ["Deployment", "StatefulSet"],
    "batch/v1": ["Job"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
}


def discovery():
    """Answers of a server that has these kinds."""
    groups = [version.split("/")[0] for version in KINDS if "/" in version]
    answers = {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {"name": group, "versions": [{"groupVersion": f"{group}/v1", "version": "v1"}]} for group in groups
            ],
        },
    }
    for version, kinds in KINDS.items():
        resources = [
            {"name": plural(kind), "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": ["get"]}
            for kind in kinds
        ]
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answers[path] = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    return answers


def plural(kind):
    return kind.lower().removesuffix("y") + ("ies" if kind.endswith("y") else "s")


FIXED = discovery()


class Cluster(ThreadingHTTPServer):
    """Its `secrets` by name; what was asked for is in `asked`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.secrets = {}
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def kubeconfig(self, folder):
        server = f"http://127.0.0.1:{self.server_port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "users": [{"name": "me", "user": {}}],
        }
        path = pathlib.Path(folder) / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        prefix = f"/api/v1/namespaces/{NAMESPACE}/secrets/"
        found = FIXED.get(path)
        if path.startswith(prefix):
            name = path.removeprefix(prefix)
            self.server.asked.append(name)
            found = self.server.secrets.get(name)
            if found:
                # as Helm marks what it makes, and only takes up what is marked
                marks = {"meta.helm.sh/release-name": "mcpproxy", "meta.helm.sh/release-namespace": NAMESPACE}
                labels = {"app.kubernetes.io/managed-by": "Helm"}
                found = found | {"metadata": {"name": name, "annotations": marks, "labels": labels}}
        status = 200 if found else 404
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(found or missing).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def require(fact, text):
    if not fact:
        sys.exit(f"lookup.py: {text}")


def secret(**data):
    data = {name.replace("_", "-"): value for name, value in data.items()}
    return {"kind": "Secret", "apiVersion": "v1", "data": data}


def main():
    cluster = Cluster()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = cluster.kubeconfig(folder)

        def render(values):
            return subprocess.run(
                [sys.argv[1], "template", "mcpproxy", "helm/mcpproxy", "--namespace", NAMESPACE, "--dry-run=server", "--disable-openapi-validation"]
                + ["--kubeconfig", kubeconfig, "--values", f"tests/helm/values/{values}.yaml"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
            )

        def secrets(values):
            rendered = render(values)
            require(rendered.returncode == 0, rendered.stderr)
            documents = filter(None, yaml.safe_load_all(rendered.stdout))
            return {secret["metadata"]["name"]: secret for secret in documents if secret["kind"] == "Secret"}

        for values in ("minimal", "evaluation"):
            cluster.secrets = {}
            first = secrets(values)
            require(set(first) <= set(cluster.asked), f"{values}: Helm did not look, but for {cluster.asked}")
            require(first != secrets(values), f"{values}: nothing is generated")
            # what is there stays; the keys are not even mentioned, so that no revision of the release can put them back
            cluster.secrets = first
            first = {name: made for name, made in first.items() if name != "mcpproxy-generated"}
            require(first == secrets(values), f"{values}: an upgrade changed what was generated")

        # one that lacks a key gets that one, and keeps the others
        kept = base64.b64encode(b"one that was rotated").decode()
        cluster.secrets["mcpproxy-generated"] = secret(sessions_key=kept, note="")
        after = secrets("evaluation")["mcpproxy-generated"]["data"]
        require(after["sessions-key"] == kept and "note" in after, "something was changed beside the key that was missing")
        require(len(base64.b64decode(after["bootstrap-key"])) == 48, "the key that was missing was not made")

        # a Secret that was named and has not the key
        cluster.secrets = {"mcpproxy": secret(database_url="")}
        refused = render("minimal")
        sentence = "secrets.masterKey: the Secret mcpproxy has no key master-key."
        require(refused.returncode != 0 and sentence in refused.stderr, f"not refused: {refused.stderr}")


main()
