"""What bench/continuous.py counts: of a few operators whose number is known."""

from threading import Thread

import pytest
import torch

from bench.operators import counted


def work(network, numbers):
    """A product and a sum of the layer, one more sum; a view and room for numbers are none."""
    found = network(numbers.view(1, 3)) + 1
    torch.empty(3)
    assert found[0, 0].item() == found[0].tolist()[0] == float(found.detach()[0, 0])
    return found


@pytest.mark.parametrize("num_threads", [0, 1, 2])
def test_operators_reads_and_passes_of_all_threads(num_threads):
    network, numbers = torch.nn.Linear(3, 2), torch.ones(3)
    with counted(network) as counts, torch.inference_mode():
        threads = [Thread(target=work, args=(network, numbers)) for _ in range(num_threads)]
        work(network, numbers)
        for thread in threads:
            thread.start()
            thread.join()
    times = 1 + num_threads
    # addmm, add; item and float read a number, tolist copies all.
    assert (counts.launches, counts.reads, counts.passes) == (2 * times, 3 * times, times)
    work(network, numbers)
    assert counts.passes == times and torch.ones(1).tolist() == [1.0]
    assert (counts.launches, counts.reads) == (2 * times, 3 * times)
