"""two_hosts.py CASE PROGRAM: a process on each of two hosts. They are two network namespaces with names of their own,
joined by a cable (a veth pair) and without any other network.
  by_hand     the page's two commands give the weights of one process, on a cable of 1 Gbit/s
  torchrun    so does the page's torchrun; run this with a Python that has torch
  localhost   so does an operator of Kubernetes, which tells the first host MASTER_ADDR=localhost
  sharded     on a cable of 1 Gbit/s a step with --shard sends what one without it does, and what `bench scaling
              --predict` says: counted by the cable, and the weights are the same
  cable_cut   the cable is cut between two steps: both ends leave with code 10, and each names the other one. Before
              that one listens on the interface in GLOO_SOCKET_IFNAME, which leads nowhere, the other one on the
              address that it was given"""

import json
import os
import shutil
import subprocess
import sys
import time

from listeners import check_listeners, listeners_of
from processes import Running, environment, fail, run_test, skip, until
from training import SIZES, check_run, endless_training, hash_alone, once, page_commands, printed_hash, silent, training

FIRST, SECOND = "10.0.0.1", "10.0.0.2"  # as on the page
SPARE = "10.0.0.3"  # of the second host
APART = "10.0.0.4"  # of the first host, on an interface of its own
RATE = "1gbit"  # tc's word
INSIDE = "TWO_HOSTS_TEST"
TIMEOUT = 5  # seconds; processes must also start within this time of each other
# Seconds from there to the end: 2 for reports, 2 for an answer of the store, 1.5 that its host stays; the rest is for
# slow machines.
AFTER_TIMEOUT = 15


