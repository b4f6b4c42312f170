#!/usr/bin/env python3
"""export_program.py MODULE:FUNCTION OUT.pt2: writes a PyTorch model into a file that `lockstep train --program` trains.

FUNCTION takes nothing and returns (model, inputs): a torch.nn.Module, and a batch of at least two rows for its forward(),
as a tuple of tensors, or as a dict by the names of forward()'s arguments. From Python:

    from export_program import export_program
    export_program(model, inputs, "net.pt2")

The file holds two graphs, "model" for training and "eval", as torch.export writes them: torch.export.load reads it, too.
Each is compared with the model itself for 0, 1 and 3 rows, and for as many as the example has: outputs, gradients and
buffers. lockstep reads from the file what came out, so that it gives no replica a number of rows for which the graph is
wrong. The model is left as it was. This file needs torch 2.12 to 2.15 and nothing else."""
import argparse
import collections
import contextlib
import copy
import importlib.util
import inspect
import io
import json
import logging
import os
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import torch

OLDEST, NEWEST = (2, 12), (2, 15)  # of torch: others write another format, or were not tested
ROWS = (0, 1, 3)
CLOSE = 1e-5  # the largest relative difference that rounding explains
GRAPHS = {"model": "training", "eval": "evaluation"}
# Namespaces of operations that lockstep runs, and the one region that it knows.
NAMESPACES = ("aten",)
SET_GRAD = "wrap_with_set_grad_enabled"


class ExportError(RuntimeError):
    """The model cannot be exported for lockstep. The text says why, and on which line of Python."""


def export_program(model, inputs, path, *, dynamic=None):
    """Writes the model into `path` and returns a Report, whose str() is what the command prints.

    inputs: a tuple, or a dict by name, of tensors on the CPU with at least two rows; other values are fixed in the graph.
    dynamic: for inputs by name, the dimensions whose size may change, as {"ids": (0, 1), "mask": ()}. By default these
    are the first one, the rows, of each tensor. Throws ExportError."""
    check_torch()
    arguments = Arguments(model, inputs, dynamic or {})
    on_cpu(model, arguments)
    was = [(module, module.training) for module in model.modules()]
    report = Report(path)
    programs, rows = {}, []
    try:
        for graph in GRAPHS:
            # A model that comes in training mode keeps its modules' modes, such as those of frozen batch norms.
            if graph == "eval" or not model.training:
                model.train(graph == "model")
            program = programs[graph] = export_graph(model, arguments, graph)
            check_operations(program, graph)
            counts = {*ROWS, arguments.rows, 2 * arguments.rows + 1, *nearest_broken(program, arguments)}
            compared = [compare(model, program, arguments, graph, n) for n in sorted(counts)]
            rows += compared
            report.add_graph(model, program, arguments, graph, compared)
        if unreadable := write(programs, rows, path):
            report.warn(unreadable)
    finally:
        for module, training in was:
            module.training = training
    return report


# ---- what is given


def check_torch():
    version = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", torch.__version__).groups())
    if not OLDEST <= version <= NEWEST:
        supported = "{}.{} to {}.{}".format(*OLDEST, *NEWEST)
        raise ExportError(f"torch {torch.__version__} writes programs that lockstep does not read: use torch {supported}")


