"""Run an agent under a filter of system calls as its systemd unit has it, on x86-64.

python under_seccomp.py EPERM|kill ARGUMENTS
"""

import ctypes
import errno
import struct
import sys

CALLS = {
    "chown": 92, "fchown": 93, "lchown": 94, "setuid": 105, "setgid": 106, "setgroups": 116, "setresuid": 117,
    "capset": 126, "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144, "setrlimit": 160,
    "chroot": 161, "sched_setaffinity": 203, "mbind": 237, "set_mempolicy": 238, "ioprio_set": 251,
    "migrate_pages": 256, "move_pages": 279, "sched_setattr": 314, "bpf": 321,
}  # fmt: skip
"""Most calls of systemd's @resources and @privileged."""
ACTIONS = {"kill": 0x8000_0000, "EPERM": 0x0005_0000 | errno.EPERM}
ALLOW, LOAD, JUMP_IF_EQUAL, RETURN = 0x7FFF_0000, 0x20, 0x15, 0x06
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2


class Program(ctypes.Structure):
    """The kernel's ``struct sock_fprog``."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def install(action):
    """Let the kernel take an action at any of the calls, in this process and those that it starts."""
    lines = [(LOAD, 0, 0, 0)]
    for number in CALLS.values():
        lines += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ACTIONS[action])]
    packed = b"".join(struct.pack("HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])
    content = ctypes.create_string_buffer(packed)
    program, prctl = Program(len(lines) + 1, ctypes.addressof(content)), ctypes.CDLL(None).prctl
    if prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or prctl(SECCOMP, FILTER, ctypes.byref(program)):
        raise OSError("this system does not filter calls")


if __name__ == "__main__":
    install(sys.argv[1])
    from graphact_agents.command import main  # NumPy and what it calls when it is imported

    raise SystemExit(main(sys.argv[2:]))
