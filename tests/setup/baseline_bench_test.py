"""Tests that the checks of baseline_bench.py find wrong results. Needs torch."""
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
import baseline_bench  # noqa: E402  (silences what torch says without numpy)
import torch  # noqa: E402


class MatmulsTest(unittest.TestCase):
    def test_right(self):
        matmuls = baseline_bench.Matmuls(6, seed=3)
        torch.manual_seed(3)
        self.assertTrue(torch.equal(matmuls.matrix, torch.rand(6, 6)))  # what lockstep draws
        self.assertEqual(matmuls.take(7)["wrong"], 0)
        self.assertEqual(matmuls.take(2)["wrong"], 0)  # two of four results are looked at

    def test_wrong(self):
        matmuls = baseline_bench.Matmuls(6, seed=3)
        self.assertEqual(matmuls.wrong(4), 4)  # none was computed
        with mock.patch("torch.mm", side_effect=lambda a, b, out: out.copy_(a @ b).mul_(1.001)):
            self.assertEqual(matmuls.take(4)["wrong"], 4)
        self.assertEqual(matmuls.take(4)["wrong"], 0)
        with mock.patch("torch.mm", side_effect=lambda a, b, out: None):
            self.assertEqual(matmuls.take(3)["wrong"], 3)  # results of before do not pass for new ones


class SumsTest(unittest.TestCase):
    def test_inputs(self):
        self.assertEqual(baseline_bench.input_of(0, 3).tolist(), [1, 2, 3])
        self.assertEqual(baseline_bench.input_of(1, 2).tolist(), [18, 19])
        self.assertEqual(baseline_bench.input_of(1, 252)[[233, 234, 251]].tolist(), [251, 1, 18])

    def wrong(self, all_reduce, count=5):
        with mock.patch.multiple("torch.distributed", get_world_size=lambda: 2, get_rank=lambda: 1, all_reduce=all_reduce):
            return baseline_bench.wrong_elements(count)

    def test_wrong(self):
        other = torch.tensor([1., 2, 3, 4, 5])  # rank 0's
        self.assertEqual(self.wrong(lambda tensor: tensor.add_(other)), 0)
        self.assertEqual(self.wrong(lambda tensor: None), 5)
        self.assertEqual(self.wrong(lambda tensor: tensor.add_(other)[3].add_(1)), 1)


if __name__ == "__main__":
    unittest.main()
