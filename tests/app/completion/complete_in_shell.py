#!/usr/bin/env python3
"""complete_in_shell.py PROGRAM bash|zsh: types the beginning of command lines and a tab into a real, interactive shell
that has read `lockstep completion SHELL`, and compares what the shell makes of them. Exit code 77: no such shell."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

PROGRAM, SHELL = sys.argv[1:]
LIMIT = 60  # seconds without output, for a shell that hangs
MARK = "@@"  # typed after the tab: what stands before it on the line is complete

# The text that is typed, and what the line then holds. A completion that is the only one ends with a blank.
LINES = {
    "lockstep tr": "lockstep train ",
    "lockstep train --prec": "lockstep train --precision ",
    "lockstep train --precision bf": "lockstep train --precision bf16 ",
    "lockstep train --precision=bf": "lockstep train --precision=bf16 ",
    "lockstep train --recipe res": "lockstep train --recipe resnet18-",
    "lockstep train --recipe resnet18-fl": "lockstep train --recipe resnet18-fleet ",
    "lockstep train --quiet --progre": "lockstep train --quiet --progress ",
    "lockstep train --epochs 2 --kernels di": "lockstep train --epochs 2 --kernels direct ",
    "lockstep train --epochs pre": "lockstep train --epochs pre",
    "lockstep bench sc": "lockstep bench scaling ",
    "lockstep bench allreduce --allreduce tw": "lockstep bench allreduce --allreduce two_shot ",
    "lockstep help bench pa": "lockstep help bench partition ",
    "lockstep launch -n au": "lockstep launch -n auto ",
    "lockstep launch -n 2 -- tr": "lockstep launch -n 2 -- train ",
    "lockstep launch -n 2 -- train --prec": "lockstep launch -n 2 -- train --precision ",
    "lockstep launch --processes 2 -- train --recipe len": "lockstep launch --processes 2 -- train --recipe "
                                                           "lenet-scratch ",
    "lockstep launch -n 2 -- ./ru": "lockstep launch -n 2 -- ./runs/",
    "lockstep train --resume au": "lockstep train --resume auto ",
    "lockstep train --output ru": "lockstep train --output runs/",
    "lockstep plot rows": "lockstep plot rows.json ",
    "lockstep completion z": "lockstep completion zsh ",
    "lockstep nothing --prec": "lockstep nothing --prec",
}


FILES = {"bash": "lockstep.bash", "zsh": "_lockstep"}  # with the completion
SET_UP = {  # makes the shell read it
    "bash": "bind 'set enable-bracketed-paste off'; . ./lockstep.bash",
    "zsh": "unset zle_bracketed_paste; unsetopt auto_menu list_beep prompt_sp prompt_cr; fpath=($PWD $fpath); "
           "autoload -U compinit; compinit -u -D; bindkey -e",
}
ARGUMENTS = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}


def read_until(terminal, end, text=""):
    """Returns what the shell prints until `end` has come."""
    while end not in text:
        if not select.select([terminal], [], [], LIMIT)[0]:
            sys.exit(f"{SHELL} prints nothing more after {text!r}")
        text += os.read(terminal, 4096).decode()
    return text


def await_prompt(terminal, said):
    """Waits until a command has printed this, and for the prompt behind it. Until that comes the shell reads no keys: a
    tab would be a blank."""
    read_until(terminal, "$ ", read_until(terminal, f"\n{said}").split(f"\n{said}")[-1])


def start_shell(folder):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "$ ", "HOME": folder, "INPUTRC": "/dev/null"}
        os.execvpe(SHELL, [SHELL, *ARGUMENTS[SHELL]], environment)
    return pid, terminal


def shown(text):
    """The characters that remain on the screen: a backspace lets the next one replace the last."""
    line = []
    for character in text.replace("\x07", ""):
        if character == "\x08":
            line.pop()
        else:
            line.append(character)
    return "".join(line)


def completed(terminal, line):
    """Types the line and a tab, then the mark, and gives the line up."""
    os.write(terminal, f"{line}\t{MARK}".encode())
    text = read_until(terminal, MARK)
    os.write(terminal, b"\x15echo next''line\n")  # Ctrl-U: gives the line up, and may show the prompt once more
    await_prompt(terminal, "nextline")
    return shown(text[: text.index(MARK)]).split("$ ")[-1]


def main():
    if not shutil.which(SHELL):
        print(f"skipped: {SHELL} is not installed")
        return 77
    script = subprocess.run([PROGRAM, "completion", SHELL], check=True, capture_output=True, text=True).stdout
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (FILES[SHELL], script), ("rows.json", "{}"):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        os.mkdir(os.path.join(folder, "runs"))
        pid, terminal = start_shell(folder)
        os.write(terminal, f"stty cols 200; {SET_UP[SHELL]}; echo read''y\n".encode())
        await_prompt(terminal, "ready")
        for line, wanted in LINES.items():
            if SHELL == "zsh" and re.search(" --[a-z]* $", wanted):
                wanted = wanted[:-1] + "="  # which a blank replaces
            found = completed(terminal, line)
            if found != wanted:
                wrong.append(f"{line!r} becomes {found!r}, not {wanted!r}")
        os.kill(pid, signal.SIGKILL)  # at its own end it would write its history into the folder
        os.waitpid(pid, 0)
    print("\n".join(wrong) if wrong else f"{len(LINES)} lines are completed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
