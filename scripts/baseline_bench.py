#!/usr/bin/env python3
"""The Python side of compare_bench.py: products of a matrix, and sums over two processes by torch.distributed's Gloo, in
stock torch with one thread a process.

    baseline_bench.py --size 1000                                   one process
    baseline_bench.py --size 1000 --world 2 --rank R --store FILE   one of two, each on a core of its own
        --any-core                                                  the system moves them as it likes

Prints `ready {...}`, and then answers each line on stdin, which all processes of a world get, with one line of JSON:
    products N    N products of the matrix with itself, which all processes begin together: their seconds, and how many
                  results are wrong
    sums BYTES    sums over the processes, what `lockstep bench allreduce` measures in the way in which it does: the
                  seconds of each sum of each turn in this process, and how many elements of a sum were wrong
"""
import argparse
import platform
import statistics
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from baseline_process import answer_lines, join_process_group, keep_to_core  # noqa: E402

# As lockstep's bench overlap: results lie in a ring, touched before any clock starts, so that no figure counts the time
# in which the system first finds memory for them.
SLOTS = 4
ROUNDING = 1e-4  # of the largest element: float sums of some thousand products
# As lockstep's bench allreduce when compare_bench_parts.py asks for it.
TURNS = 5
TURN_SECONDS = 2e-3  # a turn of small sums lasts at least
MOST_SUMS = 100  # of a turn
VALUES = 251


class Products:
    def __init__(self, size, seed):
        """seed: with which lockstep draws the same matrix."""
        self.matrix = torch.rand(size, size, generator=torch.Generator().manual_seed(seed))  # (size, size) float
        self.expected = self.matrix.double() @ self.matrix.double()
        self.results = [torch.empty(size, size) for _ in range(SLOTS)]
        self.spoil()

    def spoil(self):
        """So that what is not written afterwards shows."""
        for result in self.results:
            result.fill_(torch.nan)

    def wrong(self, count):
        """Of the results of the last `count` products, those that are not the product; NaN is wrong, too."""
        bound = ROUNDING * self.expected.abs().max()
        return sum(not bool((result - self.expected).abs().max() <= bound) for result in self.results[:count])

    def take(self, count):
        meet()
        start = time.perf_counter()
        for i in range(count):
            torch.mm(self.matrix, self.matrix, out=self.results[i % SLOTS])
        seconds = time.perf_counter() - start
        wrong = self.wrong(count)
        self.spoil()
        return dict(seconds=seconds, wrong=wrong)


def meet():
    """All processes leave it together."""
    if dist.is_initialized():
        dist.barrier()


def slowest(seconds):
    """Of all processes."""
    most = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def input_of(rank, count):
    """(count) float: element j is 1 + (j + 17 rank) mod 251. Sums of whole numbers so small are exact in any order."""
    return torch.arange(count).add_(17 * rank).remainder_(VALUES).add_(1).to(torch.float32)


def wrong_elements(count):
    expected = sum(input_of(rank, count) for rank in range(dist.get_world_size()))
    tensor = input_of(dist.get_rank(), count)
    dist.all_reduce(tensor)
    return int((tensor != expected).sum())


def time_sums(tensor, count):
    """The seconds of each."""
    meet()
    dist.all_reduce(tensor)  # warm-up: whoever was late is here now
    seconds = []
    start = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(tensor)
        end = time.perf_counter()
        seconds.append(end - start)
        start = end
    return seconds


def take_sums(byte_count):
    count = byte_count // 4
    wrong = wrong_elements(count)
    tensor = torch.zeros(count)  # (count) float; sums of sums of anything else would leave the range of floats
    once = slowest(statistics.median(time_sums(tensor, 3)))
    sums = int(min(max(TURN_SECONDS / once, 1), MOST_SUMS))
    return dict(turns=[time_sums(tensor, sums) for _ in range(TURNS)], wrong=wrong)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1000, help="rows and columns of the matrix")
    parser.add_argument("--seed", type=int, default=0, help="of rank 0's matrix; the next rank's is one more")
    parser.add_argument("--store", metavar="FILE", help="where the processes of a world meet; no file is there yet")
    parser.add_argument("--world", type=int, default=1, help="how many processes")
    parser.add_argument("--rank", type=int, default=0, help="which one this is")
    parser.add_argument("--any-core", action="store_true", help="do not keep to one core")
    args = parser.parse_args()
    if args.world > 1 and args.store is None:
        parser.error(f"--world {args.world} needs a --store")
    return args


def main():
    args = parse()
    if not args.any_core:
        keep_to_core(args.rank)
    torch.set_num_threads(1)
    verbs = dict(products=Products(args.size, args.seed + args.rank).take)
    if args.world > 1:
        join_process_group("gloo", args.store, args.rank, args.world)
        verbs["sums"] = take_sums
    answer_lines(dict(torch=torch.__version__, python=platform.python_version()), verbs)


if __name__ == "__main__":
    main()
