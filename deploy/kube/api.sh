#!/usr/bin/env bash
# api.sh PORT ETCD_PORT PEER_PORT: an API server with its etcd, on loopback, as any
# user. It judges resources and stores them, and runs none: there are no nodes and no
# controllers. In the foreground: its end, and that of its parent, ends both.
set -euo pipefail
port=$1 store=http://127.0.0.1:$2 peers=http://127.0.0.1:$3
. "$(dirname "$0")/env.sh"
"$here/build.sh"
export PATH=$bin:$PATH
mkdir -p "$KUBE_STATE/log"
KUBE_PORT=$port "$here/pki.sh" "$pki" 127.0.0.1 "$service_ip"

setpriv --pdeathsig KILL etcd --data-dir "$KUBE_STATE/etcd" --listen-client-urls "$store" --advertise-client-urls "$store" \
  --listen-peer-urls "$peers" --initial-advertise-peer-urls "$peers" --initial-cluster "default=$peers" \
  --log-level warn --unsafe-no-fsync > "$KUBE_STATE/log/etcd.log" 2>&1 &
# The mode of the whole cluster (world.sh) but for nodes.
exec setpriv --pdeathsig KILL kube-apiserver --etcd-servers="$store" --bind-address=127.0.0.1 --secure-port="$port" \
  --service-cluster-ip-range="$service_cidr" --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
  --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
  --authorization-mode=RBAC --allow-privileged > "$KUBE_STATE/log/apiserver.log" 2>&1
