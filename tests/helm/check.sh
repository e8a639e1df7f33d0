#!/usr/bin/env bash
# Checks the chart: lint, its own rules, Kubernetes' schemas and snapshots over several sets of values, and what must be
# refused. With MCPPROXY_BINARY (or a built target/debug/mcpproxy) the program itself is asked about the settings.
#
#   tests/helm/check.sh            # checks
#   tests/helm/check.sh --update   # rewrites snapshots, and the settings in values.schema.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

update=()
if [ "${1:-}" = --update ]; then update=(--update); fi

# the oldest schemas that are promised, the newest there are, and a cluster from before them
oldest=1.29 newest=1.37 ancient=1.20
chart=helm/mcpproxy
values_lines_max=150

tools="$(tests/helm/tools.sh)"
helm="$tools/bin/helm"
python="$tools/venv/bin/python"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT

fail() {
  echo "check.sh: $*" >&2
  exit 1
}

# further kinds that the cluster has
apis=()

# render NAME KUBE [ARGUMENT…]: the chart with a set of values, for a version of Kubernetes that has all kinds asked for.
render() {
  local values="tests/helm/values/$1.yaml" kube="$2"
  shift 2
  "$helm" template mcpproxy "$chart" --namespace tools --values "$values" --kube-version "$kube" \
    --api-versions gateway.networking.k8s.io/v1 --api-versions monitoring.coreos.com/v1 \
    ${apis[@]+"${apis[@]}"} "$@"
}

# holds NAME KUBE: the set renders, and what it renders is right.
holds() {
  local file="$out/$1-$2.yaml"
  render "$1" "$2" >"$file"
  "$python" tests/helm/rules.py "$file" "$2"
  "$python" tests/helm/policies.py "$file" "$1"
  # kinds that no schema is known of are held to rules.py instead; no other may slip through so
  "$tools/venv/bin/kubernetes-validate" --strict --quiet -k "${3:-$2}" "$file" >"$out/validated" 2>&1 || {
    cat "$out/validated" >&2
    fail "$1 does not fit the schemas of Kubernetes ${3:-$2}"
  }
  if grep -v "find schema for kind \(${4:-HTTPRoute\|ServiceMonitor\|PrometheusRule}\) " "$out/validated" >&2; then
    fail "$1: a kind was not checked"
  fi
}

# refused TEXT ARGUMENT…: helm template with these arguments fails, and says so.
refused() {
  local text="$1"
  shift
  if "$helm" template "${release:-mcpproxy}" "$chart" "$@" >/dev/null 2>"$out/refused"; then
    fail "not refused: $*"
  fi
  grep -qF -- "$text" "$out/refused" || fail "refused $* without saying '$text': $(cat "$out/refused")"
}

"$python" tests/helm/schema.py "${update[@]}"
lines="$(wc -l <"$chart/values.yaml")"
[ "$lines" -le "$values_lines_max" ] || fail "values.yaml has $lines lines, $values_lines_max are allowed"

version="$(sed -n '0,/^version = "\(.*\)"/s//\1/p' Cargo.toml)"
grep -qx "appVersion: \"$version\"" "$chart/Chart.yaml" || fail "Chart.yaml's appVersion is not $version, that of Cargo.toml"

