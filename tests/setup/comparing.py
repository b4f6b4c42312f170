"""The tests of comparisons share this: a copy of scripts/ in which every program that they start is a fake one."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "scripts/compare"))
PYTHONS = ["baseline_bench.py", "baseline_pytorch.py", "gpu_peak.py"]


class WithFakes(unittest.TestCase):
    """Each test has a folder of its own: `scripts`, the fakes in `built` and `bin`, a torch that has but a version."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")
        for name in ("built/lockstep", "built/scripts/compare_case", "bin/nvidia-smi",
                     *(f"scripts/compare/{name}" for name in PYTHONS)):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / "fake_programs.py", path)
            path.chmod(0o755)
        (self.folder / "site/torch").mkdir(parents=True)
        (self.folder / "site/torch/__init__.py").touch()
        (self.folder / "site/torch/version.py").write_text("__version__ = '2.15.0+cpu'\n")
        self.calls, self.json, self.output = self.folder / "calls", self.folder / "result.json", ""

    def run_script(self, code, name, *words, python=sys.executable, **fake):
        """Runs a script, which must end with this code; fake: see fake_programs.py. Returns its standard output."""
        self.calls.write_text("")
        settings = dict(PATH=f"{self.folder}/bin:{os.environ['PATH']}", PYTHONPATH=str(self.folder / "site"),
                        LOCKSTEP_PYTHON=python, CALLS=str(self.calls), FAKE=json.dumps(fake))
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")}
        command = [sys.executable] if name.endswith(".py") else []
        done = subprocess.run([*command, self.folder / "scripts" / name, *map(str, words)], env=kept | settings, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True)
        self.output = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, self.output)
        return done.stdout

    def edit(self, name, old, new):
        """Changes a script of the copy."""
        path = self.folder / "scripts" / name
        self.assertIn(old, path.read_text())
        path.write_text(path.read_text().replace(old, new))

    def says(self, *texts):
        for text in texts:
            self.assertIn(text, self.output)

    def called(self, count, words):
        self.assertEqual(sum(words in line for line in self.calls.read_text().splitlines()), count, words)

    def result(self):
        return json.loads(self.json.read_text())
