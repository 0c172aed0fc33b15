#!/usr/bin/env bash
# Tests Fairlead with a real Kubernetes: `try-real-cluster.sh DIR [pytest arguments]`.
#
# DIR, or DIR/bin, has kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl of one version. The
# script starts a control plane on loopback and a node in its own namespaces (as root), connects them to a Fairlead of this
# checkout, runs the tests of everything that users do with a cluster, and prints a table with the measurements.
set -euo pipefail
if [[ $# == 0 ]]; then
    echo "usage: $0 DIR [pytest arguments], where DIR/bin has kube-apiserver and the other binaries" >&2
    exit 2
fi
reference="$(cd "$1" && pwd)"
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec make --no-print-directory test-reference REFERENCE="$reference" ARGS="${*:-}"
