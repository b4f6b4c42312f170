"""Tests scripts/export_program.py: what it writes, that it leaves the model alone, and what it refuses. Needs torch."""
import collections
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import torch
from torch import nn

SCRIPT = Path(__file__).resolve().parents[3] / "scripts/export_program.py"
sys.path.insert(0, str(SCRIPT.parent))
from export_program import ExportError, export_program  # noqa: E402

X = torch.arange(24.).view(6, 4) / 24
Named = collections.namedtuple("Named", "a b")


class Forward(nn.Module):
    """A linear layer, and a function of it, the input and the module."""
    def __init__(self, function):
        super().__init__()
        self.a, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        return self.function(self, x)


@torch.library.custom_op("tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


class Exports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "net.pt2"

    def export(self, model, inputs=(X,), **options):
        return export_program(model, inputs, self.path, **options)

    def refusal(self, model, inputs=(X,), **options):
        with self.assertRaises(ExportError) as caught:
            self.export(model, inputs, **options)
        self.assertFalse(self.path.exists())
        self.assertEqual(list(self.path.parent.iterdir()), [])
        return str(caught.exception)

    def record(self, name):
        with zipfile.ZipFile(self.path) as archive:
            return json.loads(archive.read(f"net/{name}"))

    def outcomes(self, graph):
        return {row["rows"]: row["outcome"] for row in self.record("extra/lockstep.json")["rows"] if row["graph"] == graph}


class Writes(Exports):
    def test_both_graphs_compute_what_the_model_does(self):
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(.5), nn.Linear(8, 2))
        self.export(net)
        programs = torch.export.pt2_archive._package.load_pt2(str(self.path)).exported_programs
        torch.manual_seed(3)
        expected = net(X)
        torch.manual_seed(3)
        # The archive's batch norm has the statistics of the model before this step, which training does not read.
        self.assertTrue(torch.equal(programs["model"].module()(X), expected))
        fresh = torch.export.load(self.path)
        net.load_state_dict(fresh.state_dict)
        self.assertTrue(torch.equal(programs["eval"].module()(X), net.eval()(X)))

    def test_the_outcome_for_each_number_of_rows_is_in_the_file(self):
        self.export(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)))
        self.assertEqual(self.outcomes("model"), {0: "equal", 1: "refused", 3: "equal", 6: "equal", 13: "equal"})
        self.assertEqual(self.outcomes("eval"), {0: "equal", 1: "equal", 3: "equal", 6: "equal", 13: "equal"})
        one = self.record("extra/lockstep.json")["rows"][1]
        self.assertEqual(one["text"][:50], "Python refuses: ValueError: Expected more than 1 v")

    def test_a_graph_that_is_wrong_for_one_row_is_called_different(self):
        report = self.export(Forward(lambda m, x: m.a(x) * (1 if x.shape[0] > 1 else 3)))
        self.assertEqual([self.outcomes("model")[rows] for rows in (1, 3, 6)], ["different", "equal", "equal"])
        self.assertIn("DIFFERENT for 1 rows", str(report))

    def test_gradients_are_compared(self):
        def detached_at_one_row(module, x):
            return module.a(x) if x.shape[0] != 1 else module.a(x).detach()
        self.export(Forward(detached_at_one_row))
        self.assertEqual(self.outcomes("model")[1], "different")
        self.assertEqual(self.outcomes("eval")[1], "equal")

    def test_a_range_of_rows_that_narrows_is_reported(self):
        class Compares(nn.Module):
            def forward(self, x):
                return x * (2 if x.shape[0] > 8 else 3)
        report = self.export(Compares())
        self.assertEqual(self.outcomes("model"), {0: "equal", 1: "equal", 3: "equal", 6: "equal", 9: "refused",
                                                  13: "refused"})
        self.assertIn("the graphs are wrong for 9 rows\n", str(report))
        self.assertIn("in forward: return x * (2 if x.shape[0] > 8 else 3)", str(report))

    def test_conditions_that_leave_no_range_are_found(self):
        class Chunks(nn.Module):
            def forward(self, x):
                return torch.cat([part - part.mean(0) for part in x.chunk(math.ceil(x.shape[0] / 128))])

        class Pairs(nn.Module):
            def forward(self, x):
                return x * 2 if x.shape[0] % 4 == 0 else x
        self.assertIn("the graphs are wrong for 129 rows\n", str(self.export(Chunks())))
        self.assertEqual(self.outcomes("model")[129], "different")
        self.export(Pairs(), (torch.cat([X, X]),))
        self.assertEqual([self.outcomes("eval")[rows] for rows in (3, 11, 12, 13)],
                         ["different", "different", "equal", "different"])

    def test_inputs_by_name_keep_their_names_and_skip_defaults(self):
        class Options(nn.Module):
            def forward(self, x, mask=None, scale=1.0):
                return x * scale
        report = self.export(Options(), {"x": X, "scale": torch.ones(6, 1)})
        self.assertIn("input       scale float32 [rows, 1]", str(report))

    def test_values_that_are_no_tensors_are_fixed(self):
        class Scaled(nn.Module):
            def forward(self, x, scale):
                return x * scale
        self.assertIn("scale = 2.5", str(self.export(Scaled(), (X, 2.5))))

    def test_dimensions_may_be_named(self):
        class Masked(nn.Module):
            def forward(self, ids, mask):
                return ids.float() @ mask
        report = self.export(Masked(), (torch.ones(4, 5), torch.ones(5, 5)), dynamic={"mask": ()})
        self.assertIn("mask float32 [5, 5]", str(report))
        report = self.export(Forward(lambda m, x: m.a(x).mean(1)), (torch.ones(4, 5, 4),), dynamic={"x": (0, 1)})
        self.assertIn("x float32 [rows, any, 4]", str(report))

    def test_random_numbers_in_evaluation_are_reported_with_their_line(self):
        class AlwaysDrops(nn.Module):
            def forward(self, x):
                return nn.functional.dropout(x, .5)
        report = self.export(AlwaysDrops())
        self.assertIn("evaluation draws random numbers by aten.dropout.default\n", str(report))
        self.assertIn("in forward: return nn.functional.dropout(x, .5)", str(report))
        self.assertNotIn("draws", str(self.export(nn.Sequential(nn.Linear(4, 4), nn.Dropout(.5)))))

    def test_a_program_that_torch_does_not_read_again_is_reported(self):
        """torch 2.12 to 2.15 forget an argument whose name is a word of Python: `from` of uniform_()."""
        class Drops(nn.Module):
            def forward(self, x):
                return x * (torch.empty(x.shape[0], 1).uniform_(0, 1) < .9) if self.training else x
        said = "torch itself cannot read this program again, for its aten.uniform_.default: trained weights come back by " \
            "load_state_dict() alone"
        self.assertIn(said, str(self.export(Drops())))
        self.assertNotIn("again", str(self.export(nn.Linear(4, 4))))

    def test_places_have_no_folders_of_this_machine(self):
        self.export(nn.Sequential(nn.Linear(4, 4)))
        with zipfile.ZipFile(self.path) as archive:
            text = archive.read("net/models/model.json").decode()
        self.assertIn('File \\"torch/nn/modules/linear.py\\"', text)
        self.assertNotIn(str(Path(torch.__file__).parent), text)


