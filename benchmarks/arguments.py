"""Arguments of the benchmarks: what is wrong is said in one line, before any work."""

import argparse
import sys

import torch


def count(text):
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def need_cuda():
    """End here where there is no CUDA device."""
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device, and torch finds none")
