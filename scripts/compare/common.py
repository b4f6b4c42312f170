"""The comparisons share these: their flags, the machine, files of results, medians and Markdown. Needs only Python."""
import argparse
import importlib.util
import os
import platform
import runpy
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CORES = len(os.sched_getaffinity(0))


# ---- the machine and the versions


def torch_version(folder=None):
    """Returns torch's version without importing it, which takes seconds. folder: torch's; default: that of this Python."""
    path = Path(folder or importlib.util.find_spec("torch").submodule_search_locations[0]) / "version.py"
    return runpy.run_path(str(path))["__version__"] if path.exists() else "unknown"


def cpu_model():
    names = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else platform.machine()


def environment(lockstep):
    """Returns what is known of the machine and the versions. lockstep: path of the program."""
    version = subprocess.run([lockstep, "--version"], capture_output=True, text=True, check=True).stdout
    return dict(command=shlex.join(sys.argv), lockstep=version.splitlines()[0], python=platform.python_version(),
                torch=torch_version(), cpu=cpu_model(), cores=CORES, load_before=os.getloadavg()[0],
                kernel=platform.release())


def print_environment(env):
    print(f"# {env['lockstep']} against Python {env['python']}, torch {env['torch']}")
    print(f"# command: {env['command']}")
    print(f"# cpu: {env['cpu']}, {env['cores']} cores, load {env['load_before']:.2f} before the start")


# ---- flags


def number_from(least):
    """Returns the type of a flag that takes a whole number from `least`."""
    def parsed(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value
    parsed.__name__ = "whole number"  # argparse names it: "invalid whole number value: 'x'"
    return parsed


positive = number_from(1)


def list_of(known):
    """Returns the type of a flag that takes some of the known words, with commas; their order is that of `known`."""
    def parsed(text):
        given = text.split(",") if text else []
        if unknown := sorted(set(given) - set(known)):
            raise argparse.ArgumentTypeError(f"knows {', '.join(known)}; got {', '.join(unknown)}")
        return [word for word in known if word in given]
    return parsed


def add_data_flag(parser):
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_DATA", "/usr/share/datasets/fashion-mnist"),
                        metavar="DIR")


def add_output_flags(parser, markdown=True):
    if markdown:
        parser.add_argument("--markdown", metavar="FILE", help="write the table there too")
    parser.add_argument("--json", metavar="FILE", help="write the figures of every repetition there")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")


# ---- files of results: checked before the work, and written completely or not at all


def check_outputs(args):
    """Exits with 7 if a file of add_output_flags() cannot be written later, and with 2 if they are the same."""
    files = [(flag, Path(name)) for flag, name in (("--markdown", vars(args).get("markdown")), ("--json", args.json)) if name]
    if len({path.resolve() for _, path in files}) < len(files):
        print(f"error: --markdown and --json name the same file, {args.json}", file=sys.stderr)
        sys.exit(2)
    for flag, path in files:
        problem = ("is a folder" if path.is_dir() else
                   "exists, and --overwrite is not given" if path.exists() and not args.overwrite else
                   f"is in a folder that does not exist: {path.parent}" if not path.parent.is_dir() else
                   "is in a folder that cannot be written" if not os.access(path.parent, os.W_OK) else
                   "cannot be written" if path.exists() and not os.access(path, os.W_OK) else None)
        if problem:
            print(f"error: {flag} {path} {problem}", file=sys.stderr)
            sys.exit(7)


def write_whole(name, text):
    """Writes or replaces a file once all of it is on the disk. Throws OSError and leaves an old file as it was."""
    path = Path(name).resolve()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# ---- figures and tables


def median_and_range(values):
    return dict(median=statistics.median(values), min=min(values), max=max(values))


def range_text(values, form):
    """Returns "median (min - max)", each in this form of format()."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} - {max(values):{form}})"


def cell(value, form, unit=""):
    return "-" if value is None else format(value, form) + unit


def markdown(head, lines):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield "| " + " | ".join(line) + " |"
