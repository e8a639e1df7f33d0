"""What must hold of the rendered chart, whatever the values, and what no schema of Kubernetes says.

    rules.py RENDERED KUBERNETES_VERSION
"""

import json
import pathlib
import sys
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/mcpproxy"
SETTINGS = tomllib.loads((ROOT / "src/default.toml").read_text())
# Seconds in which the program writes its log after the drain, and says goodbye.
FLUSH_S = 10


def require(fact, text):
    if not fact:
        sys.exit(f"{sys.argv[1]}: {text}")


class Rendered:
    """The objects of one rendering, by kind."""

    def __init__(self, path, kube):
        self.all = [document for document in yaml.safe_load_all(pathlib.Path(path).read_text()) if document]
        self.kube = tuple(map(int, kube.split(".")))
        deployment = self.one("Deployment")
        self.template = deployment["spec"]["template"]
        self.pod = self.template["spec"]
        self.gateway = self.pod["containers"][0]
        self.deployment = deployment

    def kind(self, kind):
        return [document for document in self.all if document["kind"] == kind]

    def one(self, kind):
        found = self.kind(kind)
        require(len(found) == 1, f"{len(found)} of {kind}")
        return found[0]

    def named(self, kind, name):
        return next((found for found in self.kind(kind) if found["metadata"]["name"] == name), None)

    def pods(self):
        """Every pod there will be: labels, annotations of its object, specification."""
        for document in self.all:
            annotations = document["metadata"].get("annotations", {})
            if document["kind"] == "Pod":
                yield document["metadata"]["labels"], annotations, document["spec"]
            elif document["kind"] in ("Deployment", "StatefulSet", "Job"):
                template = document["spec"]["template"]
                yield template["metadata"]["labels"], annotations, template["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def variables(container):
    return {entry["name"]: entry for entry in container.get("env", [])}


def selects(labels, pod_labels):
    return labels.items() <= pod_labels.items()


def pods_may_nothing(rendered):
    for _, _, pod in rendered.pods():
        require(pod["automountServiceAccountToken"] is False, "a pod gets a token")
        require(pod["securityContext"]["runAsNonRoot"] is True, "a pod may be root")
        require(pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, "a pod without seccomp")
        for container in containers(pod):
            security = container["securityContext"]
            require(security["readOnlyRootFilesystem"] is True, "a root that can be written")
            require(security["allowPrivilegeEscalation"] is False, "privileges can be gained")
            require(security["capabilities"] == {"drop": ["ALL"]}, "capabilities are left")
            require("memory" in container["resources"]["limits"], f"{container['name']} without a bound on memory")
    require(rendered.pod["securityContext"]["runAsUser"] == 10001, "the gateway is not the user of its image")


def pods_stop_in_time(rendered):
    given = variables(rendered.gateway)
    drain, delay = (
        int(given.get(f"MCPPROXY__LIMITS__{name}".upper(), {}).get("value", SETTINGS["limits"][name]))
        for name in ("drain_s", "drain_delay_s")
    )
    unready = rendered.gateway["readinessProbe"]
    seen_s = unready["periodSeconds"] * unready["failureThreshold"]
    require(delay >= seen_s, f"within {delay} s /readyz is not seen to say draining")
    grace = rendered.pod["terminationGracePeriodSeconds"]
    require(grace >= delay + drain + FLUSH_S, f"{grace} s are not enough for {delay} + {drain} + {FLUSH_S}")
    strategy = rendered.deployment["spec"]["strategy"]["rollingUpdate"]
    require(strategy == {"maxUnavailable": 0, "maxSurge": 1}, "a replica goes before the next one is there")
    for autoscaler in rendered.kind("HorizontalPodAutoscaler"):
        spec = autoscaler["spec"]
        require("replicas" not in rendered.deployment["spec"], "an upgrade would undo what the autoscaler did")
        require(spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] > drain, "scaled down within a drain")
        wanted = "autoscaling/v2" if rendered.kube >= (1, 23) else "autoscaling/v2beta2"
        require(autoscaler["apiVersion"] == wanted, autoscaler["apiVersion"])
    for budget in rendered.kind("PodDisruptionBudget"):
        wanted = "policy/v1" if rendered.kube >= (1, 21) else "policy/v1beta1"
        require(budget["apiVersion"] == wanted, budget["apiVersion"])


