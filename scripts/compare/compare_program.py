"""What the comparisons on this machine share: the environment, and flags."""
import argparse
import os
import platform
import shlex
import subprocess
import sys

from compare_cases import CORES


def cpu_model():
    names = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else platform.machine()


def environment(lockstep):
    """Returns what is known of the machine and the versions. lockstep: path of the program."""
    import torch
    version = subprocess.run([lockstep, "--version"], capture_output=True, text=True, check=True).stdout
    return dict(command=shlex.join(sys.argv), lockstep=version.splitlines()[0], python=platform.python_version(),
                torch=torch.__version__, cpu=cpu_model(), cores=CORES, load_before=os.getloadavg()[0],
                kernel=platform.release())


def print_environment(env):
    print(f"# {env['lockstep']} against Python {env['python']}, torch {env['torch']}")
    print(f"# command: {env['command']}")
    print(f"# cpu: {env['cpu']}, {env['cores']} cores, load {env['load_before']:.2f} before the start")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def add_data_flag(parser):
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_DATA", "/usr/share/datasets/fashion-mnist"),
                        metavar="DIR")


def add_json_flags(parser):
    parser.add_argument("--json", metavar="FILE", help="write the figures of every repetition there")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing FILE")
