"""Tests the evaluation in compare_pytorch.py with invented repetitions. The numbers give round results."""
import os
import sys
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/compare"))
import compare_goals as goals  # noqa: E402
from compare_cases import Case, make_cases, make_witnesses  # noqa: E402

ARGS = types.SimpleNamespace(batch_size=256, memory_format="channels_last", compare_case="compare_case", seed=0, data="data",
                             against=goals.PYTHONS, compile_mode="default")


def case(name, *ms, loss=2.0):
    """Returns a case whose repetitions have one step."""
    made = Case(name, 1, 1, [])
    made.repetitions = [dict(seconds=t / 1e3, compute=t / 1e3, sync=0.0, update=0.0, loss=loss) for t in ms]
    return made


def setting(model, precision, repetitions=7, kernels="auto", **cases):
    name = f"{model} {precision}"
    return types.SimpleNamespace(model=model, precision=precision, name=name, title=name, repetitions=repetitions, steps=1,
                                 warmup=1, lr=0.1, has_direct=name == "lenet fp32" and kernels == "auto", kernels=kernels, cases=cases)


def lenet(repetitions=7, **others):
    found = dict(all_cores=("lockstep cpu", 6), two=("lockstep cpux2", 5), one=("lockstep cpu", 10),
                 apart=("2 runs apart", 5), processes=("lockstep 2 processes", 7), direct=("lockstep cpux2 direct", 15), torch=("lockstep cpu torch", 40),
                 eager=("Python eager", 50)) | others
    cases = {role: case(name, *repetitions * [ms]) for role, (name, ms) in found.items()}
    return setting("lenet", "fp32", repetitions, **cases)


def values(rows):
    return {found["what"]: (round(found["median"], 3), found["met"]) for found in rows}


class Goals(unittest.TestCase):
    def setUp(self):
        goals.CORES = 2  # the goals' number, wherever this test runs

    def judge(self, of, **args):
        return values(goals.judge(types.SimpleNamespace(**vars(ARGS) | args), of, of.cases))

    def test_the_better_layout_is_judged(self):
        found = self.judge(lenet())
        self.assertEqual(found["ms per step, lockstep cpux2"], (5, True))
        self.assertEqual(found["ms per step, lockstep cpux2 direct"], (15, False))
        self.assertEqual(found["ms of lockstep cpux2 / ms of Python eager"], (.1, True))
        self.assertEqual(found["ms of lockstep cpu / ms of Python eager, same layout"], (.12, None))
        self.assertEqual(found["ms of lockstep cpux2 direct / ms of Python eager"], (.3, None))
        self.assertEqual(found["ms of lockstep cpux2 / ms of lockstep cpu torch"], (.125, None))
        self.assertEqual(found["images/s of cpux2 / images/s of cpu, 1 thread per replica"], (2, True))

    def test_milliseconds_are_for_one_batch_and_enough_repetitions(self):
        for found in (self.judge(lenet(), batch_size=128), self.judge(lenet(repetitions=6))):
            self.assertEqual(found["ms per step, lockstep cpux2"], (5, None))
        bf16 = setting("lenet", "bf16", **lenet().cases)
        self.assertEqual(self.judge(bf16)["ms per step, lockstep cpux2"], (5, None))

    def test_processes_are_judged_beside_ddp_and_two_replicas(self):
        found = self.judge(lenet(ddp=("Python DDP", 20)))
        self.assertEqual(found["ms of lockstep 2 processes / ms of Python DDP"], (.35, False))
        self.assertEqual(found["ms of lockstep 2 processes / ms of lockstep cpux2"], (1.4, True))
        self.assertEqual(found["exposed sync / step, lockstep 2 processes"], (0, None))
        self.assertEqual(self.judge(lenet(processes=("lockstep 2 processes", 8)))[
            "ms of lockstep 2 processes / ms of lockstep cpux2"], (1.6, False))
        self.assertEqual(self.judge(lenet(), batch_size=128)["ms of lockstep 2 processes / ms of lockstep cpux2"],
                         (1.4, None))

    def test_losses_of_the_same_kernels_are_the_same(self):
        def met(who, **losses):
            cases = {role: case(role, 1, loss=loss) for role, loss in losses.items()}
            checks = goals.loss_checks(ARGS, setting("resnet18", "fp32"), cases)
            return {check["what"].partition(", ")[2]: check["met"] for check in checks}[who]

        self.assertTrue(met("cpu torch, eager", torch=2.0, eager=2.0))
        self.assertFalse(met("cpu torch, eager", torch=2.0, eager=2.0001))
        self.assertFalse(met("cpux2 torch, DDP", torch_two=2.0, ddp=2.0001))
        self.assertFalse(met("cpux2, 2 processes", two=2.0, processes=2.0001))
        self.assertTrue(met("cpu, eager", all_cores=2.0, eager=2.02))
        self.assertFalse(met("cpux2, DDP", two=2.0, ddp=2.2))

    def test_networks_of_ones_own_are_judged_beside_ddp(self):
        for ddp, limit, met in ((10, .95, (True, False)), (9, .95, (False, False)), (100, 1, (True, True))):
            mlp = setting("mlp", "bf16", kernels="torch", **lenet(two=("two", 9), processes=("two processes", 9.8),
                                                                  ddp=("DDP", ddp)).cases)
            judged = [found for found in goals.judge(ARGS, mlp, mlp.cases) if found["limit"]]
            self.assertEqual([(found["what"], found["limit"], found["met"]) for found in judged],
                             [("ms of two / ms of DDP, torch's kernels", limit, met[0]),
                              ("ms of two processes / ms of DDP, torch's kernels", limit, met[1])])

    def test_programs_are_judged_beside_python_and_the_same_network_in_cpp(self):
        made = setting("program_resnet18", "fp32", kernels="torch", **lenet(
            all_cores=("cpu", 12), two=("cpux2", 10), processes=("2 processes", 11), hand=("in C++", 9.9), ddp=("DDP", 10.5),
            eager=("eager", 9)).cases)
        judged = [found for found in goals.judge(ARGS, made, made.cases) if found["limit"]]
        self.assertEqual([(found["what"], found["limit"], found["met"]) for found in judged],
                         [("ms of cpux2 / ms of eager, program", 1, False), ("ms of cpux2 / ms of DDP, program", 1, True),
                          ("ms of 2 processes / ms of DDP, program", 1, False),
                          ("ms of cpux2 / ms of in C++, program", 1.02, True)])

    def test_losses_of_programs_are_those_of_the_same_layout(self):
        """Batch norms take the statistics of their replica, so one replica's loss is another than that of two."""
        for role, other in (("all_cores", "eager"), ("two", "ddp"), ("two", "hand"), ("two", "processes")):
            for model, wrong, expected in (("program_resnet18", 2 + 1e-6, True), ("program_resnet18", 2 + 4e-6, False),
                                           ("program_gpt", 2 + 2e-5, True), ("program_gpt", 2 + 2e-4, False)):
                cases = {role: case(role, 1), other: case(other, 1, loss=wrong)}
                found, = goals.loss_checks(ARGS, setting(model, "fp32", kernels="torch"), cases)
                self.assertEqual(found["met"], expected, (model, other))
        apart = dict(all_cores=case("all_cores", 1, loss=3), two=case("two", 1))
        self.assertEqual(goals.loss_checks(ARGS, setting("program_resnet18", "fp32", kernels="torch"), apart), [])

    def test_losses_of_networks_of_ones_own(self):
        for model in goals.OWN_MODELS:
            for precision in "fp32", "bf16":
                for wrong, expected in ((2 + 2e-5, True), (2 + 2e-4, False)):
                    cases = dict(processes=case("processes", 1), ddp=case("ddp", 1, loss=wrong))
                    found, = goals.loss_checks(ARGS, setting(model, precision), cases)
                    self.assertEqual(found["met"], expected)

    def test_lenets_losses_are_held_together_in_bf16_too(self):
        for wrong, expected in ((2.3 * (1 + 2e-7), True), (2.3 * (1 + 7e-7), False)):
            cases = dict(all_cores=case("all_cores", 1, loss=2.3), eager=case("eager", 1, loss=wrong))
            self.assertEqual(goals.loss_checks(ARGS, setting("lenet", "bf16"), cases)[0]["met"], expected)


