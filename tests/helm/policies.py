"""Evaluates the rendered NetworkPolicies, by the rules of networking.k8s.io/v1, against the connections that a release needs
and those that it must not have. Everything else in the namespace is denied, as where a platform denies by default.

    policies.py RENDERED NAME

Then it removes each rule in turn and opens each policy wide: the expectations must notice both.
"""

import copy
import ipaddress
import pathlib
import sys

import yaml

NAMESPACE = "tools"
# Labels of namespaces beside kubernetes.io/metadata.name.
NAMESPACES = {"openshift-ingress": {"network.openshift.io/policy-group": "ingress"}}
DATABASE, INTERNET, METADATA = "10.30.0.5", "93.184.216.34", "169.254.169.254"
PRIVATE_UPSTREAM, PRIVATE = "10.20.0.7", "10.9.0.9"


class Pod:
    """An end of a connection: a pod with labels, or (without a namespace) an address outside."""

    def __init__(self, namespace=None, labels=None, ip="10.244.0.9", ports=None):
        self.namespace, self.labels, self.ip, self.ports = namespace, labels or {}, ip, ports or {}

    def namespace_labels(self):
        return {"kubernetes.io/metadata.name": self.namespace, **NAMESPACES.get(self.namespace, {})}


STRANGERS = {
    "stranger": Pod("other", {"app": "stranger"}),
    "neighbour": Pod(NAMESPACE, {"app": "neighbour"}),
    "agent": Pod(NAMESPACE, {"role": "agent"}),
    "prometheus-beside": Pod(NAMESPACE, {"app": "prometheus"}),
    "ingress-nginx": Pod("ingress-nginx"),
    "openshift-router": Pod("openshift-ingress"),
    "monitoring": Pod("monitoring"),
    "dns": Pod("kube-system", {"k8s-app": "kube-dns"}),
    **{name: Pod(ip=ip) for name, ip in [("database", DATABASE), ("internet", INTERNET), ("metadata", METADATA),
                                         ("upstream", PRIVATE_UPSTREAM), ("private", PRIVATE)]},
}

