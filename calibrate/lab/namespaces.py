"""Network namespaces of this machine as the hosts and switches of a network, in a sandbox that leaves nothing behind.

Everything lives in namespaces of a process tree whose first process is process 1 of a PID namespace: when that ends, by
whatever means, the kernel kills all others, and with the last process the network namespaces, their devices and the
private /run vanish. Root is not needed where the kernel allows user namespaces.
"""

import ctypes
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine(), -1)
LIBC = ctypes.CDLL(None, use_errno=True)
TOLD = (signal.SIGINT, signal.SIGTERM)  # by which work in the sandbox is told to end
SUBNET = "10.9"
QUEUE_PACKETS = 100000  # nothing is dropped: a sender's window is the limit, as on a lossless fabric
SEGMENT_BYTES = 15000   # the most that a sender hands to its device at once; what a queue gives a flow in turn
BURST = "16kb"          # what passes an idle link at once: a segment, or a link would begin with what it did not earn

# The least that TCP must not do for times to repeat: forget its window in a pause, remember another experiment's, or
# probe for the rate of a link that does not change.
SETTINGS = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0", "tcp_no_metrics_save": "1"}


class NamespaceError(Exception):
    """This machine does not let the lab build a network; the message says what is missing."""


def _checked(result, what):
    if result < 0:
        code = ctypes.get_errno()
        raise NamespaceError(f"{what}: {os.strerror(code)}")


def lock(name):
    """Holds a name of this machine until this process and its children end; None if another process has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(f"\0{name}")
    except OSError:
        held.close()
        return None
    held.set_inheritable(True)
    return held


def tools_path():
    """PATH with the folders of ip and tc, which Debian keeps from ordinary users."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def _write(path, text):
    with open(path, "w", encoding="ascii") as stream:
        stream.write(text)


def _unshare():
    uid, gid = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET
    if uid == 0 and LIBC.unshare(flags) == 0:
        return
    if LIBC.unshare(flags | CLONE_NEWUSER) < 0:
        code = ctypes.get_errno()
        cure = "run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian), " \
               "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0"
        raise NamespaceError(f"network namespaces are not allowed here ({os.strerror(code)}); {cure}")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")


def _mount(source, target, kind, flags, data=None):
    encoded = [text.encode() if text else None for text in (source, target, kind)]
    _checked(LIBC.mount(*encoded, flags, data.encode() if data else None), f"mount {target}")


def _private_mounts():
    ms_rec, ms_private = 0x4000, 0x40000
    _mount("none", "/", None, ms_rec | ms_private)
    _mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    os.mkdir("/run/netns")
    try:
        _mount("proc", "/proc", "proc", 0)
    except NamespaceError:
        pass  # a container may hide it; nothing here reads other processes there


def _die_with_parent(parent):
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _interrupted(*unused):
    """Once: neither an impatient second signal nor one that came on two ways disturbs what is tidied up."""
    for number in TOLD:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _first(work, mask, keeper, failed):
    """Process 1 of the sandbox. keeper: a pipe that ends with the process above, which cannot be asked from in here."""
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([keeper], [], [], 0)[0]:
            return 1
        _private_mounts()
    except (NamespaceError, OSError) as error:
        os.write(failed, str(error).encode())
        return 70
    os.close(failed)
    os.environ["PATH"] = tools_path()
    for number in TOLD:
        signal.signal(number, _interrupted)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return work()
    except KeyboardInterrupt:
        return 130
    except BaseException:  # nobody above sees it
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _keeper(work, driver, mask, failed):
    """The process that has the new namespaces and sees from outside how process 1 ends."""
    first = 0

    def tell(*unused):
        os.kill(first, signal.SIGTERM)
    try:
        _unshare()
        _die_with_parent(driver)
        ours, theirs = os.pipe()
        first = os.fork()
        if first == 0:
            os.close(theirs)
            os._exit(_first(work, mask, ours, failed))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the work hears it and ends in its own time
        signal.signal(signal.SIGTERM, tell)
    except (NamespaceError, OSError) as error:
        os.write(failed, str(error).encode())
        return 70
    os.close(failed)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    return code if code >= 0 else 128 - code


