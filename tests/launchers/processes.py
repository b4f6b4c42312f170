"""Processes that a test starts and watches. Nothing that they start, and no temporary file of theirs, outlives the
test."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

SKIPPED = 77
PATIENCE = 300  # seconds; what a test waits for comes much earlier
MARK = f"LAUNCHERS_TEST={uuid.uuid4().hex}"  # in the environment of all that this test starts
# The variables that a user, or a launcher around this test, has set.
FOREIGN = re.compile(r"LOCKSTEP_|LAUNCHERS_TEST|SLURM|SBATCH_|SRUN_|OMPI_COMM_|PMI|MPI_LOCAL|TORCHELASTIC_|OMP_|GOMP_|"
                     r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|MASTER_(ADDR|PORT)$")
started = []
scratch = pathlib.Path()  # the temporary folder of the test, and of all that it starts
os.environ["PATH"] += ":/usr/sbin:/sbin"  # which users do not have: there are `ip` and SLURM's daemons


def environment(**more):
    own = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    name, value = MARK.split("=")
    return {**own, name: value, "TMPDIR": str(scratch), **more}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def until(condition, what, seconds=PATIENCE):
    """Waits for something that no process of ours reports."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            fail(f"after {seconds} s: not {what}")
        time.sleep(.05)


def free_port():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


class Stream:
    """Keeps what a process writes to a pipe, read in a thread of its own."""

    def __init__(self, pipe):
        self.text, self.closed, self.changed = "", False, threading.Condition()
        self.thread = threading.Thread(target=self.read, args=(pipe,), daemon=True)
        self.thread.start()

    def read(self, pipe):
        for line in pipe:
            with self.changed:
                self.text += line
                self.changed.notify_all()
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class Running:
    def __init__(self, words, **more):
        self.words = [str(word) for word in words]
        self.process = subprocess.Popen(self.words, env=environment(**more), stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")
        self.out, self.err = Stream(self.process.stdout), Stream(self.process.stderr)
        started.append(self)

    def wait_for(self, pattern, stream=None):
        """Waits until this stream, by default standard output, has the pattern."""
        stream = stream or self.out
        with stream.changed:
            stream.changed.wait_for(lambda: stream.closed or re.search(pattern, stream.text, re.M), PATIENCE)
            if not re.search(pattern, stream.text, re.M):
                fail(f"'{self.words[0]}' has not printed '{pattern}'")

    def end(self, code=0, seconds=PATIENCE):
        """Waits for the end, which must come in this time and with this exit code. Returns standard output."""
        try:
            found = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            fail(f"'{self.words[0]}' still runs after {seconds} s")
        for stream in (self.out, self.err):
            stream.thread.join(seconds)
            if stream.thread.is_alive():
                fail(f"'{self.words[0]}' has ended, but a process of its own keeps its output open")
        if found != code:
            fail(f"'{self.words[0]}' ended with {found}, expected {code}")
        return self.out.text

    def stop(self):
        """Ends a process that serves others."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def show(self):
        print(f"--- {' '.join(self.words)}\nended with {self.process.poll()}\n"
              f"{self.out.text[-4000:]}--- its standard error\n{self.err.text[-4000:]}")


def marked(*variables):
    """The processes with this test's mark and these variables ("RANK=1") in their environment: ID and command line."""
    wanted, found = {MARK.encode(), *(text.encode() for text in variables)}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(words).decode(errors="replace")
        except OSError:  # it has ended, or is another user's
            continue
    return found


def process_with(*variables):
    """The ID of the only process with these variables."""
    found = list(marked(*variables))
    return found[0] if len(found) == 1 else fail(f"expected one process with {variables}, found {found}")


def variable_of(pid, name):
    """The value of a variable in a process's environment."""
    texts = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    return dict(text.partition("=")[::2] for text in texts)[name]


def none_left():
    """Waits until all that this test has started has ended."""
    end = time.monotonic() + 10
    while left := marked():
        if time.monotonic() > end:
            fail(f"left running: {left}")
        time.sleep(.05)


def end_all():
    for _ in range(100):
        left = marked()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(.05)


def run_test(test, *arguments):
    """Calls the test with the scratch folder and these arguments."""
    global scratch
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="lockstep-test-", ignore_cleanup_errors=True) as folder:
        scratch = pathlib.Path(folder)
        try:
            test(scratch, *arguments)
            none_left()
        except BaseException as stopped:
            if not isinstance(stopped, SystemExit) or stopped.code != SKIPPED:
                for running in started:
                    running.show()
            raise
        finally:
            end_all()