def probes_ask_the_right_thing(rendered):
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        require(rendered.gateway[probe]["httpGet"] == {"path": path, "port": "http"}, probe)


def selectors_find_the_gateway_alone(rendered):
    own = rendered.template["metadata"]["labels"]
    others = [labels for labels, _, pod in rendered.pods() if pod is not rendered.pod]
    name = rendered.deployment["metadata"]["name"]
    metrics = rendered.named("Service", f"{name}-metrics")
    selectors = [
        rendered.deployment["spec"]["selector"]["matchLabels"],
        rendered.named("Service", name)["spec"]["selector"],
        metrics["spec"]["selector"],
        *(budget["spec"]["selector"]["matchLabels"] for budget in rendered.kind("PodDisruptionBudget")),
        *(spread["labelSelector"]["matchLabels"] for spread in rendered.pod.get("topologySpreadConstraints", [])),
    ]
    policy = rendered.named("NetworkPolicy", name)
    if policy:
        selectors.append(policy["spec"]["podSelector"]["matchLabels"])
    for selector in selectors:
        require(selects(selector, own), f"{selector} misses the gateway")
        require(not any(selects(selector, labels) for labels in others), f"{selector} finds others as well")
    ports = {port["name"] for port in rendered.gateway["ports"]}
    for service in (rendered.named("Service", name), metrics):
        for port in service["spec"]["ports"]:
            require(port["targetPort"] in ports, f"no port {port['targetPort']}")
    for service in rendered.kind("Service"):
        # Helm 4 applies at the server, and servers before 1.2x cannot merge ports without it
        require(all(port["protocol"] == "TCP" for port in service["spec"]["ports"]), "a port without its protocol")
        if service["metadata"]["name"] != name:
            require(service["spec"]["type"] == "ClusterIP", "only the gateway itself may be shown outside")


def secrets_are_references(rendered):
    own = {secret["metadata"]["name"]: secret["data"] for secret in rendered.kind("Secret")}
    require("master-key" not in json.dumps(rendered.kind("Secret")), "the master key is in a Secret of the chart")
    names = {f"MCPPROXY__{section}__{key}".upper() for section, keys in SETTINGS.items() if isinstance(keys, dict) for key in keys}
    for _, annotations, pod in rendered.pods():
        is_early = "pre-install" in annotations.get("helm.sh/hook", "")
        for container in containers(pod):
            for name, entry in variables(container).items():
                require(not name.startswith("MCPPROXY__") or name in names, f"{name} is no setting")
                if name.endswith(("_KEY", "__URL", "__DIRECT_URL", "PASSWORD")):
                    require("secretKeyRef" in entry.get("valueFrom", {}), f"{name} is written out")
                reference = entry.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"] in own:
                    require(reference["key"] in own[reference["name"]], f"{reference} leads nowhere")
                    require(not is_early, f"{reference} does not exist yet when the hook runs")


def migration_comes_first(rendered):
    jobs = rendered.kind("Job")
    before = [container["name"] for container in rendered.pod.get("initContainers", [])]
    if not jobs:
        require(before[-1:] == ["migrate"], "nothing migrates")
        return
    require(not before, "migrated twice")
    (job,) = jobs
    annotations = job["metadata"]["annotations"]
    require(annotations["helm.sh/hook"] == "pre-install,pre-upgrade", "the job is not in time")
    account = rendered.named("ServiceAccount", job["spec"]["template"]["spec"]["serviceAccountName"])
    weight = int(account["metadata"]["annotations"]["helm.sh/hook-weight"])
    require(weight < int(annotations["helm.sh/hook-weight"]), "the job's account comes after it")


