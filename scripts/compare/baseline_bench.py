#!/usr/bin/env python3
"""The Python side of compare_bench.py: matrix products, and sums over two processes by torch.distributed's Gloo, in Python
torch with one thread per process.

    baseline_bench.py --size 1000                                   one process
    baseline_bench.py --size 1000 --world 2 --rank R --store FILE   one of two, each bound to a core
        --any-core                                                  bound to no core

Prints `ready {...}`. Then answers each line on stdin, which all processes of a world get, with one line of JSON:
    matmuls N     N products of the matrix with itself, which all processes begin together: their seconds, and the number of
                  wrong results
    sums BYTES    sums over the processes, measured as `lockstep bench allreduce` does: the seconds of each sum of each
                  repetition in this process, and the number of wrong elements
"""
import argparse
import platform
import statistics
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from twin.process import answer_lines, join_process_group, keep_to_core  # noqa: E402

# As in `lockstep bench overlap`: results lie in a ring whose memory is touched before the clock starts.
SLOTS = 4
ROUNDING = 1e-4  # relative to the largest element: float sums of some thousand terms
# As in `lockstep bench allreduce` with the flags of compare_bench_parts.py.
REPETITIONS = 5
REPETITION_SECONDS = 2e-3  # a repetition lasts at least so long
MOST_SUMS = 100  # per repetition
VALUES = 251


class Matmuls:
    def __init__(self, size, seed):
        """seed: lockstep draws the same matrix from it."""
        self.matrix = torch.rand(size, size, generator=torch.Generator().manual_seed(seed))  # (size, size) float
        self.expected = self.matrix.double() @ self.matrix.double()
        self.results = [torch.empty(size, size) for _ in range(SLOTS)]
        self.spoil()

    def spoil(self):
        """Fills the results with NaN, so that a missing result is noticed."""
        for result in self.results:
            result.fill_(torch.nan)

    def wrong(self, count):
        """Returns the number of wrong results among the last `count` ones; NaN is wrong."""
        bound = ROUNDING * self.expected.abs().max()
        return sum(not bool((result - self.expected).abs().max() <= bound) for result in self.results[:count])

    def take(self, count):
        synchronize()
        start = time.perf_counter()
        for i in range(count):
            torch.mm(self.matrix, self.matrix, out=self.results[i % SLOTS])
        seconds = time.perf_counter() - start
        wrong = self.wrong(count)
        self.spoil()
        return dict(seconds=seconds, wrong=wrong)


def synchronize():
    """Waits for all processes."""
    if dist.is_initialized():
        dist.barrier()


def slowest(seconds):
    """Returns the maximum over all processes."""
    most = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def input_of(rank, count):
    """Returns (count) float: element j is 1 + (j + 17 rank) mod 251. Sums of such small integers are exact in any order."""
    return torch.arange(count).add_(17 * rank).remainder_(VALUES).add_(1).to(torch.float32)


def wrong_elements(count):
    expected = sum(input_of(rank, count) for rank in range(dist.get_world_size()))
    tensor = input_of(dist.get_rank(), count)
    dist.all_reduce(tensor)
    return int((tensor != expected).sum())


def time_sums(tensor, count):
    """Returns the seconds of each sum."""
    synchronize()
    dist.all_reduce(tensor)  # warm-up, which also waits for late processes
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
    tensor = torch.zeros(count)  # (count) float; zeros, since repeated sums of other values overflow
    once = slowest(statistics.median(time_sums(tensor, 3)))
    sums = int(min(max(REPETITION_SECONDS / once, 1), MOST_SUMS))
    return dict(repetitions=[time_sums(tensor, sums) for _ in range(REPETITIONS)], wrong=wrong)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1000, help="rows and columns of the matrix")
    parser.add_argument("--seed", type=int, default=0, help="of rank 0's matrix; the next rank's is one more")
    parser.add_argument("--store", metavar="FILE", help="file through which the processes find each other; must not exist yet")
    parser.add_argument("--world", type=int, default=1, help="number of processes")
    parser.add_argument("--rank", type=int, default=0, help="number of this process, from 0")
    parser.add_argument("--any-core", action="store_true", help="bind to no core")
    args = parser.parse_args()
    if args.world > 1 and args.store is None:
        parser.error(f"--world {args.world} needs --store")
    return args


def main():
    args = parse()
    if not args.any_core:
        keep_to_core(args.rank)
    torch.set_num_threads(1)
    verbs = dict(matmuls=Matmuls(args.size, args.seed + args.rank).take)
    if args.world > 1:
        join_process_group("gloo", args.store, args.rank, args.world)
        verbs["sums"] = take_sums
    answer_lines(dict(torch=torch.__version__, python=platform.python_version()), verbs)


if __name__ == "__main__":
    main()
