"""The sockets on which processes listen, from the kernel's tables."""

import ipaddress
import pathlib
import re

from processes import fail

LISTENS = "0A"


def address_in(text):
    """The address of /proc/net/tcp or tcp6: words of 32 bits, each with its first byte last."""
    parts = bytes.fromhex(text)
    address = ipaddress.ip_address(b"".join(parts[i:i + 4][::-1] for i in range(0, len(parts), 4)))
    return str(getattr(address, "ipv4_mapped", None) or address)


def sockets_of(pid):
    """The inodes of its open sockets."""
    inodes = set()
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", str(file.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
        if found:
            inodes.add(found[1])
    return inodes


def listeners_of(pid):
    addresses, own = set(), sockets_of(pid)
    for table in (pathlib.Path(f"/proc/{pid}/net/tcp"), pathlib.Path(f"/proc/{pid}/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            local, state, inode = fields[1], fields[3], fields[9]
            if state == LISTENS and inode in own:
                addresses.add(address_in(local.split(":")[0]))
    return addresses


def check_listeners(pids, allowed):
    """All together must listen, but on these addresses only."""
    found = {pid: listeners_of(pid) for pid in pids}
    heard = set().union(*found.values())
    if not heard or not heard <= set(allowed):
        fail(f"expected listeners on {allowed} only, found {found}")
