"""Networks of one's own, of torch's layers, as a user writes them: an MLP, one of 214 MB, a CNN, and the GPT of
examples/character_gpt.cpp. own_models.h has their C++ side. The networks of PROGRAMS are exported, and lockstep trains the file.

From the same seed both have the same initial weights: C++ and Python draw them in the same order.
"""
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F

from twin.resnet18 import PlainTwin, build

LICENCES = [Path("/usr/share/common-licenses") / name for name in ("Apache-2.0", "GFDL-1.3", "LGPL-2.1", "GPL-2", "GPL-3")]
LENGTH, WIDTH, HEADS, BYTES = 32, 64, 4, 256


def text_windows():
    """Returns (windows of the licences, the byte that follows each of theirs), (n, LENGTH) int64 each. Both are views."""
    content = b"".join(path.read_bytes() for path in LICENCES if path.exists())
    if not content:
        sys.exit(f"error: {LICENCES[0].parent}, which Debian has, is not here")
    text = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(torch.int64)
    return text[:-1].unfold(0, LENGTH, 1), text[1:].unfold(0, LENGTH, 1)


def noise_images():
    """Returns mobilenet's rows: images without sense, since Fashion-MNIST's have one channel and are too small for it."""
    torch.manual_seed(0)
    return torch.rand(512, 3, 64, 64), torch.arange(512) % 10


def own_rows(model):
    """Returns the rows of models that do not take Fashion-MNIST; None for others."""
    return text_windows() if model.endswith("gpt") else noise_images() if model == "program_mobilenet" else None


class MlpTwin(PlainTwin):
    def __init__(self):
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                                       nn.Linear(512, 10)))


class WideMlpTwin(PlainTwin):
    def __init__(self):
        layers = [nn.Flatten(), nn.Linear(784, 4096), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Linear(4096, 4096), nn.ReLU()]
        super().__init__(nn.Sequential(*layers, nn.Linear(4096, 10)))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.0, weight_decay=0.0, fused=True)

    def shard(self):
        """Lets each rank keep a part of the optimizer's state; call it once the ranks have joined."""
        self.optimizer = ZeroRedundancyOptimizer(self.net.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True,
                                                 lr=0.0, weight_decay=0.0, fused=True)


class CnnTwin(PlainTwin):
    def __init__(self):
        super().__init__(nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                                       nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.mix_in, self.mix_out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm_2, self.widen, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.mix_in(self.norm_1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.mix_out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.block_1, self.block_2, self.norm = Block(), Block(), nn.LayerNorm(WIDTH)
        nn.init.normal_(self.bytes.weight, std=0.1)

    def forward(self, text):
        return F.linear(self.norm(self.block_2(self.block_1(self.bytes(text) + self.places))), self.bytes.weight)


class GptTwin(PlainTwin):
    """A row's loss is the mean over its bytes."""

    def __init__(self):
        super().__init__(Gpt())
        params = list(self.net.parameters())
        groups = [dict(params=[param for param in params if param.dim() > 1], weight_decay=0.1),
                  dict(params=[param for param in params if param.dim() < 2], weight_decay=0.0)]
        self.optimizer = torch.optim.AdamW(groups, lr=0.0, fused=True)

    def forward(self, X, y):
        # In float, as lockstep's loss of tokens.
        return F.cross_entropy(self.logits(X).float().flatten(0, 1), y.flatten(), reduction="sum") / LENGTH

    def update(self, lr, rows):
        nn.utils.clip_grad_norm_(self.net.parameters(), 1)
        super().update(lr, rows)


def mobilenet():
    """torchvision's, for ten classes. Without dropout: its numbers are drawn by generators of lockstep's own."""
    if folder := os.environ.get("LOCKSTEP_TORCHVISION"):
        sys.path.append(folder)
    try:
        from torchvision.models import mobilenet_v3_small
    except ImportError:
        sys.exit("error: there is no torchvision\nhint: LOCKSTEP_TORCHVISION names a folder that has it")
    return mobilenet_v3_small(num_classes=10, dropout=0.0)


PROGRAMS = dict(program_resnet18=lambda: PlainTwin(build(torch.initial_seed(), "normal")), program_gpt=GptTwin,
                program_mobilenet=lambda: PlainTwin(mobilenet()))
OWN_MODELS = dict(mlp=MlpTwin, wide_mlp=WideMlpTwin, cnn=CnnTwin, gpt=GptTwin) | PROGRAMS


def make_own_twin(name, seed):
    torch.manual_seed(seed)
    return OWN_MODELS[name]()