# (from, to, port, protocol), of every release
NEEDED = [(pod, "dns", 53, protocol) for pod in ("gateway", "test") for protocol in ("UDP", "TCP")]
NEEDED += [("test", "gateway", "http", "TCP")]
REFUSED = [
    ("stranger", "gateway", "metrics", "TCP"),
    ("stranger", "test", 8080, "TCP"),
    ("gateway", "test", 8080, "TCP"),
    ("stranger", "gateway", 22, "TCP"),
]
# of a release whose test asks the Service: only that
OWN_TEST = [("test", "internet", 443, "TCP"), ("test", "database", 5432, "TCP"), ("test", "gateway", "metrics", "TCP")]
# of a migration by a hook
MIGRATES = [("migration", "database", 5432, "TCP"), ("migration", "dns", 53, "UDP"), ("migration", "dns", 53, "TCP")]
MIGRATES_NOT = [("stranger", "migration", 8080, "TCP"), ("migration", "internet", 443, "TCP"), ("migration", "gateway", "http", "TCP")]
# of a release with its own database
OWNS = [("gateway", "postgres", "postgres", "TCP")]
OWNS_NOT = [(pod, "postgres", "postgres", "TCP") for pod in ("stranger", "neighbour", "test")]
OWNS_NOT += [("postgres", "internet", 443, "TCP"), ("postgres", "dns", 53, "UDP")]
OPEN = [
    ("stranger", "gateway", "http", "TCP"),
    ("neighbour", "gateway", "metrics", "TCP"),
    ("gateway", "internet", 443, "TCP"),
    ("gateway", "database", 5432, "TCP"),
]
# name of a set of values: what it needs, and what it must not have
EXPECTED = {
    "minimal": (NEEDED + MIGRATES + OPEN, REFUSED + MIGRATES_NOT + OWN_TEST),
    "old-cluster": (NEEDED + MIGRATES + OPEN, REFUSED + MIGRATES_NOT + OWN_TEST),
    "gateway-api": (NEEDED + OPEN, REFUSED + OWN_TEST),
    "evaluation": (NEEDED + OWNS + OPEN, REFUSED + OWNS_NOT + OWN_TEST),
    "openshift": (
        NEEDED + OWNS + [
            ("openshift-router", "gateway", "http", "TCP"),
            ("neighbour", "gateway", "metrics", "TCP"),
            ("gateway", "internet", 443, "TCP"),
            *((pod, "dns", 5353, "UDP") for pod in ("gateway", "test")),
        ],
        REFUSED + OWNS_NOT + OWN_TEST + [
            ("stranger", "gateway", "http", "TCP"),
            ("neighbour", "gateway", "http", "TCP"),
        ],
    ),
    "production": (
        NEEDED + MIGRATES + [
            ("ingress-nginx", "gateway", "http", "TCP"),
            ("monitoring", "gateway", "metrics", "TCP"),
            ("gateway", "database", 6432, "TCP"),
            ("gateway", "database", 5432, "TCP"),
            ("gateway", "internet", 443, "TCP"),
            ("gateway", "upstream", 443, "TCP"),
            ("gateway", "monitoring", 4318, "TCP"),
        ],
        REFUSED + MIGRATES_NOT + OWN_TEST + [
            ("stranger", "gateway", "http", "TCP"),
            ("neighbour", "gateway", "http", "TCP"),
            ("neighbour", "gateway", "metrics", "TCP"),
            ("ingress-nginx", "gateway", "metrics", "TCP"),
            ("gateway", "metadata", 80, "TCP"),
            ("gateway", "private", 443, "TCP"),
            ("gateway", "monitoring", 9090, "TCP"),
        ],
    ),
    "everything": (
        NEEDED + MIGRATES[1:] + [
            ("agent", "gateway", "http", "TCP"),
            ("prometheus-beside", "gateway", "metrics", "TCP"),
            ("migration", "database", 6432, "TCP"),
            ("gateway", "database", 6432, "TCP"),
            ("gateway", "database", 5433, "TCP"),
            ("gateway", "upstream", 443, "TCP"),
            # test.url may lead anywhere
            ("test", "internet", 443, "TCP"),
        ],
        REFUSED + MIGRATES_NOT + [
            ("neighbour", "gateway", "http", "TCP"),
            ("agent", "gateway", "metrics", "TCP"),
            ("gateway", "internet", 443, "TCP"),
            ("gateway", "database", 5432, "TCP"),
            ("gateway", "upstream", 80, "TCP"),
        ],
    ),
}


def pods_of(documents):
    """The pods of a release by component."""
    pods = {}
    for document in documents:
        if document["kind"] == "Pod":
            template = document
        elif document["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = document["spec"]["template"]
        else:
            continue
        ports = {port["name"]: (port["containerPort"], port.get("protocol", "TCP"))
                 for container in template["spec"]["containers"] for port in container.get("ports", [])}
        labels = template["metadata"]["labels"]
        pods[labels["app.kubernetes.io/component"]] = Pod(NAMESPACE, labels, ports=ports)
    return pods


def selects(selector, labels):
    """A LabelSelector."""
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    for rule in selector.get("matchExpressions", []):
        value, values = labels.get(rule["key"]), rule.get("values", [])
        holds = {"In": value in values, "NotIn": value not in values,
                 "Exists": value is not None, "DoesNotExist": value is None}
        if not holds[rule["operator"]]:
            return False
    return True


def is_peer(peer, pod):
    """A NetworkPolicyPeer of a policy in the release's namespace. Blocks are for what is outside the cluster."""
    if "ipBlock" in peer:
        block, address = peer["ipBlock"], ipaddress.ip_address(pod.ip)
        excepted = any(address in ipaddress.ip_network(cidr) for cidr in block.get("except", []))
        return pod.namespace is None and address in ipaddress.ip_network(block["cidr"]) and not excepted
    if pod.namespace is None:
        return False
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], pod.namespace_labels()):
            return False
    elif pod.namespace != NAMESPACE:
        return False
    return selects(peer.get("podSelector", {}), pod.labels)


