"""The commands that a page shows."""

import re

BLOCKS = re.compile(r"^```sh\n(.*?)^```$", re.S | re.M)


def command_lines(text):
    """The lines of the blocks marked `sh`, each with its block's place in the text. A backslash at the end of a line
    continues it in the next one."""
    return [(block.start(), line) for block in BLOCKS.finditer(text)
            for line in block[1].replace("\\\n", " ").splitlines()]