def _watched(child):
    """The status with which the child ends. What a process tells us by a signal it hears too; a terminal tells all."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        told = signal.sigwaitinfo({*TOLD, signal.SIGCHLD})
        if told.si_signo in TOLD and told.si_code <= 0:
            os.kill(child, signal.SIGTERM)


def sandboxed(work):
    """Runs work() in the sandbox and returns its exit code. Raises NamespaceError where it cannot be made.

    Two processes stand between the caller and the work: one that has the new namespaces and one that is process 1 in
    them. Each dies with the one above it. SIGINT and SIGTERM, sent to the caller or to all, are one KeyboardInterrupt
    of the work.
    """
    failed_read, failed_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    driver = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*TOLD, signal.SIGCHLD})
    try:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.close(failed_read)
                code = _keeper(work, driver, mask, failed_write)
            finally:
                os._exit(code)
        os.close(failed_write)
        message = os.read(failed_read, 4096).decode()
        os.close(failed_read)
        status = _watched(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if message:
        raise NamespaceError(message)
    return os.waitstatus_to_exitcode(status)


def address(host_number):
    """Of the host with this number in the network."""
    return f"{SUBNET}.{host_number // 250}.{host_number % 250 + 1}"


def _hardware_address(host_number):
    return f"02:00:00:00:{host_number // 256:02x}:{host_number % 256:02x}"


def _batch(program, lines, namespace):
    """Many commands of ip, tc or bridge at once."""
    if not lines:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".batch", dir="/run") as stream:
        stream.write("\n".join(lines) + "\n")
        stream.flush()
        done = subprocess.run([program, "-n", namespace, "-batch", stream.name], capture_output=True, text=True,
                              check=False)
    if done.returncode:
        raise NamespaceError(f"{program} in {namespace}: {done.stderr.strip()}")


def has_netem():
    """Whether the kernel can delay and lose packets; in a namespace of the sandbox."""
    subprocess.run(["ip", "netns", "add", "netem-test"], check=True)
    tried = subprocess.run(["tc", "-n", "netem-test", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
                           capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", "netem-test"], check=True)
    return tried.returncode == 0


def shaping(device, cable, pairs, addresses, fair, delay):
    """Commands of tc that give one direction of a cable its rate, and its latency where the kernel has netem.

    fair: a class of htb for each pair of hosts whose messages cross here, all with the same share and each up to the
    whole rate. Otherwise one queue, first in, first out.
    """
    rate = f"{cable.rate_bytes_per_s * 8}bit"
    lines = []
    last = f"pfifo limit {QUEUE_PACKETS}"
    if delay and cable.latency_s:
        last = f"netem limit {QUEUE_PACKETS} delay {cable.latency_s * 1e6:.0f}us"
    if not fair or len(pairs) < 2:
        lines.append(f"qdisc add dev {device} root handle 1: tbf rate {rate} burst {BURST} "
                     f"limit {QUEUE_PACKETS * 1500}")
        if delay and cable.latency_s:
            lines.append(f"qdisc add dev {device} parent 1:1 handle 10: {last}")
        return lines
    lines.append(f"qdisc add dev {device} root handle 1: htb default 2")
    lines.append(f"class add dev {device} parent 1: classid 1:1 htb rate {rate} ceil {rate} "
                 f"burst {BURST} cburst {BURST}")
    share = max(cable.rate_bytes_per_s * 8 // (len(pairs) + 1), 8)
    for number, pair in enumerate([None] + list(pairs), start=2):
        lines.append(f"class add dev {device} parent 1:1 classid 1:{number:x} htb rate {share}bit ceil {rate} "
                     f"burst {BURST} cburst {BURST} quantum {SEGMENT_BYTES}")
        lines.append(f"qdisc add dev {device} parent 1:{number:x} {last}")
        if pair:
            source, target = (addresses[host] for host in pair)
            lines.append(f"filter add dev {device} parent 1: protocol ip prio 1 u32 match ip src {source}/32 "
                         f"match ip dst {target}/32 flowid 1:{number:x}")
    return lines


class Cluster:
    """Hosts and switches as namespaces, cables as pairs of virtual Ethernet devices. Only inside of the sandbox."""

    def __init__(self, network, fair=True, delay=False):
        self.network, self.fair, self.delay = network, fair, delay
        self.addresses = {host: address(i) for i, host in enumerate(network.hosts)}

    def __enter__(self):
        try:
            self._up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *unused):
        self.down()

    def down(self):
        """Removes what was built; devices go with their namespaces."""
        for name in os.listdir("/run/netns"):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _up(self):
        network = self.network
        vertices = list(network.hosts) + list(network.switches)
        for vertex in vertices:
            made = subprocess.run(["ip", "netns", "add", vertex], capture_output=True, text=True, check=False)
            if made.returncode:
                raise NamespaceError(f"ip netns add: {made.stderr.strip()}")
        ports = {vertex: {} for vertex in vertices}
        for a, b in network.cables:
            if b in ports[a]:
                continue
            ports[a][b], ports[b][a] = self._device(a, ports), self._device(b, ports)
            _batch("ip", [f"link add {ports[a][b]} gso_max_size {SEGMENT_BYTES} type veth peer "
                          f"name {ports[b][a]} gso_max_size {SEGMENT_BYTES} netns {b}"], a)
        pairs = network.pairs_over()
        hops = {host: network.next_hops(host) for host in network.hosts}
        for vertex in vertices:
            self._configure(vertex, ports[vertex], hops)
            lines = []
            for neighbour, device in ports[vertex].items():
                cable = (vertex, neighbour)
                lines += shaping(device, network.cables[cable], pairs[cable], self.addresses, self.fair, self.delay)
            _batch("tc", lines, vertex)

    def _device(self, vertex, ports):
        """The name of a vertex's next port; a host with one cable needs no bridge and speaks by it."""
        if vertex in self.addresses and len(self.network.neighbours(vertex)) == 1:
            return "net0"
        return f"p{len(ports[vertex])}"

    def _configure(self, vertex, ports, hops):
        """Bridges forward by the table that is written here; nothing is learned or flooded, so rings are allowed."""
        network = self.network
        is_host = vertex in self.addresses
        lines = ["link set lo up"]
        bridged = not is_host or len(ports) > 1
        if bridged:
            lines.append(f"link add net0 gso_max_size {SEGMENT_BYTES} type bridge ageing_time 0 mcast_snooping 0")
        if is_host:
            own = network.hosts.index(vertex)
            lines.append(f"link set net0 address {_hardware_address(own)}")
            lines.append(f"addr add {self.addresses[vertex]}/16 dev net0")
        lines.append("link set net0 up")
        if bridged:
            for device in ports.values():
                lines.append(f"link set {device} master net0")
                lines.append(f"link set {device} type bridge_slave learning off flood off mcast_flood off")
                lines.append(f"link set {device} up")
        if is_host:
            lines += [f"neigh replace {self.addresses[host]} lladdr {_hardware_address(number)} dev net0 nud permanent"
                      for number, host in enumerate(network.hosts) if host != vertex]
        _batch("ip", lines, vertex)
        if bridged:
            _batch("bridge", [f"fdb replace {_hardware_address(number)} dev {ports[hops[host][vertex]]} master static"
                              for number, host in enumerate(network.hosts) if host != vertex], vertex)


