"""slurm.py PROGRAM: the same training under srun and from the page's batch script, in a SLURM of two nodes on this
machine. Then one of two processes is killed under srun, and the other one names it. The test starts its daemons in a
folder and on ports of its own, and ends them."""

import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

from processes import Running, environment, fail, free_port, run_test, skip, until
from training import (check_run, endless_training, hash_alone, lose_process_1, of_process_0, page_launcher, page_script,
                      training)

NEEDS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "squeue")
READY_WITHIN, STOPPED_WITHIN = 30, 20  # seconds
TIMEOUT = 60  # seconds; it does not matter
KILLED = 128 + signal.SIGKILL  # srun's code
WORLD, LISTS = "2 (SLURM), 2 replicas", "[cpu] + [cpu]"


def configuration(folder, host, ports):
    """Both nodes are this machine. The job's number, from which processes derive their port, is a random one: two tests
    at the same time do not use the same port."""
    return f"""
ClusterName=lockstep-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=2
FirstJobId={random.randrange(1, 1_000_000)}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=10 State=UP
"""


def different_ports(count):
    ports = set()
    while len(ports) < count:
        ports.add(free_port())
    return sorted(ports)


class Cluster:
    """Its daemons are children of this test: they stay in the foreground."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        self.variables = {"SLURM_CONF": f"{folder}/slurm.conf"}
        folder.chmod(0o755)  # munge demands that all can reach its socket
        for name in ("state", "n1", "n2"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        host = socket.gethostname().split(".")[0]
        (folder / "slurm.conf").write_text(configuration(folder, host, different_ports(3)))

    def start(self):
        socket_path = self.folder / "munge.socket"
        self.serve("munged", "--foreground", "--socket", socket_path, *(
            f"--{name}={self.folder}/munge.{end}"
            for name, end in (("key-file", "key"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))))
        self.until_ready(socket_path.exists)
        self.serve("slurmctld", "-D")
        for node in ("n1", "n2"):
            self.serve("slurmd", "-D", "-N", node)
        self.until_ready(lambda: self.idle_nodes() == ["n1", "n2"])

    def serve(self, *words):
        self.daemons.append(self.begin(*words))

    def ask(self, *words):
        """The sorted words of an answer; none if the controller does not answer."""
        try:
            result = subprocess.run(words, env=environment(**self.variables), capture_output=True, text=True,
                                    timeout=STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            return []
        return sorted(result.stdout.split())

    def jobs(self):
        return self.ask("squeue", "--noheader", "--states=pending,running,completing", "--format=%i")

    def idle_nodes(self):
        return self.ask("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N")

    def until_ready(self, ready):
        """A machine on which the daemons do not run lacks a right."""
        end = time.monotonic() + READY_WITHIN
        while not ready():
            ended = [daemon for daemon in self.daemons if daemon.process.poll() is not None]
            if ended or time.monotonic() > end:
                for daemon in self.daemons:
                    daemon.show()
                lines = (ended or self.daemons)[0].err.text.splitlines()
                skip(f"SLURM does not start here: {lines[-1] if lines else 'its daemons say nothing'}")
            time.sleep(.2)

    def begin(self, *words):
        return Running(words, **self.variables)

    def run(self, *words):
        return self.begin(*words).end()

    def stop(self):
        """Jobs first: each has a process that belongs to no daemon and outlives all."""
        if len(self.daemons) > 1:  # there is a controller
            self.ask("scancel", "--user=root")
            end = time.monotonic() + STOPPED_WITHIN
            while self.jobs() and time.monotonic() < end:
                time.sleep(.1)
        for daemon in reversed(self.daemons):
            daemon.stop()


def srun(cluster, program, weights):
    words = page_launcher("srun -N 2 -n 2")
    words = [words[0], "--label", *words[1:], program]
    out = cluster.run(*words, *training("cpu"))
    check_run(of_process_0(out, r" *(\d+):"), WORLD, LISTS, weights)
    running = cluster.begin(*words, *endless_training(TIMEOUT))
    lose_process_1(running, "SLURM_PROCID=1", signal.SIGKILL)
    running.end(KILLED)


def sbatch(cluster, program, weights):
    """The page's script, with a small training in place of its own."""
    command = f"srun {shlex.quote(program)} {shlex.join(training('cpu'))}"
    text, count = re.subn(r"^srun lockstep train\b.*$", lambda _: command, page_script("#SBATCH"), flags=re.M)
    if count != 1:
        fail(f"expected one 'srun lockstep train' in the page's script:\n{text}")
    script, log = cluster.folder / "train.sh", cluster.folder / "train.log"
    script.write_text(text)
    cluster.run("sbatch", f"--output={log}", script)
    until(lambda: not cluster.jobs(), "the end of the job")
    check_run(log.read_text(), WORLD, LISTS, weights)


def slurm(scratch, program):
    if os.geteuid() != 0:
        skip("SLURM's daemons need root")
    if missing := [name for name in NEEDS if not shutil.which(name)]:
        skip(f"there is no {missing[0]}; as root, scripts/setup.sh --tests installs SLURM")
    cluster = Cluster(scratch)
    try:
        cluster.start()
        weights = hash_alone(program, 2)
        srun(cluster, program, weights)
        sbatch(cluster, program, weights)
    finally:
        cluster.stop()


if __name__ == "__main__":
    run_test(slurm, sys.argv[1])
