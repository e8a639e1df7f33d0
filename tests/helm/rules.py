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
# Helm's --timeout, when nobody says more.
HELM_WAITS_S = 300
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


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
        self.is_openshift = "/openshift-" in path

    def kind(self, kind):
        return [document for document in self.all if document["kind"] == kind]

    def one(self, kind):
        found = self.kind(kind)
        require(len(found) == 1, f"{len(found)} of {kind}")
        return found[0]

    def named(self, kind, name):
        return next((found for found in self.kind(kind) if found["metadata"]["name"] == name), None)

    def pods(self):
        """Every pod there will be: labels, annotations, specification."""
        return [(labels, annotations, pod) for _, labels, annotations, pod in self.made()]

    def made(self):
        """The same, with the object that makes the pod before it."""
        for document in self.all:
            if document["kind"] == "Pod":
                template = document
            elif document["kind"] in ("Deployment", "StatefulSet", "Job"):
                template = document["spec"]["template"]
            else:
                continue
            yield document, template["metadata"]["labels"], template["metadata"].get("annotations", {}), template["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def variables(container):
    return {entry["name"]: entry for entry in container.get("env", [])}


def hook(document):
    """When Helm makes an object beside the release: events and weight, or None."""
    annotations = document["metadata"].get("annotations", {})
    events = annotations.get("helm.sh/hook")
    return events and (events, int(annotations.get("helm.sh/hook-weight", 0)))


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
        require(pod["enableServiceLinks"] is False, "a pod gets variables of Services")
        own = {"gateway": 10001, "postgres": 999}.get(pod["containers"][0]["name"], 10001)
        user = pod["securityContext"].get("runAsUser")
        require(user == (None if rendered.is_openshift else own), f"a pod runs as {user}")


def pods_carry_what_the_cluster_asks_for(rendered):
    values = yaml.safe_load((ROOT / "tests/helm/values/everything.yaml").read_text())
    if rendered.deployment["metadata"]["name"] != values["fullnameOverride"]:
        return
    for labels, annotations, pod in rendered.pods():
        component = labels["app.kubernetes.io/component"]
        require(selects(values["podLabels"], labels), f"{component} without podLabels")
        require(selects(values["podAnnotations"], annotations), f"{component} without podAnnotations")
        ends = component in ("migration", "test")
        require(selects(values["migration"]["podLabels"], labels) is ends, f"{component} and migration.podLabels")
        require(selects(values["migration"]["podAnnotations"], annotations) is ends, f"{component} and migration.podAnnotations")
        for place in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "hostAliases", "imagePullSecrets"):
            require(pod.get(place) == values[place], f"{component} without {place}")


def variables_are_set_once(rendered):
    for _, _, pod in rendered.pods():
        for container in containers(pod):
            names = [entry["name"] for entry in container.get("env", [])]
            twice = {name for name in names if names.count(name) > 1}
            require(not twice, f"{container['name']} has {twice} twice")


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
        (pace,) = spec["behavior"]["scaleDown"]["policies"]
        require(pace["value"] == 1 and pace["periodSeconds"] >= min(grace, 1800), "the next replica goes within a drain")
        target = spec["scaleTargetRef"]
        is_own = (target["kind"], target["name"]) == ("Deployment", rendered.deployment["metadata"]["name"])
        require(is_own and target["apiVersion"] == rendered.deployment["apiVersion"], f"it scales {target}")
        # a percentage of what is requested: one container that requests none, and there is no figure for the pod
        for metric in spec["metrics"]:
            resource = metric["resource"]["name"]
            for container in containers(rendered.pod):
                requested = container["resources"].get("requests", {})
                require(resource in requested, f"{container['name']} requests no {resource} to scale by")
        wanted = "autoscaling/v2" if rendered.kube >= (1, 23) else "autoscaling/v2beta2"
        require(autoscaler["apiVersion"] == wanted, autoscaler["apiVersion"])
    for budget in rendered.kind("PodDisruptionBudget"):
        wanted = "policy/v1" if rendered.kube >= (1, 21) else "policy/v1beta1"
        require(budget["apiVersion"] == wanted, budget["apiVersion"])
        unready = budget["spec"].get("unhealthyPodEvictionPolicy")
        require(unready == ("AlwaysAllow" if rendered.kube >= (1, 27) else None), "nodes wait for replicas that serve nobody")


def probes_ask_the_right_thing(rendered):
    # clients can fill the listener of http: that is no reason to restart, nor to send them to another replica
    for probe, path, port in (
        ("startupProbe", "/livez", "metrics"),
        ("livenessProbe", "/livez", "metrics"),
        ("readinessProbe", "/readyz", "metrics"),
    ):
        require(rendered.gateway[probe]["httpGet"] == {"path": path, "port": port}, probe)


