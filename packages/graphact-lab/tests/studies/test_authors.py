"""The departures of the published code, written down again, on a graph small enough to do by hand."""

import numpy as np
import pytest

from authors import padded_median, summed_kernel

NEIGHBORS = [np.array([1, 2, 3]), np.array([0]), np.array([0]), np.array([0])]
SIGNAL = np.array([[[9.0], [1.0], [2.0], [3.0]], [[0.0], [0.1], [0.2], [0.1]]])


def test_padding_with_the_node_itself_moves_the_median_to_it():
    found = padded_median(SIGNAL, NEIGHBORS, 3)[0, :, 0]
    assert found.tolist() == [2.0, 1.0, 2.0, 3.0]  # the three leaves hear 9 alone, but answer themselves


def test_the_kernel_is_one_number_for_all_samples():
    found = summed_kernel(SIGNAL, NEIGHBORS)
    spread = (8**2 + 7**2 + 6**2) + (0.1**2 + 0.2**2 + 0.1**2)
    assert found.shape == (4,)
    assert found[0] == pytest.approx(np.exp(-spread / 0.02))
    assert summed_kernel(SIGNAL[1:], NEIGHBORS)[1] == pytest.approx(np.exp(-(0.1**2) / 0.02))
