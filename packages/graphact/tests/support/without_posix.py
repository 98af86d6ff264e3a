"""Run graphact as on a machine that is not POSIX: ``python -X warn_default_encoding -m support.without_posix [...]``.

The package finds none of the modules and names that Windows lacks; other packages, which know how to do without them,
are loaded before. A text file that the package opens in the encoding of the machine is an error. Arguments are those of
the command ``graphact``; without any, every module of the package is imported and printed.
"""

import builtins
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress

PACKAGES = ("graphact", "graphact_agents", "graphact_lab")
MODULES = frozenset({"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"})
NAMES = {
    os: "chown fchmod fork geteuid getgid getloadavg getuid killpg mkfifo sched_yield setsid statvfs uname wait3",
    signal: "SIGALRM SIGCONT SIGHUP SIGKILL SIGSTOP SIGUSR1 SIGUSR2 alarm setitimer",
    socket: "AF_UNIX",
    select: "poll epoll",
}
ELSEWHERE = (
    "asyncio", "filelock", "lightning", "matplotlib.pyplot", "onnxscript", "pandas", "rich.progress", "sklearn",
    "torch_geometric.loader", "triton", "zenoh",
)  # fmt: skip


def refuse(name, globals=None, locals=None, fromlist=(), level=0):  # noqa: A002, as the built-in calls them
    """``__import__``, which refuses to the package the modules that are not there."""
    importer = (globals or {}).get("__name__", "")
    if importer.partition(".")[0] in PACKAGES and name.partition(".")[0] in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return plain_import(name, globals, locals, fromlist, level)


plain_import = builtins.__import__


def main():
    for name in ELSEWHERE:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    os.environ.setdefault("USERNAME", "someone")  # as Windows does; torch asks
    for module, names in NAMES.items():
        for name in names.split():
            delattr(module, name)
    builtins.__import__ = refuse
    warnings.filterwarnings("error", category=EncodingWarning, module=r"graphact(_lab|_agents)?\b")
    if len(sys.argv) > 1:
        from graphact_lab.cli import main as command

        return command(sys.argv[1:])
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=r"graphact\.\w+ is now", category=DeprecationWarning)
                importlib.import_module(module.name)
            sys.stdout.write(f"{module.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
