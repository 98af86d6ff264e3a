"""Asking the C library to keep freed memory."""

import platform
import subprocess
import sys

from graphact.training.malloc import keep_freed_memory


def test_asking_is_harmless():
    code = "from graphact.training.malloc import keep_freed_memory; print(keep_freed_memory())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(sys.platform == "linux" and platform.libc_ver()[0] == "glibc")


def test_nothing_is_asked_of_another_system(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