def policies_let_pods_work(rendered):
    policies = rendered.kind("NetworkPolicy")
    if not policies:
        return
    by_component = {}
    for maker, labels, _, _ in rendered.made():
        component = labels["app.kubernetes.io/component"]
        of = [policy for policy in policies if selects(policy["spec"]["podSelector"]["matchLabels"], labels)]
        require(len(of) == 1, f"{len(of)} policies for {component}")
        by_component[component] = (of[0]["spec"], labels)
        early, made = hook(maker), hook(of[0])
        if early and "pre-install" in early[0]:
            require(made and made[0] == early[0] and made[1] < early[1], f"the policy of {component} comes too late")
        else:
            require(made is None, f"the policy of {component} is none of the release")
    for component, (spec, _) in by_component.items():
        if component == "postgres":
            require("egress" not in spec, "the database may reach others")
        elif {} not in spec["egress"]:
            names = [rule for rule in spec["egress"] if {"port": 53, "protocol": "UDP"} in rule.get("ports", [])]
            require(names and "to" not in names[0], f"{component} resolves no names")
            ports = {port["port"] for port in names[0]["ports"]}
            require(ports == ({53, 5353} if rendered.is_openshift else {53}), f"names at {ports}")
    gateway, own = by_component["gateway"]
    tester, labels = by_component["test"]
    (entry,) = (rule for rule in gateway["ingress"] if rule["ports"][0]["port"] == "http")
    peers = [peer["podSelector"]["matchLabels"] for peer in entry.get("from", []) if set(peer) == {"podSelector"}]
    require("from" not in entry or any(selects(peer, labels) for peer in peers), "helm test is not let in")
    out = [rule for rule in tester["egress"] if {"port": "http", "protocol": "TCP"} in rule.get("ports", [])]
    peers = [peer["podSelector"]["matchLabels"] for rule in out for peer in rule["to"]]
    require({} in tester["egress"] or any(selects(peer, own) for peer in peers), "helm test is not let out")
    if "migration" in by_component:
        # what the gateway has beside names and upstreams
        require(by_component["migration"][0]["egress"] == gateway["egress"][:2], "migrating reaches no database")


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


def names_fit(rendered):
    for database in rendered.kind("StatefulSet"):
        # Kubernetes appends to it in a label of pods
        require(len(database["metadata"]["name"]) <= 52, "the database's pods cannot be made")


def secrets_are_references(rendered):
    own = {secret["metadata"]["name"]: secret["data"] for secret in rendered.kind("Secret")}
    require("master-key" not in json.dumps(rendered.kind("Secret")), "the master key is in a Secret of the chart")
    names = {f"MCPPROXY__{section}__{key}".upper() for section, keys in SETTINGS.items() if isinstance(keys, dict) for key in keys}
    early = {secret["metadata"]["name"] for secret in rendered.kind("Secret") if hook(secret)}
    # as objects of the release they would be put back by a rollback, keys that were rotated since
    require(early == own.keys() - {f"{rendered.deployment['metadata']['name']}-postgres"}, f"hooks are {early}")
    for maker, _, _, pod in rendered.made():
        is_early = "pre-install" in (hook(maker) or [""])[0]
        for container in containers(pod):
            for name, entry in variables(container).items():
                require(not name.startswith("MCPPROXY__") or name in names, f"{name} is no setting")
                if name.endswith(("_KEY", "__URL", "__DIRECT_URL", "PASSWORD")):
                    is_secret = "secretKeyRef" in entry.get("valueFrom", {}) or "$(POSTGRES_PASSWORD)" in entry.get("value", "")
                    require(is_secret, f"{name} is written out")
                reference = entry.get("valueFrom", {}).get("secretKeyRef")
                if reference and reference["name"] in own:
                    require(reference["key"] in own[reference["name"]], f"{reference} leads nowhere")
                    require(not is_early or reference["name"] in early, f"{reference} does not exist yet when the hook runs")


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
    # Helm waits for 5 min when nobody says more: until then a job that cannot succeed has to have said so
    pauses = sum(10 * 2**attempt for attempt in range(job["spec"]["backoffLimit"]))
    require(pauses < HELM_WAITS_S / 2, f"a job that fails takes {pauses} s to say so")
    require(DEFAULTS["migration"]["timeoutSeconds"] < HELM_WAITS_S, "a job is still at work when helm gives up")


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
        require(rule.pop("timeouts")["request"] == "0s", "the route cuts streams")
        port = service["spec"]["ports"][0]["port"]
        require(
            rule
            == {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
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
        pods_carry_what_the_cluster_asks_for,
        variables_are_set_once,
        pods_stop_in_time,
        probes_ask_the_right_thing,
        policies_let_pods_work,
        selectors_find_the_gateway_alone,
        names_fit,
        secrets_are_references,
        migration_comes_first,
        hosts_are_served,
        streams_pass,
        custom_kinds_are_right,
        dashboards_are_carried_whole,
    ):
        rule(rendered)


main()