def wake_promptly(real_time=True):
    """Lets this process and its children run as soon as a message has come, and returns how: "real time" where allowed,
    else "short slices" (Linux 6.12), else "as others". Without, a woken thread waits up to 4 ms for a running one."""
    if real_time:
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            return "real time"
        except PermissionError:
            pass
    slice_ns = 100_000
    # struct sched_attr: size, policy, flags, nice, priority, runtime (of an ordinary task its slice), deadline, period
    attributes = struct.pack("IIQiIQQQ", 48, 0, 0, 0, 0, slice_ns, 0, 0)
    if LIBC.syscall(SYS_SCHED_SETATTR, 0, attributes, 0) == 0:
        return "short slices"
    return "as others"


def enter(vertex):
    """Moves this process into a host, with the settings of TCP that the lab measures with; returns those refused."""
    with open(f"/run/netns/{vertex}", "rb") as handle:
        _checked(LIBC.setns(handle.fileno(), CLONE_NEWNET), f"setns {vertex}")
    LIBC.prctl(PR_SET_TIMERSLACK, 1)
    refused = []
    for name, value in SETTINGS.items():
        try:
            _write(f"/proc/sys/net/ipv4/{name}", value)
        except OSError as error:
            refused.append(f"{name}: {error.strerror}")
    return refused
