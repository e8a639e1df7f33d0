"""What the files of deploy/compose say of each other must be so.

    rules.py COMPOSE_AS_COMPOSE_SEES_IT
"""

import pathlib
import re
import sys
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ROOT / "deploy/compose"
LIMITS = tomllib.loads((ROOT / "src/default.toml").read_text())["limits"]
GATEWAYS = {"gateway-1", "gateway-2"}


def require(fact, text):
    if not fact:
        sys.exit(f"deploy/compose: {text}")


def part(name):
    return yaml.safe_load((PARTS / name).read_text())


def port_of(address):
    return int(address.rsplit(":", 1)[1].split("/")[0])


def main():
    services = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())["services"]
    require(GATEWAYS <= services.keys(), "where are the gateways?")
    for name, service in services.items():
        require(re.search(r":v?\d+\.\d+", service["image"]) or "build" in service, f"{name}'s image has no pinned tag")
        for port in service.get("ports", []):
            address = port if isinstance(port, str) else port.get("host_ip", "") + ":"
            require(address.startswith("127.0.0.1:"), f"{name} is open to the network")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0] if isinstance(volume, str) else volume.get("source", "")
            require(not source.startswith("/") or pathlib.Path(source).exists(), f"{name} mounts {source}, which is not there")

    settings = services["gateway-1"]["environment"]
    main_port, metrics_port = (port_of(settings[f"MCPPROXY__SERVER__{name}"]) for name in ("LISTEN", "ADMIN_LISTEN"))
    grace = int(re.match(r"(\d+)s$", services["gateway-1"]["stop_grace_period"])[1])
    require(grace > LIMITS["drain_s"] + 5, "a gateway is killed within its drain")

    nginx = (PARTS / "nginx.conf").read_text()
    before = set(re.findall(r"^\s*server ([a-z0-9-]+):(\d+)", nginx, re.M))
    require(before == {(name, str(main_port)) for name in GATEWAYS}, "nginx.conf leads elsewhere")
    require(f"client_max_body_size {LIMITS['request_bytes_max'] >> 20}m;" in nginx, "nginx.conf has another bound on bodies")
    require("non_idempotent" not in nginx, "nginx would send calls twice")

    targets = {target for job in part("prometheus.yml")["scrape_configs"] for config in job["static_configs"] for target in config["targets"]}
    require(targets == {f"{name}:{metrics_port}" for name in GATEWAYS}, "Prometheus looks elsewhere")

    collector = part("collector.yaml")
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            require(set(names) <= collector[kind].keys(), f"the collector has no {kind} {names}")
    endpoint = settings["MCPPROXY__TELEMETRY__OTLP_ENDPOINT"]
    receiver = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    require("//collector:" in endpoint and port_of(endpoint) == port_of(receiver), "traces go elsewhere")
    hosts = [exporter["endpoint"].split(":")[0] for exporter in collector["exporters"].values()]
    hosts += [re.match(r"http://([a-z]+):", source["url"])[1] for source in part("grafana/datasources.yaml")["datasources"]]
    require(set(hosts) <= services.keys(), f"one of {hosts} is no service")


main()
