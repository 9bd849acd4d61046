#!/usr/bin/env python3
"""A cluster of network namespaces on this machine, as a scenario describes it: hosts, switches, cables of their rates.

Each GPU of the scenario is a host, with an address and the cables that the simulator gives it. Any program can run
there, not only the lab's. A cluster lives as long as the process that holds it and has no files: it is found by the
name of a socket, which that process alone can have. Nothing outlives it, however it ends.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True  # or importing would leave files

import namespaces  # noqa: E402
import network  # noqa: E402

NAME = f"trainyard-cluster-{os.geteuid()}"
CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
WRONG_USAGE, NO_NETWORK, NO_MACHINE = 2, 3, 4
ANSWER_S = 30           # in which a cluster of a few hundred hosts is built
GRACE_S = 5             # from being told to end to being killed
FORWARDED = 10e9 / 8    # bytes per second that a machine passes on without its processors being the limit
EXAMPLES = """
examples:
  cluster.py up cluster.json             build it and return; it stays up
  cluster.py exec h0 iperf3 -s -D        run something on a host
  cluster.py exec h1 ping 10.9.0.1
  cluster.py down                        take it down; nothing is left
  cluster.py up cluster.json -- bash     for as long as a command runs; in it: ip netns exec h0 ping 10.9.0.2

