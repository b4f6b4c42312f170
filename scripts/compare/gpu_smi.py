"""Reads what nvidia-smi says of a GPU while compare_gpu.py's cases run."""
import subprocess
import threading
import time

SETTLE_SECONDS = 1.0  # nvidia-smi reports the utilization of the last second or so


class Smi:
    """Reads nvidia-smi for one GPU; without nvidia-smi every reading is None."""

    QUERY = ["--query-gpu=utilization.gpu,memory.used,clocks.sm", "--format=csv,noheader,nounits"]

    def __init__(self, device):
        self.command = ["nvidia-smi", "-i", device.partition(":")[2] or "0", *self.QUERY]

    def read(self):
        """Returns dict(busy %, memory MiB, clock MHz), or None."""
        try:
            text = subprocess.run(self.command, capture_output=True, text=True, check=True).stdout
            return dict(zip(("busy", "memory", "clock"), map(float, text.split(","))))
        except (OSError, ValueError, subprocess.CalledProcessError):
            return None

    def memory(self):
        sample = self.read()
        return sample and sample["memory"]

    def while_busy(self, work):
        """Runs work(). Returns (mean busy %, mean clock) meanwhile, or (None, None)."""
        samples, done, start = [], threading.Event(), time.monotonic()

        def watch():
            while not done.is_set():
                sample = self.read()
                # A sample that ended after the work may be about the time after it.
                if sample and not done.is_set() and time.monotonic() - start > SETTLE_SECONDS:
                    samples.append(sample)
                done.wait(0.1)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            work()
        finally:
            done.set()
            watcher.join()
        if not samples:
            return None, None
        return tuple(sum(sample[key] for sample in samples) / len(samples) for key in ("busy", "clock"))