class Cases(unittest.TestCase):
    def kernels(self, made):
        return {role: c.commands[0][c.commands[0].index("--kernels") + 1] for role, c in made.items()
                if "--kernels" in c.commands[0]}

    def test_kernels(self):
        made = make_cases(ARGS, setting("lenet", "fp32"), "/nowhere")
        self.assertEqual(self.kernels(made), dict(all_cores="auto", two="auto", one="auto", processes="auto", apart="auto", direct="direct", torch="torch"))
        self.assertNotIn("direct", make_cases(ARGS, setting("resnet18", "bf16"), "/nowhere"))

    def test_with_torchs_kernels_all_cases_have_them_and_no_time_is_judged(self):
        for model in "lenet", *goals.OWN_MODELS:
            made = make_cases(ARGS, setting(model, "fp32", kernels="torch"), "/nowhere")
            shards = {"sharded", "sharded_processes", "zero"} if model == "wide_mlp" else set()
            self.assertEqual(set(made), {"all_cores", "two", "one", "processes", "apart", *goals.PYTHONS} | shards)
            own = [made[role] for role in ("all_cores", "two", "one", "processes", "apart")]
            for command in (command for c in own for command in c.commands):
                self.assertEqual(command[command.index("--kernels") + 1], "torch")
            self.assertEqual(made["two"].name, "lockstep cpux2 torch")
        slow = lenet(all_cores=("lockstep cpu torch", 90), two=("lockstep cpux2 torch", 80))
        cases = {role: c for role, c in slow.cases.items() if role not in ("direct", "torch")}
        judged = values(goals.judge(ARGS, setting("lenet", "fp32", kernels="torch", **cases), cases))
        self.assertEqual(judged["ms per step, lockstep cpux2 torch"], (80, None))
        self.assertEqual(judged["ms of lockstep cpux2 torch / ms of Python eager"], (1.6, None))
        self.assertEqual({met for _, met in judged.values()}, {None})
        self.assertEqual(goals.limits_of(goals.STEP_MS, ARGS, setting("lenet", "fp32", kernels="torch")), {})

    def test_sharded_cases_are_their_unsharded_ones_with_a_flag(self):
        made = make_cases(ARGS, setting("wide_mlp", "fp32", kernels="torch"), "/folder")
        ports = [command.index("--master") + 1 for command in made["processes"].commands]
        for sharded, role, flags in (("sharded", "two", ["--shard", "optimizer"]), ("zero", "ddp", ["--shard"])):
            for with_shards, without in zip(made[sharded].commands, made[role].commands):
                left = [word for word in with_shards if word not in flags]
                self.assertEqual(len(with_shards) - len(left), len(flags))
                differ = [(a, b) for a, b in zip(left, without, strict=True) if a != b]
                self.assertLessEqual(len(differ), 1 if role == "ddp" else 0)  # the file where ranks meet
        for with_shards, port in zip(made["sharded_processes"].commands, ports):
            self.assertEqual(with_shards[with_shards.index("--shard") + 1], "optimizer")
            self.assertIn("--master", with_shards[:port])
        cases = {role: case(made[role].name, 10) for role in made} | dict(
            two=case("two", 10), sharded=case("sharded", 9), processes=case("processes", 10),
            sharded_processes=case("sharded processes", 9.5), zero=case("zero", 9.2), ddp=case("ddp", 20))
        judged = values(goals.shard_rows(setting("wide_mlp", "fp32", kernels="torch"), cases))
        self.assertEqual(judged, {"ms of sharded / ms of two": (.9, True),
                                  "ms of sharded processes / ms of processes": (.95, False),
                                  "ms of sharded / ms of zero": (.978, True),
                                  "ms of sharded processes / ms of zero": (1.033, False)})

    def test_a_programs_cases_train_the_file_and_one_trains_the_network_in_cpp(self):
        for model, hand in (("program_gpt", True), ("program_mobilenet", False)):
            made = make_cases(ARGS, setting(model, "fp32", kernels="torch"), "/folder")
            self.assertEqual("hand" in made, hand)
            for role in ("all_cores", "two", "one", "processes", "apart"):
                for command in made[role].commands:
                    self.assertEqual(command[command.index("--program") + 1], f"/folder/{model}.pt2")
            for role in ("eager", "ddp"):
                self.assertTrue(all("--program" not in command for command in made[role].commands))
        command, = make_cases(ARGS, setting("program_gpt", "fp32", kernels="torch"), "/folder")["hand"].commands
        self.assertEqual([command[command.index(flag) + 1] for flag in ("--model", "--devices", "--kernels")],
                         ["gpt", "cpux2", "torch"])
        self.assertNotIn("--program", command)

    def test_processes_share_a_port_and_have_a_core_each(self):
        commands = make_cases(ARGS, setting("lenet", "fp32"), "/nowhere")["processes"].commands
        self.assertEqual([command[-2:] for command in commands], [["--rank", "0"], ["--rank", "1"]])
        self.assertEqual(*(command[3:-1] for command in commands))
        self.assertEqual([command[0] for command in commands], ["taskset", "taskset"])
        self.assertEqual(len({command[2] for command in commands}), min(2, len(os.sched_getaffinity(0))))

    def test_a_witness_is_there_for_ddp_alone(self):
        self.assertEqual(self.kernels(make_witnesses(ARGS, setting("resnet18", "fp32"))), dict(torch_two="torch"))
        self.assertEqual(make_witnesses(ARGS, setting("lenet", "fp32")), {})
        without = types.SimpleNamespace(**vars(ARGS) | dict(against=["eager"]))
        self.assertEqual(make_witnesses(without, setting("resnet18", "fp32")), {})


class Page(unittest.TestCase):
    def test_table(self):
        goals.CORES = 2
        resnet18 = setting("resnet18", "fp32", **{role: c for role, c in lenet(
            two=("lockstep cpux2", 1700), all_cores=("lockstep cpu", 1500), ddp=("Python DDP", 3000)).cases.items()
            if role != "direct"})
        rows = list(goals.page_table(ARGS, [lenet(), resnet18]))[2:]
        self.assertEqual(rows[0], "| lenet fp32 | `cpux2` | 5.00 (5.00 - 5.00) | 5.5: met | 0.10 | - | - | 0.12 | "
                         "2.000 | 2.000 | - | 1.40 |")
        self.assertEqual(rows[1], "| lenet fp32 | `cpux2 direct` | 15.00 (15.00 - 15.00) | 14.5: missed | 0.30 | - | "
                         "- | 0.38 | - | - | - | - |")
        self.assertIn("| `cpu` | 1500 (1500 - 1500) | 1600: met | 30.00 | 0.50 |", rows[2])
        self.assertEqual(len(rows), 3)


if __name__ == "__main__":
    unittest.main()
