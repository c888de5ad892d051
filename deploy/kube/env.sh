# env.sh: where things are. Sourced by the other scripts.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KUBE_HOME=${KUBE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/granary-kube}   # binaries, kept between runs
KUBE_STATE=${KUBE_STATE:-$KUBE_HOME/state}                          # one cluster, removed by down.sh; a disk, not /run or /var/lib
KUBE_NODES=${KUBE_NODES:-1}
KUBE_CGROUP=${KUBE_CGROUP:-granary-kube}
bin=$KUBE_HOME/bin
export KUBECONFIG=$KUBE_STATE/pki/admin.kubeconfig
api_ip=10.99.0.1 service_cidr=10.96.0.0/16 service_ip=10.96.0.1 dns_ip=10.96.0.10 pod_cidr=10.244.0.0/16
node_ip() { echo "10.99.0.$((10 + $1))"; }
# The mount points of the control group hierarchies: one in version 2, one for each controller in version 1.
cgroups() { awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/self/mounts | sort -u; }
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
fail() { say "kube: $*"; exit 1; }
