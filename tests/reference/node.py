"""One real node for a ControlPlane: containerd and a kubelet in network, mount and process namespaces of their own.

Needs root and Debian's containerd, runc, CNI plugins, nftables and a static busybox, from which the image is built:
no registry is used. The API server listens on loopback only; one veth pair connects it with the node, and ends with the
namespace. Ending the first process of the process namespace ends every container, mount and rule with it.
"""

import hashlib
import io
import json
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.harness.eventually import wait_until
from tests.reference.connected_cluster import IMAGE
from tests.reference.control_plane import (
    KUBELET_CLIENT,
    NODE_TOKEN,
    PROXY_TOKEN,
    START_SECONDS,
    ControlPlane,
    Network,
)
from tests.reference.packages import install_packages

NAME, LINK, TABLE = "node", "reference0", "fairlead-reference"
READY = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def running_node(plane: ControlPlane) -> Iterator[None]:
    """Starts a node, waits until it is Ready, and removes everything at the end."""
    assert plane.network is not None, "the control plane needs a Network to reach a kubelet"
    install_packages()
    _write_configuration(plane, plane.network)
    for group in _cgroup_roots():
        (group / NAME).mkdir(exist_ok=True)
    namespaces = ("--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc")
    process = plane.start("node", "unshare", *namespaces, "bash", str(plane.folder / "node.sh"))
    try:
        _join_networks(process.pid, plane)
        wait_until(lambda: _is_node_ready(plane), START_SECONDS, "the node is Ready")
        _allow_exec(plane)
        yield
    finally:
        process.send_signal(signal.SIGKILL)  # --kill-child ends the first process, and so all others
        process.wait()
        _remove_leftovers(plane.network)


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=not check)


