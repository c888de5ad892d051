"""Runs a program in a pseudo-terminal: terminal.py <columns> <answers as JSON> <program> [arguments].

Answers are pairs of a text that is awaited and of what is typed then. What the terminal shows is written to stdout, and
the exit code is that of the program.
"""

import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios

columns, answers, program = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(program[0], program)
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
shown = b""
awaited_from = 0
while True:
    readable, _, _ = select.select([terminal], [], [], 120)
    if not readable:
        sys.exit("The program shows nothing")
    try:
        chunk = os.read(terminal, 65536)
    except OSError:
        break
    if not chunk:
        break
    os.write(1, chunk)
    shown += chunk
    if answers:
        place = shown.find(answers[0][0].encode(), awaited_from)
        if place >= 0:
            awaited_from = len(shown)
            os.write(terminal, answers.pop(0)[1].encode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
