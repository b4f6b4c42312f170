"""Tests the evaluation in compare_bench.py with invented repetitions. The numbers give round results."""
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
import compare_bench_rows as rows  # noqa: E402
from compare_bench_rows import MissingFigure, Row  # noqa: E402

RESULT = dict(bench="allreduce", checks=[dict(name="a", ok=True), dict(name="b", ok=False)], tables=[
    dict(name="allreduce", rows=[dict(algorithm="root", bytes=8, us=9.0, wrong=0),
                                 dict(algorithm="two_shot", bytes=8, us=4.5, wrong=3),
                                 dict(algorithm="two_shot", bytes=32, us=None, wrong=0)]),
    dict(name="other", rows=[dict(algorithm="ring", bytes=8, us=1.0, wrong=0)])])


class Ratios(unittest.TestCase):
    def test_paired_within_a_repetition(self):
        # A machine at half speed in repetition 2: the ratio of the medians is 2 / 6, within repetitions 1/3, 1, 1/3.
        found = rows.paired_ratio(Row("what", "ms", [(1, 3), (4, 4), (2, 6)]))
        self.assertAlmostEqual(found["median"], 1 / 3)
        self.assertAlmostEqual(found["low"], 1 / 3)
        self.assertAlmostEqual(found["high"], 2 / 3)  # halfway between 1/3 and 1

    def test_too_few_repetitions(self):
        self.assertIsNone(rows.paired_ratio(Row("what", "ms", [(1, 2), (1, 2)])))
        self.assertIn("a ratio needs 3 repetitions", rows.summary([Row("what", "ms", [(1, 2)])]))

    def test_quartiles(self):
        self.assertEqual(rows.quartiles([5, 1, 2, 4, 3]), dict(median=3, low=2, high=4))
        self.assertEqual(rows.quartiles([1, 2, 3, 4]), dict(median=2.5, low=1.75, high=3.25))
        self.assertEqual(rows.quartiles([7]), dict(median=7, low=7, high=7))

    def test_who_is_faster(self):
        self.assertEqual(rows.faster(dict(low=.5, median=.6, high=.99)), "lockstep")
        self.assertEqual(rows.faster(dict(low=1.01, median=1.2, high=3)), "Python")
        self.assertIsNone(rows.faster(dict(low=.9, median=.95, high=1)))
        self.assertIsNone(rows.faster(None))

    def test_sum_of_ranks(self):
        # Repetition 1: the slowest ranks take 4, 5, 9, median 5; repetition 2: 6, 6, 7, median 6; repetition 3: 1, 1, 1.
        ranks = [[[4, 2, 9], [6, 6, 7], [1, 1, 1]], [[3, 5, 1], [1, 1, 1], [0, 1, 0]]]
        self.assertEqual(rows.sum_seconds(ranks), 5)
        with self.assertRaises(ValueError):
            rows.sum_seconds([[[1, 2]], [[1]]])  # ranks that took different numbers of sums


class Figures(unittest.TestCase):
    def test_found(self):
        self.assertEqual(rows.figures(RESULT, "allreduce", ["us", "wrong"], algorithm="two_shot", bytes=8), [4.5, 3])
        self.assertEqual(rows.failed_checks(RESULT), 1)

    def test_missing(self):
        for values, said in ((dict(algorithm="ring", bytes=8), "no row has algorithm ring, bytes 8; there is algorithm root"),
                             (dict(algorithm="two_shot", bytes=32), "no number under us")):
            with self.assertRaisesRegex(MissingFigure, said):
                rows.figures(RESULT, "allreduce", ["us", "wrong"], **values)
        with self.assertRaisesRegex(MissingFigure, "no row at all"):
            rows.figures(RESULT, "nowhere", ["us"], bytes=8)


class Printed(unittest.TestCase):
    def test_line(self):
        row = Row("sum of 8 B", "us", [(1e-6, 2e-6), (2e-6, 2e-6), (3e-6, 4e-6)])
        self.assertEqual(rows.line(row).split(), ["sum", "of", "8", "B", "us", "2.0", "2.0", "0.750", "(0.625", "-",
                                                  "0.875)", "lockstep"])
        self.assertEqual(rows.line(Row("step", "ms", [(.25, .5)])).split(), ["step", "ms", "250.00", "500.00", "-"])

    def test_summary(self):
        made_up = [Row("a", "ms", [(1, 2)] * 3), Row("b", "ms", [(2, 1)] * 3), Row("c", "ms", [(1, 2), (1, 1), (2, 1)])]
        self.assertEqual(rows.summary(made_up),
                         "# of 3 measurements lockstep is faster in 1, Python in 1; 1 cannot be told apart")

    def test_idle(self):
        self.assertEqual(rows.idle_share(SimpleNamespace(pythons_cpu_seconds=.5, seconds=10)), .05)
        self.assertEqual(rows.idle_share(SimpleNamespace(pythons_cpu_seconds=0.0, seconds=0.0)), 0)


if __name__ == "__main__":
    unittest.main()