def is_port(wanted, target, port, protocol):
    """A NetworkPolicyPort; names are those of the pod that is connected to."""
    if wanted.get("protocol", "TCP") != protocol:
        return False
    number = wanted.get("port")
    if isinstance(number, str):
        return target.ports.get(number) == (port, protocol)
    return number is None or number <= port <= wanted.get("endPort", number)


def is_open(policies, direction, pod, peer, target, port, protocol):
    """Whether the policies of a pod let a connection through, in one direction."""
    if pod.namespace != NAMESPACE:
        return True
    own = [policy["spec"] for policy in policies if selects(policy["spec"]["podSelector"], pod.labels)]
    key = {"Ingress": "from", "Egress": "to"}[direction]
    for spec in own:
        if direction not in spec["policyTypes"]:
            continue
        for rule in spec.get(direction.lower(), []):
            peers, ports = rule.get(key, []), rule.get("ports", [])
            if (not peers or any(is_peer(entry, peer) for entry in peers)) and (
                not ports or any(is_port(entry, target, port, protocol) for entry in ports)
            ):
                return True
    # none of the release's: those of the namespace deny; strangers in it are let out, as their own policies would
    return not own and "app.kubernetes.io/component" not in pod.labels


def broken(policies, pods, name):
    """What is not as expected."""
    needed, refused = EXPECTED[name]
    problems = []
    for flows, wanted in ((needed, True), (refused, False)):
        for source, target, port, protocol in flows:
            one, other = pods[source], pods[target]
            number = other.ports[port][0] if isinstance(port, str) else port
            found = is_open(policies, "Egress", one, other, other, number, protocol) and is_open(
                policies, "Ingress", other, one, other, number, protocol)
            if found != wanted:
                problems.append(f"{source} {'cannot reach' if wanted else 'reaches'} {target} at {port}/{protocol}")
    return problems


def without_each_rule(policies):
    """The policies without one rule, each in turn, with what was taken."""
    for at, policy in enumerate(policies):
        for direction in ("ingress", "egress"):
            for number, rule in enumerate(policy["spec"].get(direction, [])):
                fewer = copy.deepcopy(policies)
                del fewer[at]["spec"][direction][number]
                yield f"{policy['metadata']['name']} without {direction} {rule}", fewer


def opened(policies):
    """The policies with one direction of one opened wide, each in turn."""
    for at, policy in enumerate(policies):
        for kind in policy["spec"]["policyTypes"]:
            if {} in policy["spec"].get(kind.lower(), []):
                continue
            wider = copy.deepcopy(policies)
            wider[at]["spec"][kind.lower()] = [{}]
            yield f"{policy['metadata']['name']} with all {kind.lower()}", wider


def main(path, name):
    documents = [document for document in yaml.safe_load_all(pathlib.Path(path).read_text()) if document]
    policies = [document for document in documents if document["kind"] == "NetworkPolicy"]
    if not policies:
        sys.exit(f"{path}: no policies")
    pods = {**STRANGERS, **pods_of(documents)}
    problems = broken(policies, pods, name)
    for what, changed in [*without_each_rule(policies), *opened(policies)]:
        # beside a rule that lets everything out, the others of its direction are there for whoever narrows it
        is_spare = "egress" in what and any({} in policy["spec"].get("egress", []) and what.startswith(
            policy["metadata"]["name"] + " ") for policy in policies)
        if not is_spare and not broken(changed, pods, name):
            problems.append(f"nobody notices {what}")
    if problems:
        sys.exit("\n".join(f"{path}: {problem}" for problem in problems))


main(*sys.argv[1:])
