"""The cluster's `metrics.k8s.io`: what the autoscaler reads. The figures are the kubelet's own.

    python metrics.py ADDRESS PORT TOKEN_FILE CERTIFICATE KEY

Answers the autoscaler's two questions, which API exists here and how much processor time the pods of a namespace use.
Kubernetes' own metrics-server is in no package.
"""

import json
import ssl
import sys
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

GROUP = "metrics.k8s.io/v1beta1"
ROOT = f"/apis/{GROUP}"
WINDOW = "10s"
"""The span of the kubelet's figures."""

address, port, token_file, certificate, key = sys.argv[1:]
with open(token_file, encoding="ascii") as file:
    token = file.read().strip()


def ask(path: str) -> dict:
    # the certificate is made at each start, and the way is the loopback
    api = HTTPSConnection("127.0.0.1", 6443, timeout=5, context=ssl._create_unverified_context())
    try:
        api.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = api.getresponse()
        if answer.status != 200:
            raise OSError(f"{path}: {answer.status} {answer.read(300)!r}")
        return json.load(answer)
    finally:
        api.close()


def pod_metrics(namespace: str, selector: str) -> dict:
    pods = ask(f"/api/v1/namespaces/{namespace}/pods?{urlencode({'labelSelector': selector})}")["items"]
    wanted = {pod["metadata"]["uid"] for pod in pods}
    stats = ask("/api/v1/nodes/localhost/proxy/stats/summary")["pods"]
    items = [metrics for pod in stats if pod["podRef"]["uid"] in wanted and (metrics := of_pod(pod))]
    return {"kind": "PodMetricsList", "apiVersion": GROUP, "metadata": {}, "items": items}


def of_pod(pod: dict) -> dict | None:
    """A pod's metrics; None before the kubelet has two samples of each container."""
    used = {of["name"]: of["cpu"] for of in pod.get("containers", []) if "usageNanoCores" in of.get("cpu", {})}
    if not used or len(used) != len(pod["containers"]):
        return None
    containers = [{"name": name, "usage": {"cpu": f"{cpu['usageNanoCores']}n", "memory": "0"}} for name, cpu in used.items()]
    return {
        "metadata": {"name": pod["podRef"]["name"], "namespace": pod["podRef"]["namespace"]},
        "timestamp": min(cpu["time"] for cpu in used.values()),
        "window": WINDOW,
        "containers": containers,
    }


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parts = url.path.removeprefix(ROOT).strip("/").split("/")
        if url.path == ROOT:
            verbs = ["get", "list"]
            pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": verbs}
            self.answer(200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": [pods]})
        elif url.path.startswith(ROOT) and len(parts) == 3 and (parts[0], parts[2]) == ("namespaces", "pods"):
            self.answer(200, pod_metrics(parts[1], parse_qs(url.query).get("labelSelector", [""])[0]))
        else:
            self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def answer(self, status: int, content: dict) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer((address, int(port)), Handler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(certificate, key)
server.socket = tls.wrap_socket(server.socket, server_side=True)
server.serve_forever()
