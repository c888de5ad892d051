# env.sh: where things are. Sourced by the other scripts.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KUBE_HOME=${KUBE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/granary-kube}   # binaries, kept between runs
export KUBE_STATE=${KUBE_STATE:-$KUBE_HOME/state}                   # one cluster, removed by down.sh; a disk, not /run or /var/lib
KUBE_NODES=${KUBE_NODES:-1}
export KUBE_TIMEOUT=${KUBE_TIMEOUT:-120}                            # seconds until it is ready
KUBE_CGROUP=${KUBE_CGROUP:-granary-kube-${KUBE_STATE##*/}}
# The programs of these sources. Old ones may be deleted. The folder go was src once: build.sh counts with that name, so
# that builds of the same sources are still found. At the next change of the sources sed may go.
build=$KUBE_HOME/build-$({ cat "$here"/go/go.* "$here"/go/*/*.go; sed 's|^# go/)|# src/)|; s|"$here/go"|"$here/src"|' "$here/build.sh"; } | sha256sum | cut -c 1-12)
bin=$build/bin
pki=$KUBE_STATE/pki
export KUBECONFIG=$pki/admin.kubeconfig
api_ip=10.99.0.1 service_cidr=10.96.0.0/16 service_ip=10.96.0.1 dns_ip=10.96.0.10 pod_cidr=10.244.0.0/16
node_ip() { echo "10.99.0.$((10 + $1))"; }
# The mount points of the control group hierarchies: one in version 2, one for each controller in version 1.
cgroups() { awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/self/mounts | sort -u; }
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
fail() { say "kube: $*"; exit 1; }