class Leaves(Exports):
    """The model is left as it was."""

    def test_buffers_gradients_modes_and_random_numbers_stay(self):
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(.5)).eval()
        net(X).sum().backward()
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        gradient = net[0].weight.grad.clone()
        state = torch.get_rng_state()
        self.export(net)
        for name, tensor in net.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)
        self.assertTrue(torch.equal(net[0].weight.grad, gradient))
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertFalse(any(module.training for module in net.modules()))
        stored = torch.export.load(self.path).state_dict
        for name, tensor in before.items():
            self.assertTrue(torch.equal(stored[name], tensor), name)

    def test_modules_frozen_in_evaluation_mode_stay_so_in_training(self):
        net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
        net[0].eval()
        self.assertIn("frozen      0: ", str(self.export(net)))
        self.assertEqual([module.training for module in net.modules()], [True, False, True, True])
        training = [str(node.args[5]) for node in torch.export.load(self.path).graph.nodes
                    if "batch_norm" in str(node.target)]
        self.assertEqual(training, ["False", "True"])


class Refuses(Exports):
    def test_other_versions_of_torch(self):
        for version in ("2.11.0+cpu", "2.16.1", "3.0.0a0"):
            with mock.patch.object(torch, "__version__", version):
                self.assertIn(f"torch {version} writes programs that lockstep does not read: use torch 2.12 to 2.15",
                              self.refusal(nn.Linear(4, 4)))

    def test_what_cannot_be_exported_with_its_line(self):
        def branches(module, x):
            if x.sum() > 0:
                return module.a(x)
            return x
        text = self.refusal(Forward(branches))
        self.assertIn("cannot export the training graph: ", text)
        self.assertIn("export_test.py, line", text)
        self.assertIn("in branches: if x.sum() > 0:", text)

    def test_rows_that_forward_fixes_with_the_line(self):
        class Fixes(nn.Module):
            def forward(self, x):
                return x.reshape(len(x), 2, 2)
        text = self.refusal(Fixes())
        self.assertIn("cannot export the training graph: UserError: Constraints violated", text)
        self.assertIn("in forward: return x.reshape(len(x), 2, 2)", text)

    def test_operations_that_lockstep_does_not_run_with_their_line(self):
        class Branch(nn.Module):
            def forward(self, x):
                return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,))

        class Autocast(nn.Module):
            def forward(self, x):
                y = x + 1
                with torch.autocast("cpu", torch.bfloat16):
                    return y @ y.T

        class Custom(nn.Module):
            def forward(self, x):
                return twice(x + 1)
        for model, name, line in ((Branch(), "cond", "in forward: return torch.cond("),
                                  (Autocast(), "wrap_with_autocast", "in forward: y = x + 1"),
                                  (Custom(), "tests.twice.default", "in forward: return twice(x + 1)")):
            text = self.refusal(model)
            self.assertIn(f"lockstep cannot run {name}, which the training graph calls", text)
            self.assertIn(line, text)

    def test_a_namedtuple_that_forward_returns(self):
        self.assertIn("forward() returns a Named, a namedtuple, which torch does not store: ",
                      self.refusal(Forward(lambda m, x: Named(m.a(x), x))))

    def test_a_forward_that_changes_its_input(self):
        example = X.clone()
        text = self.refusal(Forward(lambda m, x: m.a(x[:, :].add_(1))), (example,))
        self.assertIn("forward() changes its input in place", text)
        self.assertTrue(torch.equal(example, X))

    def test_examples_that_do_not_fit(self):
        class Two(nn.Module):
            def forward(self, x, y):
                return x + y
        linear = nn.Linear(4, 4)
        for model, inputs, options, text in (
                (linear, (X[:1],), {}, "the example has 1 row"),
                (linear, (X, X), {}, "forward() does not take 2 inputs"),
                (Two(), (X, X[:3]), {}, "the inputs have different numbers of rows: {'x': 6, 'y': 3}"),
                (Two(), (X, [X]), {}, "input y is a list"),
                (Two(), (X, X), {"dynamic": {"z": (0,)}}, "dynamic names 'z', and the inputs are x, y"),
                (linear, (torch.tensor(1.),), {}, "no input has rows"),
                (nn.Linear(4, 4, device="meta"), (X,), {}, "weight is on meta")):
            self.assertIn(text, self.refusal(model, inputs, **options))

    def test_a_path_that_is_no_program(self):
        self.path = self.path.with_suffix(".pt")
        self.assertIn("a program's file ends with .pt2", self.refusal(nn.Linear(4, 4)))


class Command(Exports):
    def run_script(self, *arguments):
        folder = self.path.parent
        (folder / "net.py").write_text("import torch\n\n\ndef make():\n"
                                       "    return torch.nn.Linear(4, 2), (torch.rand(6, 4),)\n\n\n"
                                       "def one():\n    return torch.nn.Linear(4, 2), (torch.rand(1, 4),)\n")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, SCRIPT, *arguments], cwd=folder, capture_output=True, text=True,
                              env=environment)

    def test_writes_what_a_function_returns(self):
        done = self.run_script("net:make", "net.pt2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[1:], ["  input       input float32 [rows, 4]",
                                                        "  training    as Python for 0, 1, 3, 6, 13 rows",
                                                        "  evaluation  as Python for 0, 1, 3, 6, 13 rows"])
        self.assertTrue(self.path.exists())

    def test_refuses_without_a_traceback(self):
        for arguments, code, text in ((("net:one", "net.pt2"), 1, "export_program: the example has 1 row"),
                                      (("net", "net.pt2"), 2, "net names no function"),
                                      (("net:none", "net.pt2"), 2, "net has no function none"),
                                      (("other:make", "net.pt2"), 2, "there is no module other")):
            done = self.run_script(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
