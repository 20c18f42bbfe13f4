"""Runs a command in a network of its own, where a name server knows one name, receiver.test, and returns how it ended.

To be run in a new network namespace, since a name server is asked at port 53. Arguments: the command.
"""

import fcntl
import socket
import struct
import subprocess
import sys
import threading

SET_FLAGS, UP = 0x8914, 1
# Where nobody listens, so that "refused" there says that this address was used.
ADDRESS = "127.0.0.9"
NAME = b"\x08receiver\x04test\x00"


def answer(question):
    """An A record for the name, and that there is none of any other kind or name."""
    known = question[12:].startswith(NAME)
    end = question.index(b"\x00", 12) + 5
    (kind,) = struct.unpack_from(">H", question, end - 4)
    records = struct.pack(">HHHIH4s", 0xC00C, 1, 1, 60, 4, socket.inet_aton(ADDRESS)) if known and kind == 1 else b""
    flags = 0x8180 if known else 0x8183
    return question[:2] + struct.pack(">HHHHH", flags, 1, 1 if records else 0, 0, 0) + question[12:end] + records


def serve(server):
    while True:
        question, asker = server.recvfrom(512)
        server.sendto(answer(question), asker)


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14x", b"lo", UP))
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
threading.Thread(target=serve, args=(server,), daemon=True).start()
sys.exit(subprocess.run(sys.argv[1:]).returncode)
