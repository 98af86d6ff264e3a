"""Datagrams as fast as the system takes them, some millions a second:

python packages/graphact-agents/tests/agents/flood.py PORT SECONDS [SOURCE_PORT] [CONTENT_IN_HEX]

A process of its own, without imports of the library. The kernel (Linux) makes 64 datagrams of what one call sends.
"""

import socket
import subprocess
import sys
import time

UDP_SEGMENT, SEGMENTS = 103, 64
CONTENT = b"x" * 20


def flood(port, seconds, source=0, content=CONTENT):
    """Send to a port of this machine; how many."""
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", source))
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(content))
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            count += sender.sendto(content * SEGMENTS, ("127.0.0.1", port)) // len(content)
    return count


def start(port, seconds, source=0, content=CONTENT):
    """The same in another process, which prints the number."""
    words = [sys.executable, __file__, str(port), str(seconds), str(source), content.hex()]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


if __name__ == "__main__":
    port, seconds, source, content = (*sys.argv[1:], "0", CONTENT.hex())[:4]
    sys.stdout.write(f"{flood(int(port), float(seconds), int(source), bytes.fromhex(content))}\n")