exit codes: 0 done, 2 wrong usage, 3 no network that can be built (the scenario's fault), 4 this machine cannot do it
(it says what is missing), or one is up already, or none is; exec, and up with a command, end as the command does.
"""


def parsed(words):
    """Options of the command line. What follows the first -- of `up` is the command, whatever it looks like."""
    command = []
    if words[:1] == ["up"] and "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1:]
        if not command:
            command = None
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="cluster.py", description=__doc__, epilog=EXAMPLES, formatter_class=form)
    actions = parser.add_subparsers(dest="action", required=True, metavar="{up,exec,down}")
    up = actions.add_parser(
        "up", help="build the cluster of a scenario", formatter_class=form, usage="cluster.py up SCENARIO [--trainyard "
        "PROGRAM] [--fifo] [-- COMMAND...]", description="Builds the cluster of a scenario and returns when it stands. "
        "With a COMMAND behind --, it stands for as\nlong as the command runs, and ends with it. The command sees all "
        "hosts: ip netns exec h0 ... works there.")
    up.add_argument("scenario", metavar="SCENARIO", help="a scenario of trainyard, of which only the cluster counts")
    up.add_argument("--trainyard", metavar="PROGRAM", default=CHECKOUT / "build" / "release" / "trainyard",
                    help="the program that reads it (default: build/release/trainyard of this checkout)")
    up.add_argument("--fifo", action="store_true",
                    help="one queue at each end of a cable, first in, first out, instead of one for each pair of hosts")
    there = actions.add_parser(
        "exec", help="run a command on a host of the cluster that is up", usage="cluster.py exec HOST COMMAND...",
        description="Runs a command on a host (h0, h1, ...) or a switch (s0, ...) of the cluster that is up, in the "
        "folder that you are in. Ends as the command does.")
    there.add_argument("host", metavar="HOST")
    there.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    actions.add_parser("down", help="take down the cluster that is up", usage="cluster.py down",
                       description="Takes down the cluster that is up, with all that runs on it. Returns when it is "
                       "gone.")
    options = parser.parse_args(words)
    if options.action == "up":
        options.command = command
        if command is None:
            up.error("-- is followed by no command; leave it out for a cluster that stays up")
    if options.action == "exec":
        if options.command[:1] == ["--"]:
            del options.command[0]
        if not options.command:
            there.error("no command is given; an example: cluster.py exec h0 ip address")
    return options


def failed(code, message):
    """Tells on standard error and returns the exit code."""
    print(f"cluster: {message}", file=sys.stderr)
    return code


def in_bits(bytes_per_s):
    """A rate as cables are sold."""
    value, unit = bytes_per_s * 8, ""
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1)):
        if value >= size:
            value /= size
            break
    return f"{value:.4g} {unit}"


def counted(number, one, more):
    return f"{number} {one if number == 1 else more}"


def described(built, fair, netem, refused):
    """What a user wants to know of a cluster that stands, as lines."""
    lines = [f"{counted(len(built.hosts), 'host', 'hosts')}, {counted(len(built.switches), 'switch', 'switches')}, "
             + ("a queue for each pair of hosts" if fair else "one queue at each end of a cable")]
    lines += [f"  {host:<4} {namespaces.address(number)}" for number, host in enumerate(built.hosts)]
    lines.append("cables")
    said = {ends: in_bits(cable.rate_bytes_per_s)
            + (f", {cable.latency_s * 1e6:.4g} us" if cable.latency_s and netem else "")
            for ends, cable in built.cables.items()}
    rows = {}
    for (a, b), words in said.items():
        if said[(b, a)] == words:
            rows[" - ".join(sorted((a, b)))] = words + " each way"
        else:
            rows[f"{a} -> {b}"] = words
    width = max(map(len, rows))
    lines += [f"  {way:<{width}}  {row}" for way, row in rows.items()]
    if not netem and any(cable.latency_s for cable in built.cables.values()):
        lines.append("no netem: cables have their rate, not their latency (the kernel lacks sch_netem)")
    if any(cable.rate_bytes_per_s > FORWARDED for cable in built.cables.values()):
        lines.append(f"cables of more than {in_bits(FORWARDED)} carry what this machine's processors manage")
    lines += [f"no {setting}" for setting in refused]
    return lines


def settings_of(cluster):
    """Gives every host the settings of TCP that the lab measures with; returns those that were refused."""
    refused = set()
    for host in cluster.network.hosts:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(theirs, "\n".join(namespaces.enter(host)).encode())
            finally:
                os._exit(0)
        os.close(theirs)
        with open(ours, encoding="utf-8") as told:
            refused.update(told.read().splitlines())
        os.waitpid(child, 0)
    return sorted(refused)


def answered(held, text):
    """Tells everybody who asks by the socket what the cluster has, until the process ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread is to be woken by them
    while True:
        with contextlib.suppress(OSError):
            asking = held.accept()[0]
            with asking:
                asking.sendall(text)


def run(command):
    """Runs the command of `up` and returns its exit code. A terminal speaks to it and not to us."""
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        return failed(126 if isinstance(error, PermissionError) else 127, f"{command[0]}: {error.strerror}")

    def tell(*unused):
        with contextlib.suppress(ProcessLookupError):  # Popen's own send_signal would take what we wait for
            for number in (signal.SIGTERM, signal.SIGHUP):  # an interactive shell hears only the second
                os.kill(process.pid, number)
        signal.alarm(GRACE_S)

    def late(*unused):
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGTERM, tell)
    while True:  # process 1 buries the orphans of the others, too
        ended, status = os.wait()
        if ended == process.pid:
            break
    signal.alarm(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def held_up(built, options, held, stands):
    """The work in the sandbox: the cluster, as long as the command runs or nobody takes it down."""
    for tool in ("ip", "tc", "bridge"):
        if not shutil.which(tool):
            raise namespaces.NamespaceError(f"{tool} was not found: install iproute2")
    fair, netem = not options.fifo, namespaces.has_netem()
    with namespaces.Cluster(built, fair=fair, delay=netem) as cluster:
        lines = described(built, fair, netem, settings_of(cluster))
        held.listen()  # once more: whoever asks now is told of this process
        state = json.dumps({"hosts": built.hosts, "switches": built.switches}).encode()
        threading.Thread(target=answered, args=(held, state), daemon=True).start()
        stands(lines)
        if options.command:
            return run(options.command)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans vanish
        try:
            while True:
                signal.pause()
        except KeyboardInterrupt:
            return 0
        finally:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def in_foreground(built, options, held):
    """For as long as a command runs."""
    def stands(lines):
        print("\n".join(["cluster: " + lines[0], *lines[1:], "on a host: ip netns exec h0 COMMAND..."]),
              file=sys.stderr, flush=True)

    def work():
        try:
            return held_up(built, options, held, stands)
        except namespaces.NamespaceError as error:
            return failed(NO_MACHINE, error)
    try:
        return namespaces.sandboxed(work)
    except namespaces.NamespaceError as error:
        return failed(NO_MACHINE, error)
    finally:
        held.detach()  # the name is free when this process has ended, and not before


def _detached(built, options, held, pipe):
    """The process that stays: it leaves the terminal and tells by the pipe, once, what has become of it."""
    def tell(**what):
        with contextlib.suppress(BrokenPipeError):
            os.write(pipe, json.dumps(what).encode() + b"\n")

    def work():
        try:
            return held_up(built, options, held, lambda lines: tell(lines=lines))
        except (namespaces.NamespaceError, OSError, subprocess.SubprocessError) as error:
            tell(error=str(error))
            return NO_MACHINE
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    held.listen()  # once more: whoever takes it down now must find this process
    try:
        return namespaces.sandboxed(work)
    except (namespaces.NamespaceError, OSError) as error:
        tell(error=str(error))
        return NO_MACHINE


def in_background(built, options, held):
    """Returns when the cluster stands, or does not."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ours)
            _detached(built, options, held, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    held.close()
    try:
        with open(ours, encoding="utf-8") as told:
            word = json.loads(told.readline() or '{"error": "it ended without a word"}')
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        return failed(130, "interrupted; nothing is up")
    if "error" in word:
        os.waitpid(child, 0)
        return failed(NO_MACHINE, word["error"])
    me = os.path.relpath(__file__)
    print("\n".join(["cluster: up, " + word["lines"][0], *word["lines"][1:], f"on a host: {me} exec h0 COMMAND...",
                     f"its end:   {me} down"]))
    return 0


def up(options):
    """Builds the cluster of a scenario."""
    held = namespaces.lock(NAME)
    if not held:
        return failed(NO_MACHINE, "one is up already; take it down first: cluster.py down")
    held.listen()
    try:
        built = network.of_scenario(options.trainyard, options.scenario)
    except network.NetworkError as error:
        return failed(NO_NETWORK, error)
    except OSError as error:
        return failed(NO_MACHINE, f"{options.trainyard}: {error.strerror}; build it (./dev build release) or name it "
                                  "with --trainyard")
    return (in_foreground if options.command else in_background)(built, options, held)


def asked():
    """Whom to ask about the cluster that is up: (its process, a connection to it), or None if none is."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.connect(f"\0{NAME}")
    except ConnectionRefusedError:
        peer.close()
        return None
    process, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user != os.geteuid():
        raise namespaces.NamespaceError(f"process {process} of user {user} has taken the name {NAME}")
    return process, peer


def entered(process):
    """Moves this process into the sandbox of another; its children are in its PID namespace, too."""
    kinds = {"user": namespaces.CLONE_NEWUSER, "pid": namespaces.CLONE_NEWPID, "mnt": namespaces.CLONE_NEWNS}
    if os.stat(f"/proc/{process}/ns/user").st_ino == os.stat("/proc/self/ns/user").st_ino:
        del kinds["user"]
    with contextlib.ExitStack() as stack:
        handles = [(stack.enter_context(open(f"/proc/{process}/ns/{name}", "rb")), kind)
                   for name, kind in kinds.items()]
        folder = os.getcwd()
        for handle, kind in handles:
            if namespaces.LIBC.setns(handle.fileno(), kind) < 0:
                raise namespaces.NamespaceError(f"the cluster of process {process} cannot be entered")
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")  # it lies below /run, which the cluster has of its own


def execute(options):
    """Runs a command on a host."""
    found = asked()
    if not found:
        return failed(NO_MACHINE, "none is up; build one first: cluster.py up SCENARIO")
    process, peer = found
    try:
        peer.settimeout(ANSWER_S)
        with peer, peer.makefile() as stream:
            state = json.loads(stream.read())  # waits for one that is being built
    except TimeoutError:
        return failed(NO_MACHINE, f"process {process}, which holds the cluster, does not answer; "
                                  "take it down: cluster.py down")
    except (OSError, ValueError):
        return failed(NO_MACHINE, "it has just gone down")
    if options.host not in state["hosts"] + state["switches"]:
        return failed(WRONG_USAGE, f"there is no {options.host}; hosts are h0 to {state['hosts'][-1]}" + (
            f", switches s0 to {state['switches'][-1]}" if state["switches"] else ""))
    entered(process)
    child = os.fork()
    if child == 0:
        namespaces.LIBC.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.environ["PATH"] = namespaces.tools_path()
        try:
            os.execvp("ip", ["ip", "netns", "exec", options.host, *options.command])
        except OSError as error:
            os._exit(failed(NO_MACHINE, f"ip: {error.strerror}; install iproute2"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells the command itself
    signal.signal(signal.SIGTERM, lambda *unused: os.kill(child, signal.SIGTERM))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def holders():
    """Processes that have the socket of the cluster: also those that are stopped, or have lost the one that answers."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as lines:
        sockets = {f"socket:[{words[6]}]" for words in map(str.split, lines) if words[7:] == [f"@{NAME}"]}
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has just ended, or is somebody else's
            files = f"/proc/{process}/fd"
            if any(os.readlink(f"{files}/{name}") in sockets for name in os.listdir(files)):
                found.append(int(process))
    return found


def signalled(number, processes):
    """Signals processes, and wakes those that are stopped."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
            os.kill(process, signal.SIGCONT)


def down():
    """Takes the cluster down; its name is free when its last process has ended."""
    began, told, was_up = time.monotonic(), None, False
    while True:
        held = namespaces.lock(NAME)
        if held:
            held.close()
            break
        was_up = True
        took = time.monotonic() - began
        if took > 3 * GRACE_S:
            return failed(NO_MACHINE, f"processes {', '.join(map(str, holders()))} do not end")
        if took > 2 * GRACE_S:
            signalled(signal.SIGKILL, holders())
        those = holders()
        found = asked() if told not in those else None
        if found:
            found[1].close()
            if found[0] in those:
                told = found[0]
                signalled(signal.SIGTERM, [told])
        signalled(signal.SIGCONT, those)
        time.sleep(0.1)
    print("cluster: down" if was_up else "cluster: none was up")
    return 0


def main():
    options = parsed(sys.argv[1:])
    try:
        return {"up": up, "exec": execute}[options.action](options) if options.action != "down" else down()
    except namespaces.NamespaceError as error:
        return failed(NO_MACHINE, error)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