def as_first_host():
    """Runs this script again as root of a network of its own."""
    if INSIDE in os.environ:
        return
    for tool in ("unshare", "nsenter", "hostname", "ip"):
        if not shutil.which(tool):
            skip(f"there is no {tool}; as root, scripts/setup.sh --tests installs iproute2, and Debian has the others")
    words = ["unshare", "--net", "--uts", *(["--user", "--map-root-user"] if os.geteuid() != 0 else [])]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        skip(f"no right to make a network namespace: {tried.stderr.strip()}")
    os.execvpe(words[0], [*words, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def call(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environment())


def need(*words):
    result = call(*words)
    if result.returncode != 0:
        fail(f"{words}: {result.stderr}")
    return result.stdout


class Hosts:
    """This test is on the first host."""

    def __init__(self):
        self.holder = Running(["unshare", "--net", "--uts", "sleep", "infinity"])
        pid = self.holder.process.pid
        self.inside_second = ["nsenter", "--target", pid, "--net", "--uts"]
        until(lambda: all(self.is_apart(pid, kind) for kind in ("net", "uts")), "a second host")
        made = call("ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", pid)
        if made.returncode != 0:
            skip(f"no cable between two network namespaces: {made.stderr.strip()}")
        for place, name, address in (([], "first", FIRST), (self.inside_second, "second", SECOND)):
            need(*place, "hostname", name)
            need(*place, "ip", "address", "add", f"{address}/24", "dev", "cable")
            for link in ("lo", "cable"):
                need(*place, "ip", "link", "set", link, "up")

    def slow_down(self, rate):
        """Limits both directions of the cable. Returns why that is not possible here, or nothing."""
        if not shutil.which("tc"):
            return "there is no tc"
        for place in ([], self.inside_second):
            made = call(*place, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", "256kb",
                        "latency", "50ms")
            if made.returncode != 0:
                return made.stderr.strip()
        return ""

    @staticmethod
    def is_apart(pid, kind):
        return os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")

    def start(self, first, second):
        return [Running(first), Running([*self.inside_second, *second])]

    def stop(self):
        self.holder.stop()


def pair_of_page(start):
    commands = page_commands(start)
    if len(commands) != 2:
        fail(f"the page shows {len(commands)} commands that begin with '{start}', expected one for each host")
    return commands


def by_hand(hosts, program):
    if problem := hosts.slow_down(RATE):
        print(f"the cable is not limited to {RATE}: {problem}")
    words = [[program, *training("cpu"), *command[2:]] for command in pair_of_page("lockstep train --rank")]
    first, second = [process.end() for process in hosts.start(*words)]
    check_run(first, "2, 2 replicas", "[cpu] + [cpu]", hash_alone(program, 2))
    if second:
        fail(f"the second host has printed {second}")


def torchrun(hosts, program):
    launch = [sys.executable, "-m", "torch.distributed.run"]
    words = [[*launch, *command[1:command.index("lockstep")], program, *training("cpu")]
             for command in pair_of_page("torchrun --nnodes")]
    first, second = [process.end() for process in hosts.start(*words)]
    check_run(first, "2 (torchrun), 2 replicas", "[cpu] + [cpu]", hash_alone(program, 2))
    if second:
        fail(f"the second host has printed {second}")


def sent_over_cable():
    """Bytes that the first host has sent."""
    shown = need("ip", "-json", "-statistics", "link", "show", "dev", "cable")
    return json.loads(shown)[0]["stats64"]["tx"]["bytes"]


def steps_sent(hosts, program, steps, shard):
    """Takes so many steps. Returns the bytes that the first host has sent, and the hash of the weights."""
    before = sent_over_cable()
    words = [program, *SIZES, "--epochs", "1000", "--limit-steps", steps, "--optimizer", "adamw", "--devices", "cpu",
             "--timeout", 60, "--shard", shard, "--print-weights-hash", "--master", f"{FIRST}:29500", "--world-size", 2]
    first, _ = [process.end() for process in hosts.start(*([*words, "--rank", rank] for rank in range(2)))]
    return sent_over_cable() - before, printed_hash(first)


def sharded(hosts, program):
    if problem := hosts.slow_down(RATE):
        print(f"the cable is not limited to {RATE}: {problem}")
    predicted = 4 * 129_068  # LeNet's weights: 2 (N-1)/N of them for two hosts
    hashes = set()
    for shard in ("none", "optimizer", "gradients"):
        (few, _), (many, weights) = [steps_sent(hosts, program, steps, shard) for steps in (20, 120)]
        hashes.add(weights)
        step = (many - few) / 100
        print(f"--shard {shard}: {step:,.0f} bytes per step on the cable, {step / predicted:.3f} of those predicted")
        # Ethernet's, TCP's and Gloo's headers, acknowledgements, and the votes of steps.
        if not predicted <= step <= 1.05 * predicted:
            fail(f"--shard {shard} sends {step:,.0f} bytes per step, {predicted:,} were predicted")
    if len(hashes) != 1:
        fail(f"the weights differ: {hashes}")


def localhost(hosts, program):
    words = [["env", f"RANK={rank}", "WORLD_SIZE=2", f"MASTER_ADDR={master}", "MASTER_PORT=29500", program,
              *training("cpu")] for rank, master in enumerate(("localhost", FIRST))]
    first, second = [process.end() for process in hosts.start(*words)]
    check_run(first, "2 (torchrun), 2 replicas", "[cpu] + [cpu]", hash_alone(program, 2))
    if second:
        fail(f"the second host has printed {second}")


def cable_cut(hosts, program):
    need(*hosts.inside_second, "ip", "address", "add", f"{SPARE}/24", "dev", "cable")
    need("ip", "link", "add", "apart", "type", "veth", "peer", "name", "nowhere")
    need("ip", "address", "add", f"{APART}/32", "dev", "apart")
    need("ip", "link", "set", "apart", "up")
    first, second = [[program, *endless_training(TIMEOUT), "--rank", rank, "--world-size", 2, "--master",
                      f"{FIRST}:29500"] for rank in range(2)]
    ends = hosts.start(["env", "GLOO_SOCKET_IFNAME=apart", *first], [*second, "--listen", SPARE])
    ends[0].wait_for("step 3/5")
    pids = [end.process.pid for end in ends]
    if listeners_of(pids[0]) != {FIRST, APART}:  # the store, and the channels
        fail(f"the first host listens on {listeners_of(pids[0])}")
    check_listeners([pids[1]], {SPARE})
    need("ip", "link", "set", "cable", "down")
    latest = time.monotonic() + TIMEOUT + AFTER_TIMEOUT
    for rank, end in enumerate(ends):
        end.end(10, max(0, latest - time.monotonic()))
        other = silent(1 - rank, 2, pids[1 - rank])
        once(end.err.text, rf"^lockstep: error: rank {rank} \(process {rank}\): {other}")


def two_hosts(_, case, program):
    hosts = Hosts()
    try:
        case(hosts, program)
    finally:
        hosts.stop()


if __name__ == "__main__":
    as_first_host()
    cases = {case.__name__: case for case in (by_hand, torchrun, localhost, sharded, cable_cut)}
    run_test(two_hosts, cases[sys.argv[1]], sys.argv[2])
