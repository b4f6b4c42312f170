"""What compare_turns.py makes of made-up turns. Numbers are chosen so that results are round."""
import sys
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import compare_goals as goals  # noqa: E402
import compare_page as page  # noqa: E402
from compare_contenders import Contender, make_contenders, make_witnesses  # noqa: E402

ARGS = types.SimpleNamespace(batch_size=256, memory_format="channels_last", contender="contender", seed=0, data="data",
                             against=goals.PYTHONS, compile_mode="default")


def contender(name, *ms, loss=2.0):
    """Of turns with one step each."""
    made = Contender(name, 1, 1, [])
    made.turns = [dict(seconds=t / 1e3, compute=t / 1e3, sync=0.0, update=0.0, loss=loss) for t in ms]
    return made


def case(model, precision, turns=7, **rivals):
    name = f"{model} {precision}"
    return types.SimpleNamespace(model=model, precision=precision, name=name, title=name, turns=turns, steps=1,
                                 warmup=1, lr=0.1, has_direct=name == "lenet fp32", rivals=rivals)


def lenet(turns=7, **others):
    found = dict(ours=("lockstep cpu", 6), two=("lockstep cpux2", 5), one=("lockstep cpu", 10),
                 apart=("2 runs apart", 5), direct=("lockstep cpux2 direct", 15), stock=("lockstep cpu stock", 40),
                 eager=("Python eager", 50)) | others
    return case("lenet", "fp32", turns, **{role: contender(name, *turns * [ms]) for role, (name, ms) in found.items()})


def values(rows):
    return {found["what"]: (round(found["median"], 3), found["met"]) for found in rows}


class Goals(unittest.TestCase):
    def setUp(self):
        goals.CORES = 2  # the goals' number, wherever this test runs

    def judge(self, of, **args):
        return values(goals.judge(types.SimpleNamespace(**vars(ARGS) | args), of, of.rivals))

    def test_the_better_layout_is_judged(self):
        found = self.judge(lenet())
        self.assertEqual(found["ms a step, lockstep cpux2"], (5, True))
        self.assertEqual(found["ms a step, lockstep cpux2 direct"], (15, False))
        self.assertEqual(found["ms of lockstep cpux2 / ms of Python eager"], (.1, True))
        self.assertEqual(found["ms of lockstep cpu / ms of Python eager, same layout"], (.12, None))
        self.assertEqual(found["ms of lockstep cpux2 direct / ms of Python eager"], (.3, None))
        self.assertEqual(found["ms of lockstep cpux2 / ms of lockstep cpu stock"], (.125, None))
        self.assertEqual(found["images/s of cpux2 / images/s of cpu, 1 thread a replica"], (2, True))

    def test_milliseconds_are_for_one_batch_and_enough_turns(self):
        for found in (self.judge(lenet(), batch_size=128), self.judge(lenet(turns=6))):
            self.assertEqual(found["ms a step, lockstep cpux2"], (5, None))
        bf16 = case("lenet", "bf16", **lenet().rivals)
        self.assertEqual(self.judge(bf16)["ms a step, lockstep cpux2"], (5, None))

    def test_losses_of_the_same_kernels_are_the_same(self):
        def met(who, **losses):
            rivals = {role: contender(role, 1, loss=loss) for role, loss in losses.items()}
            checks = goals.loss_checks(ARGS, case("resnet18", "fp32"), rivals)
            return {check["what"].partition(", ")[2]: check["met"] for check in checks}[who]

        self.assertTrue(met("cpu stock, eager", stock=2.0, eager=2.0))
        self.assertFalse(met("cpu stock, eager", stock=2.0, eager=2.0001))
        self.assertFalse(met("cpux2 stock, DDP", stock_two=2.0, ddp=2.0001))
        self.assertTrue(met("cpu, eager", ours=2.0, eager=2.02))
        self.assertFalse(met("cpux2, DDP", two=2.0, ddp=2.2))

    def test_lenets_losses_are_held_together_in_bf16_too(self):
        for wrong, expected in ((2.3 * (1 + 2e-7), True), (2.3 * (1 + 7e-7), False)):
            rivals = dict(ours=contender("ours", 1, loss=2.3), eager=contender("eager", 1, loss=wrong))
            self.assertEqual(goals.loss_checks(ARGS, case("lenet", "bf16"), rivals)[0]["met"], expected)


class Contenders(unittest.TestCase):
    def kernels(self, made):
        return {role: c.commands[0][c.commands[0].index("--kernels") + 1] for role, c in made.items()
                if "--kernels" in c.commands[0]}

    def test_kernels(self):
        made = make_contenders(ARGS, case("lenet", "fp32"), "/nowhere")
        self.assertEqual(self.kernels(made), dict(ours="auto", two="auto", one="auto", direct="direct", stock="stock"))
        self.assertNotIn("direct", make_contenders(ARGS, case("resnet18", "bf16"), "/nowhere"))

    def test_a_witness_is_there_for_ddp_alone(self):
        self.assertEqual(self.kernels(make_witnesses(ARGS, case("resnet18", "fp32"))), dict(stock_two="stock"))
        self.assertEqual(make_witnesses(ARGS, case("lenet", "fp32")), {})
        without = types.SimpleNamespace(**vars(ARGS) | dict(against=["eager"]))
        self.assertEqual(make_witnesses(without, case("resnet18", "fp32")), {})


class Page(unittest.TestCase):
    def test_table(self):
        goals.CORES = 2
        resnet18 = case("resnet18", "fp32", **{role: c for role, c in lenet(
            two=("lockstep cpux2", 1700), ours=("lockstep cpu", 1500), ddp=("Python DDP", 3000)).rivals.items()
            if role != "direct"})
        rows = list(page.table(ARGS, [lenet(), resnet18]))[2:]
        self.assertEqual(rows[0], "| lenet fp32 | `cpux2` | 5.00 (5.00 - 5.00) | 5.5: met | 0.10 | - | - | 0.12 | "
                         "2.000 | 2.000 |")
        self.assertEqual(rows[1], "| lenet fp32 | `cpux2 direct` | 15.00 (15.00 - 15.00) | 14.5: missed | 0.30 | - | "
                         "- | 0.38 | - | - |")
        self.assertIn("| `cpu` | 1500 (1500 - 1500) | 1600: met | 30.00 | 0.50 |", rows[2])
        self.assertEqual(len(rows), 3)


if __name__ == "__main__":
    unittest.main()