for file in tests/helm/values/*.yaml; do
  "$helm" lint --strict --quiet "$chart" --values "$file" 2>"$out/lint" || {
    cat "$out/lint" >&2
    fail "lint with $file"
  }
done

for name in minimal evaluation production gateway-api everything; do
  holds "$name" "$oldest"
  holds "$name" "$newest"
  "$python" tests/helm/snapshot.py "$out/$name-$newest.yaml" "tests/helm/snapshots/$name.yaml" "${update[@]}"
done
# Schemas of a cluster that old are not to be had: the nearest ones know all of its kinds but one.
holds old-cluster "$ancient" 1.25 PodDisruptionBudget
"$python" tests/helm/snapshot.py "$out/old-cluster-$ancient.yaml" tests/helm/snapshots/old-cluster.yaml "${update[@]}"

apis=(--api-versions security.openshift.io/v1)
holds openshift "$newest"
"$python" tests/helm/snapshot.py "$out/openshift-$newest.yaml" tests/helm/snapshots/openshift.yaml "${update[@]}"
apis=()

least=(--values tests/helm/values/minimal.yaml)
gateway_api=(--api-versions gateway.networking.k8s.io/v1)
database="secrets.databaseUrl.existingSecret" image="image.repository=mcpproxy"
refused "secrets.masterKey.existingSecret is not set. This chart never generates the master key" --set $image,$database=mcpproxy
refused "secrets.databaseUrl.existingSecret is not set" --set $image,secrets.masterKey.existingSecret=mcpproxy
refused "Both postgres.enabled and secrets.databaseUrl.existingSecret" "${least[@]}" --set postgres.enabled=true
refused "migration.mode is hook, but" "${least[@]}" --set $database=,postgres.enabled=true,migration.mode=hook
refused "at '/replicaCount': got string, want integer" "${least[@]}" --set replicaCount=many
refused "at '/replicas': got string, want integer" "${least[@]}" --set replicas=many
refused "additional properties 'replica' not allowed" "${least[@]}" --set replica=3
refused "at '/config/limits': additional properties 'drain' not allowed" "${least[@]}" --set config.limits.drain=3
refused "at '/config/limits/drain_s': got string, want integer" "${least[@]}" --set config.limits.drain_s=long
refused "at '/config': additional properties 'secrets' not allowed" "${least[@]}" --set config.secrets.master_key=x
refused "at '/migration/mode'" "${least[@]}" --set migration.mode=later
refused "has a comma" "${least[@]}" --set-json 'config.egress={"allow":["10.0.0.0/8,0.0.0.0/0"]}'
refused "ingress.hosts is empty" "${least[@]}" --set ingress.enabled=true
refused "at '/ingress/hosts/0'" "${least[@]}" --set ingress.enabled=true --set 'ingress.hosts={*.example.com}'
refused "this cluster has no gateway.networking.k8s.io/v1" "${least[@]}" --set httpRoute.enabled=true
refused "httpRoute.parentRefs or httpRoute.hostnames is empty" "${least[@]}" "${gateway_api[@]}" --set httpRoute.enabled=true
refused "this cluster has no monitoring.coreos.com/v1" "${least[@]}" --set metrics.serviceMonitor.enabled=true
refused "this cluster has no monitoring.coreos.com/v1" "${least[@]}" --set metrics.prometheusRule.enabled=true
refused "maxReplicas is below" "${least[@]}" --set autoscaling.enabled=true,autoscaling.maxReplicas=1
refused "chart requires kubeVersion: >=1.20.0-0" "${least[@]}" --kube-version 1.19
refused "image.repository is not set" "${least[@]}" --set image.repository=
release=0a refused "cannot be the name of a Service" "${least[@]}"
release=a.b refused "cannot be the name of a Service" "${least[@]}"
refused "at '/fullnameOverride'" "${least[@]}" --set fullnameOverride=0a
refused "MCPPROXY__LIMITS__DRAIN_DELAY_S comes from config.limits.drain_delay_s" "${least[@]}" \
  --set-json 'extraEnv=[{"name":"MCPPROXY__LIMITS__DRAIN_DELAY_S","value":"1"}]'
refused "MCPPROXY__SESSIONS__KEY comes from secrets.sessionsKey" "${least[@]}" --set 'extraEnv[0].name=MCPPROXY__SESSIONS__KEY'
refused "A comes from another entry" "${least[@]}" --set-json 'extraEnv=[{"name":"A","value":"1"},{"name":"A","value":"2"}]'
refused "EMBEDDINGS_API_KEY is a secret" "${least[@]}" \
  --set-json 'extraEnv=[{"name":"MCPPROXY__SEARCH__EMBEDDINGS_API_KEY","value":"word"}]'
for part in autoscaling networkPolicy secrets secrets.sessionsKey metrics.dashboards image podDisruptionBudget migration test; do
  refused "missing property '${part#*.}'" "${least[@]}" --set "$part=null"
done

# a file with `config:` and only comments below it is one without settings
render minimal "$newest" >"$out/plain.txt"
render minimal "$newest" --set config=null >"$out/empty.txt"
for file in plain empty; do sed -i 's/^\(  [a-z]*-key: \)[A-Za-z0-9+/=]*$/\1/' "$out/$file.txt"; done
diff "$out/plain.txt" "$out/empty.txt" || fail "an empty config changes what is rendered"

# replicas is the name of the release before; --reuse-values gives its default, and no replicaCount
for values in replicas=3 replicas=3,replicaCount=null replicaCount=3 replicas=3,replicaCount=2 replicas=4,replicaCount=3; do
  render minimal "$newest" --set "$values" >"$out/count.txt"
  grep -qx '  replicas: 3' "$out/count.txt" || fail "--set $values does not give 3 replicas"
done
render minimal "$newest" --set replicaCount=0 | grep -qx '  replicas: 0' || fail "replicaCount=0 does not give 0 replicas"
refused "replicaCount is not set" "${least[@]}" --set replicaCount=null
render minimal "$newest" --set replicaCount=null,autoscaling.enabled=true >"$out/count.txt" ||
  fail "the autoscaler needs a replicaCount"
grep -qx 'kind: PodDisruptionBudget' "$out/count.txt" || fail "no disruption budget with the autoscaler"

# in a chart above it, under a condition
above="$out/umbrella"
mkdir -p "$above/charts"
cp -r "$chart" "$above/charts/"
cat >"$above/Chart.yaml" <<'EOF'
apiVersion: v2
name: umbrella
version: 0.0.1
dependencies: [{ name: mcpproxy, version: ">=0.0.0", condition: mcpproxy.enabled }]
EOF
sed '1i mcpproxy:
  s/^/  /' tests/helm/values/minimal.yaml >"$above/values.yaml"
for file in alerts.yaml dashboards; do
  mv "$above/charts/mcpproxy/$file" "$out/aside"
  if "$helm" template mcpproxy "$above/charts/mcpproxy" --values tests/helm/values/production.yaml \
    --api-versions monitoring.coreos.com/v1 >/dev/null 2>"$out/refused"; then
    fail "without $file it renders nothing of it, and says nothing"
  fi
  grep -q "this copy of the chart has no $file" "$out/refused" || fail "without $file: $(cat "$out/refused")"
  mv "$out/aside" "$above/charts/mcpproxy/$file"
done
for enabled in true false; do
  "$helm" template mcpproxy "$above" --kube-version "$newest" --set mcpproxy.enabled=$enabled >"$out/above.txt" ||
    fail "in a chart above it, it is refused with enabled=$enabled"
  found="$(grep -c '^kind: Deployment' "$out/above.txt" || true)"
  [ "$found/$enabled" = 1/true ] || [ "$found/$enabled" = 0/false ] || fail "in a chart above it, $found with enabled=$enabled"
done

"$python" tests/helm/lookup.py "$helm"

binary="${MCPPROXY_BINARY:-${CARGO_TARGET_DIR:-target}/debug/mcpproxy}"
if [ -x "$binary" ]; then
  "$python" tests/helm/settings.py "$binary" "$out"/*.yaml
else
  echo "check.sh: $binary is not built, so the program was not asked about the settings" >&2
fi
echo "the chart is as it should be: $(find tests/helm/values -name '*.yaml' | wc -l) sets of values, Kubernetes $oldest and $newest"
