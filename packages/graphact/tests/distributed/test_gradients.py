"""Gradients of the processes are summed before the hook returns, and by the thread that asked for them."""

import functools
import threading

import pytest
import torch
import torch.distributed as dist

from graphact.distributed import process_group


class Bucket:
    """The part of a bucket of DistributedDataParallel that the hook reads."""

    def buffer(self):
        return torch.arange(3.0)


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_no_thread_of_the_network_is_left_with_work(group, monkeypatch):
    """One that asks for the interpreter while a program ends would abort the program."""
    threads = set()

    def reduce(*arguments):
        threads.add(threading.get_ident())
        return functools.reduce(*arguments)

    monkeypatch.setattr(process_group, "functools", type("functools", (), {"reduce": staticmethod(reduce)}))
    for _ in range(50):
        summed = process_group._sum_in_order(group, Bucket())
        assert summed.done()
        assert torch.equal(summed.wait(), torch.arange(3.0))
    assert threads == {threading.get_ident()}
