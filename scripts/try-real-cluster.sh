#!/usr/bin/env bash
# The tour of a real Kubernetes behind Fairlead: `try-real-cluster.sh DIR [pytest arguments]`.
#
# DIR, or DIR/bin, has kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl of one version. Starts
# a control plane on loopback and a node in namespaces of its own (as root), connects them to a Fairlead of this
# checkout, walks through everything that people do with a cluster, and prints a table with what it measured.
set -euo pipefail
if [[ $# == 0 ]]; then
    echo "usage: $0 DIR [pytest arguments], where DIR/bin has kube-apiserver and its parts" >&2
    exit 2
fi
reference="$(cd "$1" && pwd)"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec make --no-print-directory test-reference REFERENCE="$reference" ARGS="${*:-}"