def hosts_are_served(rendered):
    allowed = variables(rendered.gateway)["MCPPROXY__SERVER__ALLOWED_HOSTS"]["value"].split(",")
    hosts = [rule["host"] for ingress in rendered.kind("Ingress") for rule in ingress["spec"]["rules"]]
    hosts += [host for route in rendered.kind("HTTPRoute") for host in route["spec"]["hostnames"]]
    hosts += [rendered.deployment["metadata"]["name"], "127.0.0.1"]
    for host in hosts:
        require(host in allowed, f"{host} leads to the gateway, which does not serve it")


def streams_pass(rendered):
    nginx = "nginx.ingress.kubernetes.io/"
    for ingress in rendered.kind("Ingress"):
        annotations = ingress["metadata"]["annotations"]
        require(annotations[nginx + "proxy-buffering"] == "off", "the ingress holds streams back")
        require(int(annotations[nginx + "proxy-read-timeout"]) >= 3600, "the ingress cuts silent streams")
        body = int(annotations[nginx + "proxy-body-size"])
        require(body >= SETTINGS["limits"]["request_bytes_max"], "the ingress refuses bodies that the gateway takes")


def custom_kinds_are_right(rendered):
    """Kinds that kubernetes-validate knows no schema of."""
    name = rendered.deployment["metadata"]["name"]
    service = rendered.named("Service", name)
    for route in rendered.kind("HTTPRoute"):
        require(route["apiVersion"] == "gateway.networking.k8s.io/v1", route["apiVersion"])
        require(set(route["spec"]) == {"parentRefs", "hostnames", "rules"}, "HTTPRoute.spec")
        (rule,) = route["spec"]["rules"]
        port = service["spec"]["ports"][0]["port"]
        require(
            rule
            == {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "timeouts": {"request": "0s"},
                "backendRefs": [{"name": name, "port": port}],
            },
            "HTTPRoute.spec.rules",
        )
    for monitor in rendered.kind("ServiceMonitor"):
        require(monitor["apiVersion"] == "monitoring.coreos.com/v1", monitor["apiVersion"])
        require(set(monitor["spec"]) == {"selector", "endpoints"}, "ServiceMonitor.spec")
        (endpoint,) = monitor["spec"]["endpoints"]
        require(set(endpoint) == {"port", "path", "interval"} and endpoint["path"] == "/metrics", "ServiceMonitor's endpoint")
        labels = monitor["spec"]["selector"]["matchLabels"]
        found = [service for service in rendered.kind("Service") if selects(labels, service["metadata"]["labels"])]
        require([service["metadata"]["name"] for service in found] == [f"{name}-metrics"], "what ServiceMonitor selects")
        require(found[0]["spec"]["ports"][0]["name"] == endpoint["port"], "ServiceMonitor's port")
    for rule in rendered.kind("PrometheusRule"):
        require(rule["apiVersion"] == "monitoring.coreos.com/v1", rule["apiVersion"])
        require(rule["spec"] == yaml.safe_load((CHART / "alerts.yaml").read_text()), "PrometheusRule is not alerts.yaml")


def dashboards_are_carried_whole(rendered):
    for carried in rendered.kind("ConfigMap"):
        files = {path.name: path.read_text() for path in (CHART / "dashboards").glob("*.json")}
        require({name: json.loads(text) for name, text in carried["data"].items()} == {name: json.loads(text) for name, text in files.items()}, "dashboards differ")


def main():
    rendered = Rendered(*sys.argv[1:])
    for rule in (
        pods_may_nothing,
        pods_stop_in_time,
        probes_ask_the_right_thing,
        selectors_find_the_gateway_alone,
        secrets_are_references,
        migration_comes_first,
        hosts_are_served,
        streams_pass,
        custom_kinds_are_right,
        dashboards_are_carried_whole,
    ):
        rule(rendered)


main()