class Arguments:
    """The example for forward(): its values by name, and which dimensions may change."""

    def __init__(self, model, inputs, dynamic):
        if not isinstance(inputs, (tuple, list, dict)):
            inputs = (inputs,)
        self.by_name = isinstance(inputs, dict)
        self.names = list(inputs) if self.by_name else self.names_of(model, len(inputs))
        self.values = list(inputs.values()) if self.by_name else list(inputs)
        unknown = [name for name in dynamic if name not in self.names]
        if unknown:
            raise ExportError(f"dynamic names {unknown[0]!r}, and the inputs are {', '.join(self.names)}")
        self.dims = [self.dims_of(name, value, dynamic) for name, value in zip(self.names, self.values)]
        sizes = {name: value.shape[0] for name, value, dims in self.tensors() if 0 in dims}
        if not sizes:
            raise ExportError("no input has rows: a program needs a tensor whose first dimension counts them")
        if len(set(sizes.values())) > 1:
            raise ExportError(f"the inputs have different numbers of rows: {sizes}; for one without rows say "
                              f'dynamic={{"{list(sizes)[-1]}": ()}}')
        self.rows = next(iter(sizes.values()))
        if self.rows < 2:
            raise ExportError(f"the example has {self.rows} row, which torch.export would fix: give at least two")

    @staticmethod
    def names_of(model, count):
        try:
            bound = inspect.signature(model.forward).bind(*range(count))
        except TypeError as error:
            raise ExportError(f"forward() does not take {count} inputs: {error}") from None
        names = []
        for name, value in bound.arguments.items():  # the rest of *args is one tuple
            names += [f"{name}_{i}" for i in range(len(value))] if isinstance(value, tuple) else [name]
        return names

    @staticmethod
    def dims_of(name, value, dynamic):
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (list, tuple, dict)):
                raise ExportError(f"input {name} is a {type(value).__name__}: give each tensor as an input of its own")
            return ()
        return tuple(dynamic.get(name, (0,) if value.dim() else ()))

    def tensors(self):
        return [(n, v, d) for n, v, d in zip(self.names, self.values, self.dims) if isinstance(v, torch.Tensor)]

    def resized(self, rows):
        """(args, kwargs) with the first `rows` rows of the example, which is repeated where it has fewer."""
        def first(value, dims):
            if 0 not in dims:
                return value
            copies = max(1, -(-rows // self.rows))
            return torch.cat([value] * copies)[:rows] if value.dim() else value
        values = [first(value, dims) for value, dims in zip(self.values, self.dims)]
        return ((), dict(zip(self.names, values))) if self.by_name else (tuple(values), {})

    def dynamic_shapes(self, kind):
        shapes = [dict.fromkeys(dims, kind) or None for dims in self.dims]
        return dict(zip(self.names, shapes)) if self.by_name else tuple(shapes)


def on_cpu(model, arguments):
    for name, tensor in [*model.named_parameters(), *model.named_buffers(), *((n, v) for n, v, _ in arguments.tensors())]:
        if tensor.device.type != "cpu":
            raise ExportError(f"{name} is on {tensor.device}: move the model and its inputs to the CPU first; "
                              "lockstep trains the program on any device")


# ---- exporting


def export_graph(model, arguments, graph):
    args, kwargs = arguments.resized(arguments.rows)
    try:
        program = traced(model, args, kwargs, arguments.dynamic_shapes(torch.export.Dim.DYNAMIC))
    except Exception as error:
        where = place(error) or fixed_at(model, args, kwargs, arguments)
        raise ExportError(f"cannot export the {GRAPHS[graph]} graph: {reason(error)}{where}") from error
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            if node.meta.get("stack_trace"):
                node.meta["stack_trace"] = without_folders(node.meta["stack_trace"])
    return program


def traced(model, args, kwargs, shapes):
    import torch.fx.experimental._config as fx_config
    # Without this patch torch.export assumes that there are at least two rows.
    with fx_config.patch(backed_size_oblivious=True), state_kept(model), quiet():
        return torch.export.export(model, args, kwargs or None, dynamic_shapes=shapes)


def without_folders(text):
    """A traceback whose files are named from the working folder, or from the folder of Python's packages."""
    roots = [Path(torch.__file__).resolve().parents[1], Path.cwd(), *(Path(folder or ".").resolve() for folder in sys.path)]
    for root in dict.fromkeys(roots):
        if root != Path("/"):
            text = text.replace(f'"{root}{os.sep}', '"')
    return text


def reason(error):
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"


def place(error):
    """The line of the model's code in an error's traceback, and that of torch where there is no other."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    torchs = str(Path(torch.__file__).resolve().parent)
    own = [frame for frame in frames if not frame.filename.startswith((torchs, "<"))]
    inner = own[-1] if own and own[-1].name not in ("main", "<module>") else None
    if inner is None:
        return ""
    return f"\n  {without_folders(chr(34) + inner.filename)[1:]}, line {inner.lineno}, in {inner.name}: {inner.line}"


def guards(program):
    """(condition on sizes, line of Python) of each one that torch.export took as given while it ran forward()."""
    tensors = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder" and hasattr(n.meta["val"], "fake_mode")]
    for guard in tensors[-1].fake_mode.shape_env.guards:
        frame = guard.sloc.framework_loc
        line = f"{without_folders(chr(34) + frame.filename)[1:]}, line {frame.lineno}, in {frame.name}: {frame.line}" \
            if isinstance(frame, traceback.FrameSummary) else str(guard.sloc)
        yield guard.expr, line


def fixed_at(model, args, kwargs, arguments):
    """The line that made torch.export take a size that may change for a number; "" if there is none."""
    try:
        program = traced(model, args, kwargs, arguments.dynamic_shapes(torch.export.Dim.AUTO))
    except Exception:
        return ""
    lines = [line for condition, line in guards(program) if len(condition.free_symbols) == 1
             and condition.is_Equality and any(side.is_Integer for side in condition.args)]
    return "".join(f"\n  {line}" for line in dict.fromkeys(lines))


def changing_sizes(program, arguments):
    """(input, dimension, symbol) of each size that may change."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"][-len(arguments.values):]
    for name, dims, node in zip(arguments.names, arguments.dims, placeholders):
        for dim in dims:
            size = node.meta["val"].shape[dim]
            if isinstance(size, torch.SymInt):
                yield name, dim, size.node.expr


def broken(program, arguments, rows):
    """Lines of Python whose conditions held for the example's number of rows and fail for this one."""
    symbols = {symbol for _, dim, symbol in changing_sizes(program, arguments) if dim == 0}
    return dict.fromkeys(line for condition, line in guards(program) if len(condition.free_symbols) == 1
                         and condition.free_symbols <= symbols and not condition.subs(next(iter(symbols)), rows))


def nearest_broken(program, arguments):
    """The nearest numbers of rows below and above the example's for which a condition fails: up to two."""
    below, above = range(arguments.rows - 1, max(ROWS), -1), (*range(arguments.rows + 1, 300), *(2**i for i in range(9, 13)))
    found = [next((n for n in numbers if broken(program, arguments, n)), None) for numbers in (below, above)]
    return [n for n in found if n is not None]


def check_operations(program, graph):
    """Throws ExportError for an operation that lockstep cannot run."""
    for node in all_nodes(program):
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            name, known = target.name(), target.name() == SET_GRAD
        elif isinstance(target, torch._ops.OpOverload):
            name, known = str(target), target.namespace in NAMESPACES
        else:
            continue
        if not known:
            raise ExportError(f"lockstep cannot run {name}, which the {GRAPHS[graph]} graph calls{place_of(node)}")


def all_nodes(program):
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return [node for g in graphs for node in g.nodes if node.op == "call_function"]


def place_of(node):
    """On a line of its own, 'net.py, line 3, in forward: return f(x)': the last frame of the node that is not torch's; for
    a region, whose lines torch does not keep, that of its first input."""
    for candidate in (node, *node.all_input_nodes):
        frames = re.findall(r'File "([^"<]+)", line (\d+), in (\S+)\n\s*(.*)', candidate.meta.get("stack_trace") or "")
        own = [frame for frame in frames if not frame[0].startswith("torch" + os.sep)]
        if own:
            return "\n  {}, line {}, in {}: {}".format(*own[-1])
    return ""


# ---- comparing


@contextlib.contextmanager
def quiet():
    """Without torch's warnings, logs and prints: what matters is an exception or is in the report."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        nowhere = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def state_kept(*modules, tensors=()):
    """Restores parameters' gradients, buffers, given tensors and the state of torch's random numbers."""
    buffers = [(m, name, b, b.clone()) for module in modules for m in module.modules()
               for name, b in m._buffers.items() if b is not None]
    copies = [(t, t.detach().clone()) for t in tensors]
    gradients = [(p, p.grad) for module in modules for p in module.parameters()]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for m, name, buffer, value in buffers:
                m._buffers[name] = buffer
                buffer.copy_(value)
            for tensor, value in copies:
                tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def run(module, args, kwargs, training):
    """What the module computes: outputs, and for training gradients and buffers, each by name."""
    for parameter in module.parameters():
        parameter.grad = None
    torch.manual_seed(0)  # dropout
    given = copy.deepcopy((args, kwargs))
    with torch.set_grad_enabled(training):
        outputs = dict(flat(module(*args, **kwargs)))
    if any(not torch.equal(a, b) for (_, a), (_, b) in zip(flat((args, kwargs)), flat(given))):
        raise ExportError("forward() changes its input in place, which lockstep refuses: let it change a copy, x.clone()")
    found = {f"output {name}": value.detach().clone() for name, value in outputs.items()}
    if not training:
        return found
    summands = [value.square().sum() for value in outputs.values() if value.requires_grad]
    if summands:
        sum(summands).backward()
    found |= {f"the gradient of {n}": p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    return found | {f"buffer {name}": b.clone() for name, b in module.named_buffers()}


def flat(value, name=""):
    """Tensors of nested tuples, lists and dicts, with names such as logits or 1.hidden."""
    if isinstance(value, torch.Tensor):
        yield name or "output", value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from flat(item, f"{name}.{i}" if name else str(i))


def compare(model, program, arguments, graph, rows):
    """One entry of lockstep.json: whether the graph computes what the model does for so many rows."""
    args, kwargs = arguments.resized(rows)
    stored = [*program.state_dict.values(), *(c for c in program.constants.values() if isinstance(c, torch.Tensor))]
    entry = {"graph": graph, "rows": rows}
    results = []
    for whose, module in (("Python", model), ("the graph", program.module(check_guards=False))):
        try:
            with state_kept(model, tensors=stored), quiet():
                results.append(run(module, args, kwargs, graph == "model"))
        except ExportError:
            raise
        except Exception as error:
            return entry | {"outcome": "refused", "text": f"{whose} refuses: {reason(error)}"}
    eager, found = results
    # A gradient or buffer that only one of them has is compared with None.
    worst, name = max(((difference(eager.get(n), found.get(n)), n) for n in {**eager, **found}), default=(0.0, ""))
    if worst == 0:
        return entry | {"outcome": "equal", "text": ""}
    outcome = "close" if worst <= CLOSE else "different"
    return entry | {"outcome": outcome, "text": f"{name} differs by {worst:.2g}"}


def difference(eager, graph):
    """The largest difference, relative to the largest value."""
    if eager is None or graph is None:  # no gradient is as good as one of zeros
        there = graph if eager is None else eager
        return float(there.numel() > 0 and there.abs().max() > 0)
    if eager.shape != graph.shape or eager.dtype != graph.dtype:
        return float("inf")
    if torch.equal(eager, graph) or not eager.numel():
        return 0.0
    eager, graph = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (eager, graph))
    if not torch.equal(eager.isnan(), graph.isnan()):
        return float("inf")
    apart, largest = (eager - graph).abs().nan_to_num(0).max().item(), eager.abs().nan_to_num(0).max().item()
    return apart / largest if largest else float("inf") if apart else 0.0


# ---- writing and reporting


def write(programs, rows, path):
    """Returns a warning, or "": some of what torch writes it does not read, and lockstep does."""
    from torch.export.pt2_archive._package import load_pt2, package_pt2
    if not os.fspath(path).endswith(".pt2"):
        raise ExportError(f"a program's file ends with .pt2, and this is {os.fspath(path)}")
    record = json.dumps({"format": 1, "rows": rows}, indent=1)
    path = Path(path)
    try:
        # The file appears whole.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export") as folder, quiet():
            package_pt2(f"{folder}/{path.name}", exported_programs=programs, extra_files={"lockstep.json": record})
            unreadable = ""
            try:
                load_pt2(f"{folder}/{path.name}")
            except (ImportError, MemoryError):
                pass  # they say nothing about the program
            except Exception as error:
                at = re.search(r"target='torch\.ops\.([^']+)'", str(error))
                unreadable = ("torch itself cannot read this program again" + (f", for its {at[1]}" if at else "") +
                              ": trained weights come back by load_state_dict() alone")
            os.replace(f"{folder}/{path.name}", path)
            return unreadable
    except OSError:
        raise
    except Exception as error:
        if found := re.search(r"namedtuple class <class '([^']+)'>", str(error)):
            raise ExportError(f"forward() returns a {found[1].rpartition('.')[2]}, a namedtuple, which torch does not store: "
                              "return a tuple or a dict") from error
        raise ExportError(f"torch cannot store the program: {reason(error)}") from error


class Report:
    """What was exported, and what its user should know."""

    def __init__(self, path):
        self.path, self.lines, self.warnings = path, [], []

    def add_graph(self, model, program, arguments, graph, compared):
        if graph == "model":
            count = sum(p.numel() for p in model.parameters())
            self.lines.append(f"{self.path}: {count:,} parameters, torch {torch.__version__}")
            self.lines += [f"  input       {described(n, v, d)}" for n, v, d in arguments.tensors()]
            self.add_fixed(model, arguments)
        self.add_rows(graph, compared)
        self.add_range(program, arguments, graph, compared)
        self.add_random(program, graph)

    def add_fixed(self, model, arguments):
        fixed = [f"{n} = {v}" for n, v in zip(arguments.names, arguments.values) if not isinstance(v, torch.Tensor)]
        if fixed:
            self.lines.append(f"  fixed       {', '.join(fixed)}")
        frozen = [name for name, module in model.named_modules() if name and not module.training]
        if frozen:
            self.lines.append(f"  frozen      {some(frozen)}: in evaluation mode also while it trains")

    def add_rows(self, graph, compared):
        outcomes = collections.defaultdict(list)
        for entry in compared:
            outcomes[entry["outcome"], entry["text"]].append(entry["rows"])
        for (outcome, text), rows in outcomes.items():
            words = {"equal": "as Python", "close": "as Python but for rounding"}.get(outcome, outcome.upper())
            line = f"{words} for {', '.join(map(str, rows))} rows" + (f": {text}" if text else "")
            self.lines.append(f"  {GRAPHS[graph]:<11} {line}")

    def add_range(self, program, arguments, graph, compared):
        """Warns of sizes for which the graph is wrong, with the line of Python that compares them with a number."""
        wrong = [entry["rows"] for entry in compared if entry["outcome"] not in ("equal", "close")]
        for rows in [n for n in wrong if n > max(ROWS)]:
            lines = "".join(f"\n  {line}" for line in broken(program, arguments, rows))
            self.warn(f"the graphs are wrong for {rows} rows{lines}")
        for name, dim, symbol in changing_sizes(program, arguments):
            bounds = program.range_constraints.get(symbol)
            if dim > 0 and bounds is not None and (bounds.lower > 2 or "oo" not in str(bounds.upper)):
                self.warn(f"dimension {dim} of {name} may only be {bounds.lower} to {bounds.upper}")

    def add_random(self, program, graph):
        if graph != "eval":
            return
        for node in all_nodes(program):
            if draws(node):
                self.warn(f"evaluation draws random numbers by {node.target}{place_of(node)}")

    def warn(self, text):
        if text not in self.warnings:
            self.warnings.append(text)

    def __str__(self):
        return "\n".join(self.lines + [f"warning: {text}" for text in self.warnings])


def described(name, tensor, dims):
    sizes = ["rows" if i == 0 and 0 in dims else "any" if i in dims else str(n) for i, n in enumerate(tensor.shape)]
    return f"{name} {str(tensor.dtype)[len('torch.'):]} [{', '.join(sizes)}]"


def some(names):
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def draws(node):
    """Whether a node draws random numbers: not dropout that is off."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = {a.name: v for a, v in zip(node.target._schema.arguments, node.args)} | node.kwargs
    off = given.get("train", given.get("training", True)) is False or given.get("dropout_p", given.get("p", 1)) == 0
    return not off and not ("dropout_p" in {a.name for a in node.target._schema.arguments} and "dropout_p" not in given)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(": ", 1)[1].split("\n\n")[0])
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="returns (model, inputs); MODULE.py is also looked "
                        "for in the working folder")
    parser.add_argument("path", metavar="OUT.pt2")
    arguments = parser.parse_args()
    module, _, function = arguments.function.partition(":")
    if not function:
        parser.error(f"{arguments.function} names no function: write MODULE:FUNCTION, as in net:make")
    sys.path.insert(0, os.getcwd())
    module = module.removesuffix(".py")
    if importlib.util.find_spec(module) is None:
        parser.error(f"there is no module {module}, neither installed nor in {os.getcwd()}")
    make = getattr(importlib.import_module(module), function, None)
    if make is None:
        parser.error(f"{module} has no function {function}")
    made = make()
    try:
        print(export_program(*made, arguments.path))
    except (ExportError, OSError) as error:
        sys.exit(f"export_program: {error}")


if __name__ == "__main__":
    main()