def _join_networks(pid: int, plane: ControlPlane) -> None:
    network = plane.network
    assert network is not None
    outer = {Path(each).stat().st_ino for each in ("/proc/self/ns/net", *_namespace_files(network))}
    wait_until(
        lambda: Path(f"/proc/{pid}/ns/net").stat().st_ino not in outer,
        START_SECONDS,
        "the node has a network namespace",
    )
    _remove_leftovers(network)
    enter = network.enter
    _run(*enter, "ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _run(*enter, "ip", "addr", "add", f"{network.host}/30", "dev", LINK)
    _run(*enter, "ip", "link", "set", LINK, "up")
    for behind in (network.pods, network.services):  # else the API server's responses do not find the pods
        _run(*enter, "ip", "route", "replace", behind, "via", network.node)
    # The node and its pods reach the API server, and a Fairlead, which listen on loopback only.
    _run(*enter, "sh", "-c", f"echo 1 > /proc/sys/net/ipv4/conf/{LINK}/route_localnet")
    target = f"ip daddr {network.host} ip protocol tcp dnat to 127.0.0.1"
    chain = f"chain in {{ type nat hook prerouting priority dstnat; iifname {LINK} {target}; }}"
    _run(*enter, "nft", f"table ip {TABLE} {{ {chain}; }}")


def _namespace_files(network: Network) -> tuple[str, ...]:
    return (f"/run/netns/{network.namespace}",) if network.namespace else ()


def _remove_leftovers(network: Network) -> None:
    _run(*network.enter, "nft", "delete", "table", "ip", TABLE, check=False)
    _run(*network.enter, "ip", "link", "delete", LINK, check=False)


def _cgroup_roots() -> list[Path]:
    return (
        [CGROUPS]
        if (CGROUPS / "cgroup.controllers").exists()
        else [each for each in CGROUPS.iterdir() if each.is_dir()]
    )


def _kubectl(plane: ControlPlane, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [
        *plane.enter,
        str(plane.binaries / "kubectl"),
        "--kubeconfig",
        str(plane.folder / "admin.kubeconfig"),
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _is_node_ready(plane: ControlPlane) -> bool:
    return _kubectl(plane, "get", "node", NAME, "-o", READY).stdout == "True"


def _allow_exec(plane: ControlPlane) -> None:
    """Allows the user of the API server's client certificate to use the kubelet."""
    binding = ("create", "clusterrolebinding", "kubelet-client", f"--user={KUBELET_CLIENT}")
    result = _kubectl(plane, *binding, "--clusterrole=system:kubelet-api-admin")
    assert result.returncode == 0, result.stderr


# --- files -----------------------------------------------------------------------------------------------------------


def _write_configuration(plane: ControlPlane, network: Network) -> None:
    at = plane.folder
    for name in ("cni", "containerd", "kubelet", "varlog", "varcni", "sys"):
        (at / name).mkdir(exist_ok=True)
    (at / "kubelet.kubeconfig").write_text(plane.kubeconfig(NODE_TOKEN, network.host))
    (at / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet_configuration(at, network)))
    (at / "containerd.toml").write_text(_CONTAINERD.format(at=at))
    (at / "cni" / "10-bridge.conflist").write_text(json.dumps(_pod_network(network)))
    _write_image(at / "busybox.tar", IMAGE, "/bin/sh")
    _write_image(at / "pause.tar", "localhost/pause:1", "/bin/sleep", "2147483647")
    (at / "proxy.kubeconfig").write_text(plane.kubeconfig(PROXY_TOKEN, network.host))
    (at / "proxy.yaml").write_text(yaml.safe_dump(_proxy_configuration(at, network)))
    programs = {name.replace("-", "_"): plane.binaries / name for name in ("kubelet", "kube-proxy")}
    (at / "node.sh").write_text(_NODE.format(at=at, name=NAME, node=network.node, host=network.host, **programs))


def _kubelet_configuration(at: Path, network: Network) -> dict[str, Any]:
    return {
        **{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"},
        **{"address": network.node, "readOnlyPort": 0, "resolvConf": "", "oomScoreAdj": 0},
        **{"failCgroupV1": False, "failSwapOn": False, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{NAME}"},
        "containerRuntimeEndpoint": f"unix://{at}/containerd.sock",
        **{"tlsCertFile": f"{at}/kubelet.crt", "tlsPrivateKeyFile": f"{at}/kubelet.key"},
        **{"volumePluginDir": f"{at}/plugins", "makeIPTablesUtilChains": False, "nodeStatusUpdateFrequency": "5s"},
        "authorization": {"mode": "Webhook"},
        "authentication": {
            **{"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
            "x509": {"clientCAFile": f"{at}/ca.crt"},
        },
        "evictionHard": {"memory.available": "64Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        **{"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99},
    }


def _proxy_configuration(at: Path, network: Network) -> dict[str, Any]:
    """Pods reach services by their addresses; also the API server, as the control plane of a virtual cluster does."""
    return {
        **{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables"},
        "clientConnection": {"kubeconfig": f"{at}/proxy.kubeconfig"},
        **{"hostnameOverride": NAME, "clusterCIDR": network.pods, "oomScoreAdj": 0},
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _pod_network(network: Network) -> dict[str, Any]:
    ipam = {"type": "host-local", "ranges": [[{"subnet": network.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def import_image(plane: ControlPlane, name: str, layer: bytes, *command: str) -> None:
    """Gives a running node an image with this file system, and this command."""
    path = plane.folder / "imported.tar"
    _write_image(path, name, *(command or ("/bin/sh",)), layer=layer)
    import_archive(plane, path)
    path.unlink()


def import_archive(plane: ControlPlane, path: Path) -> None:
    """Gives a running node the images of an archive, as podman and docker save them."""
    _run("ctr", "-a", f"{plane.folder}/containerd.sock", "-n", "k8s.io", "images", "import", str(path))


def _write_image(path: Path, name: str, *command: str, layer: bytes = b"") -> None:
    """Writes an image of one layer for `ctr images import`, by default busybox with a link for each of its tools."""
    layer = layer or busybox_layer()
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    config = {
        **{"architecture": arch, "os": "linux"},
        "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "manifest.json", json.dumps(manifest).encode())
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "layer.tar", layer)


def build_layer(programs: Mapping[str, Path]) -> bytes:
    """busybox with more programs, by their paths in the image."""
    buffer = io.BytesIO(busybox_layer())
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        for path, program in programs.items():
            archive.add(program, path)
    return buffer.getvalue()


def busybox_layer() -> bytes:
    program = shutil.which("busybox")
    assert program is not None
    tools = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        _add(archive, "bin/busybox", Path(program).read_bytes(), 0o755)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        for tool in tools:
            if tool != "busybox":
                link = tarfile.TarInfo(f"bin/{tool}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


_CONTAINERD = """
version = 2
root = "{at}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
    "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
]
[grpc]
address = "{at}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{at}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{at}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""

# The kubelet sets some kernel parameters, which are the whole machine's: it gets files of its own to write them to.
_NODE = """
set -e
hostname {name}
mount --make-rshared /
mount -t tmpfs -o mode=755 run /run
mkdir -p /run/netns /var/lib/kubelet /var/lib/cni
mount --bind {at}/kubelet /var/lib/kubelet
mount --bind {at}/varlog /var/log
mount --bind {at}/varcni /var/lib/cni
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
    file={at}/sys/$(basename ${{setting%=*}})
    echo ${{setting#*=}} > "$file"
    mount --bind "$file" /proc/sys/${{setting%=*}}
done
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip addr add {node}/30 dev eth0
ip link set eth0 up
ip route add default via {host}
echo 1 > /proc/sys/net/ipv4/ip_forward
containerd --config {at}/containerd.toml > {at}/containerd.log 2>&1 &
until ctr -a {at}/containerd.sock version >/dev/null 2>&1; do sleep 0.1; done
for image in pause busybox; do ctr -a {at}/containerd.sock -n k8s.io images import {at}/$image.tar; done
if [ -x {kube_proxy} ]; then
    (while :; do {kube_proxy} --config={at}/proxy.yaml >> {at}/proxy.log 2>&1 || true; sleep 1; done) &
fi
exec {kubelet} --config={at}/kubelet.yaml --kubeconfig={at}/kubelet.kubeconfig \\
    --hostname-override={name} --node-ip={node}
"""
