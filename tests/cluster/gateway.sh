# shellcheck shell=bash
# The gateway's image, its release, and what is done to it. Sourced by run.sh, after settings.sh and outside.sh.
# shellcheck disable=SC2034,SC2016 # for run.sh; awk's own

readonly RELEASE=mcpproxy
readonly IMAGE=localhost/mcpproxy
readonly CHART=../../helm/mcpproxy
# The revision of git whose image and chart are installed first; nothing: those of this tree, under another tag.
readonly FROM="${MCPPROXY_CLUSTER_FROM:-}"

# What helm installs now.
chart="$CHART" tag=1

# Stops before anything is built if the upgrade would be one without a migration.
check_from() {
  local commit
  [[ -n "$FROM" ]] || return 0
  ../../deploy/needs.sh git
  commit="$(commit_of "$FROM")"
  [[ -n "$(comm -13 <(migrations_of "$commit") <(migrations_of HEAD))" ]] ||
    die "'$FROM' has all migrations that this commit has: none would be pending"
}

migrations_of() { git ls-tree --name-only "$1" ../../migrations/ | sort; }

# Tags 1 and 2 of the same image, so that an upgrade can be one of the image, and tag 0 of the revision to come from; and
# the first one's program, to be a client with.
load_images() {
  local archive="${MCPPROXY_CLUSTER_IMAGE:-}"
  if [[ -z "$archive" ]]; then
    archive="$STATE/image.tar"
    build_image ../.. 1 "$archive"
  fi
  containerd_images import "$archive" >/dev/null
  containerd_images tag "$IMAGE:1" "$IMAGE:2" >/dev/null
  if [[ -n "$FROM" ]]; then load_image_from; fi
  inside mkdir /run/gateway
  containerd_images mount --snapshotter native "$IMAGE:$tag" /run/gateway >/dev/null
}

# The image of that revision, built where make upgrade-test builds; its chart comes first.
load_image_from() {
  local folder
  folder="$(realpath -m ../../target/upgrade)"
  check_out "$(commit_of "$FROM")" "$folder/source"
  chart="$folder/source/helm/mcpproxy" tag=0
  CARGO_TARGET_DIR="$folder/build" build_image "$folder/source" "$tag" "$STATE/image-from.tar"
  containerd_images import "$STATE/image-from.tar" >/dev/null
}

# build_image TREE TAG ARCHIVE
build_image() {
  local profile="${MCPPROXY_CLUSTER_PROFILE:-release}"
  say "building image $2 (profile $profile)"
  IMAGE_BUILDAH="--root $STATE/images/root --runroot $STATE/images/run --storage-driver vfs" \
    "$1/deploy/image.sh" --tag "$IMAGE:$2" --profile "$profile" --archive "$3" >"$LOGS/image-$2.log" 2>&1 ||
    die "the image could not be built; see $LOGS/image-$2.log"
}

containerd_images() {
  local verb="$1"
  shift
  inside ctr --address /run/containerd/containerd.sock --namespace k8s.io images "$verb" "$@"
}

# create_secrets PASSWORD: what an operator brings along.
create_secrets() {
  local at="$DATABASE_HOST:5432/mcpproxy"
  kube create secret generic database --from-literal "database-url=postgres://gateway:$1@$at" \
    --from-literal "migration-url=postgres://migrator:$1@$at" >/dev/null
  kube create secret generic master --from-literal "master-key=$(openssl rand -base64 32)" >/dev/null
}

gateway_helm() {
  local verb="$1"
  shift
  inside helm "$verb" "$RELEASE" "$chart" --values values.yaml --set-string "image.tag=$tag" --wait --timeout 180s "$@"
}

rolled_out() { kube rollout status "deployment/$RELEASE" --timeout 180s >/dev/null; }

generated_secrets() { kube get secret "$RELEASE-generated" --output 'jsonpath={.data}' | sha256sum; }

bootstrap_key() { kube get secret "$RELEASE-generated" --output 'jsonpath={.data.bootstrap-key}' | base64 --decode; }

# The gateway's own program as its client, through the Service by its name.
cli() { inside env MCPPROXY_URL="http://$RELEASE:8080" MCPPROXY_API_KEY="$api_key" /run/gateway/mcpproxy "$@"; }

# Tenant, server and keys from a file; sets agent_keys and auditor_key.
set_up_tenant() {
  local api_key
  api_key="$(bootstrap_key)"
  cli apply --file tenant.yaml --keys-out "$STATE/keys.jsonl" >"$LOGS/apply.log"
  agent_keys="$(key_of agent-1; key_of agent-2)"
  auditor_key="$(key_of auditor)"
  api_key="$agent_keys"
  api_key="${api_key%%$'\n'*}"
  wait_for 60 "the server's tools" finds_tools
}

finds_tools() { cli tools search 'write an item' --output json | grep --quiet write_item; }

key_of() {
  python3 -c 'import json, sys
for line in open(sys.argv[1]):
    key = json.loads(line)
    if key["name"] == sys.argv[2]: print(key["key"])' "$STATE/keys.jsonl" "$1"
}

# The processes of replicas, as pids within the cluster's namespace.
gateway_pids() { inside pgrep --exact mcpproxy; }

# pid_of POD: of its gateway, told by its cgroup.
pid_of() {
  local uid pid
  uid="$(kube get pod "$1" --output 'jsonpath={.metadata.uid}')"
  for pid in $(gateway_pids); do
    if inside grep --quiet "pod$uid" "/proc/$pid/cgroup"; then echo "$pid"; fi
  done
}

any_pod() { kube get pods --selector app.kubernetes.io/component=gateway --output 'jsonpath={.items[0].metadata.name}'; }

# What the kernel says of a replica, rather than what was asked for.
check_confinement() {
  local pid expected found
  pid="$(gateway_pids | head -n 1)"
  found="$(inside awk '/^(Uid|CapBnd|NoNewPrivs|Seccomp):/ { print $1, $2 }' "/proc/$pid/status" | sort | tr '\n' ' ')"
  expected='CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 Uid: 10001 '
  [[ "$found" == "$expected" ]] || die "a replica runs as $found, not as $expected"
  inside awk '$5 == "/" { print $6 }' "/proc/$pid/mountinfo" | grep --quiet '^ro,' || die "a replica's root can be written"
}

check_metrics() {
  local address
  address="$(kube get pod "$(any_pod)" --output 'jsonpath={.status.podIP}')"
  inside curl --silent --fail --max-time 5 "http://$address:9090/metrics" | grep --quiet '^# TYPE' ||
    die "a pod's /metrics says nothing"
}

# Everything of the release but the generated keys, which are kept for the next install.
left_behind() {
  local kinds=deployments,replicasets,pods,jobs,services,endpoints,secrets,configmaps,serviceaccounts,ingresses
  kinds+=,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers
  {
    kube get "$kinds" --selector "app.kubernetes.io/instance=$RELEASE" --output name
    kube get secrets --output name | grep 'helm.release' || true
  } | grep --invert-match --line-regexp "secret/$RELEASE-generated" || true
}
