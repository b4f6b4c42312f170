"""Files of results: checked before the work, and written completely or not at all."""
import os
import sys
import tempfile
from pathlib import Path


def check_output(flag, name, overwrite):
    """Exits with 7 if `flag`'s file `name` cannot be written later. None means no file."""
    if not name:
        return
    path = Path(name)
    problem = ("is a folder" if path.is_dir() else
               "exists, and --overwrite is not given" if path.exists() and not overwrite else
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
