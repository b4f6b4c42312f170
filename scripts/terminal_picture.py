#!/usr/bin/env python3
"""terminal_picture.py PATTERN PICTURE.svg COMMAND...: runs the command in a terminal of 80 x 24 (tmux) until a line of
the screen matches PATTERN, and draws the screen as an SVG file. The README's picture:

  scripts/terminal_picture.py 'epoch  8/10 .* 70%' docs/terminal.svg ./scripts/run.sh train --seed 2
"""

import html
import re
import shlex
import subprocess
import sys
import time
import uuid

COLUMNS, ROWS = 80, 24
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14  # of a character, and around the screen, in pixels
COLORS = {"36": "#39c5cf", "32": "#56d364", "31": "#ff7b72", "33": "#e3b341"}
FOREGROUND, BACKGROUND = "#d0d7de", "#0d1117"
BRAILLE = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]  # column and row of each bit's dot
ESCAPE = r"\x1b\[[0-9;]*m"
DRAWN = "[\u2588-\u258f\u2800-\u28ff]"  # many fonts lack these characters
SECONDS = 600


def tmux(server, *words):
    return subprocess.run(["tmux", "-u", "-L", server, "-f", "/dev/null", *words], check=True, capture_output=True,
                          encoding="utf-8").stdout


def screen(pattern, command):
    """The screen with its escape sequences, once one of its lines matches."""
    server = uuid.uuid4().hex
    tmux(server, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), f"{shlex.join(command)}; read -r _")
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = tmux(server, "capture-pane", "-e", "-p").rstrip("\n")
            if re.search(pattern, re.sub(ESCAPE, "", found)):
                return found
            time.sleep(.1)
        sys.exit(f"after {SECONDS} s no line matches '{pattern}'")
    finally:
        tmux(server, "kill-server")


def pieces(text):
    """(row, column, text, colour) of each word of one colour. Bars and the dots of curves come one by one."""
    color = FOREGROUND
    for row, line in enumerate(text.splitlines()):
        column = 0
        for part in re.split(f"({ESCAPE})", line):
            if part.startswith("\x1b"):
                color = COLORS.get(part[2:-1], FOREGROUND)
                continue
            for found in re.finditer(f"{DRAWN}|(?:(?!{DRAWN})\\S)+", part):
                yield row, column + found.start(), found[0], color
            column += len(part)


def drawn(x, y, text, color):
    code = ord(text[0])
    if 0x2588 <= code <= 0x258F:  # a block of 8/8 to 1/8 of the width
        width = WIDTH * (0x2590 - code) / 8 + .3
        return f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.2f}" height="{HEIGHT - 5}" fill="{color}"/>'
    if 0x2800 <= code <= 0x28FF:
        dots = [at for bit, at in enumerate(BRAILLE) if code - 0x2800 >> bit & 1]
        return "".join(f'<circle cx="{x + WIDTH * (i + .5) / 2:.1f}" cy="{y + HEIGHT * (j + .5) / 4:.1f}" r="1.3" '
                       f'fill="{color}"/>' for i, j in dots)
    return (f'<text x="{x:.1f}" y="{y + HEIGHT - 5}" fill="{color}" textLength="{len(text) * WIDTH:.1f}">'
            f'{html.escape(text)}</text>')


def picture(text):
    width, height = 2 * MARGIN + COLUMNS * WIDTH, 2 * MARGIN + len(text.splitlines()) * HEIGHT
    body = "\n".join(drawn(MARGIN + column * WIDTH, MARGIN + row * HEIGHT, word, color)
                     for row, column, word, color in pieces(text))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
            f'height="{height}" font-size="14"\n'
            f'  font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">\n'
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n{body}\n</svg>\n')


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    pattern, path, *command = sys.argv[1:]
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture(screen(pattern, command)))


if __name__ == "__main__":
    main()
