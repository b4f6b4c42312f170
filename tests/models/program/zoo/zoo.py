"""Networks as people write them, at the size that tests of many steps allow. Each function returns a Case of
../fixtures/make_fixtures.py; those of torchvision need it."""
import functools
import math
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fixtures"))
from make_fixtures import Case, integers, reals  # noqa: E402

ZOO = {}
SEED = 1000


def network(function):
    ZOO[function.__name__] = function
    return function


class Residual(nn.Module):
    def __init__(self, i, o, stride=1, conv1x1=False):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(o, o, 3, padding=1)
        self.conv3 = nn.Conv2d(i, o, 1, stride=stride) if conv1x1 else None
        self.bn1, self.bn2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o)

    def forward(self, X):
        Y = F.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        return F.relu(Y + (self.conv3(X) if self.conv3 is not None else X))


@network
def resnet18():
    """The chapter's, with a quarter of its channels."""
    def stage(i, o, first=False):
        return nn.Sequential(Residual(i, o, 1 if first else 2, not first), Residual(o, o))
    w = 16
    net = nn.Sequential(nn.Conv2d(1, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(), stage(w, w, True),
                        stage(w, 2 * w), stage(2 * w, 4 * w), stage(4 * w, 8 * w), nn.AdaptiveAvgPool2d((1, 1)),
                        nn.Flatten(), nn.Linear(8 * w, 10))
    return Case(net, [reals("input", 8, 1, 28, 28)], integers("y", 10, 8))


@network
def mlp():
    net = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Dropout(.1), nn.Linear(64, 1))
    return Case(net, [reals("input", 32, 13)], reals("y", 32, 1, a=5, b=13), "mse", seed=SEED)


class Block(nn.Module):
    def __init__(self, d, heads, p):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads, self.p, self.drop = heads, p, nn.Dropout(p)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p if self.training else 0.0)
        x = x + self.drop(self.proj(a.transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.down(F.gelu(self.up(self.n2(x)))))


class LM(nn.Module):
    """Tied weights, scaled dot product attention, dropout."""
    def __init__(self, vocabulary=100, d=64, length=32, p=.1):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(Block(d, 4, p) for _ in range(2))
        self.norm, self.head, self.drop = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False), nn.Dropout(p)
        self.head.weight = self.tok.weight
        nn.init.normal_(self.tok.weight, std=.02)

    def forward(self, ids):
        x = self.drop(self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@network
def lm():
    return Case(LM(), [integers("ids", 100, 8, 32)], integers("y", 100, 8, 32, a=11), "sequence", seed=SEED)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = getattr(nn, kind)(16, 32, 2, batch_first=True, dropout=.2)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


@network
def lstm():
    return Case(Recurrent("LSTM"), [reals("x", 16, 12, 16)], integers("y", 5, 16), seed=SEED)


@network
def gru():
    return Case(Recurrent("GRU"), [reals("x", 16, 12, 16)], integers("y", 5, 16), seed=SEED)


class Encoder(nn.Module):
    """nn.TransformerEncoder with a mask of padding, and a classifier over the mean of its tokens."""
    def __init__(self, vocabulary=50, d=32, classes=4):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, d, padding_idx=0)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, dropout=.1, batch_first=True), 2)
        self.fc = nn.Linear(d, classes)
        self.register_buffer("scale", torch.tensor(math.sqrt(d)), persistent=False)

    def forward(self, ids):
        padding = ids == 0
        h = self.enc(self.emb(ids) * self.scale, src_key_padding_mask=padding)
        keep = (~padding).unsqueeze(-1).to(h.dtype)
        return self.fc((h * keep).sum(1) / keep.sum(1).clamp(min=1))


@network
def encoder():
    return Case(Encoder(), [integers("ids", 50, 16, 10)], integers("y", 4, 16), seed=SEED)


def drop_rows(module, x):
    """torchvision's StochasticDepth with noise in float32. Its own noise has the dtype of x: the export fixes that to
    float32, while Python under autocast makes it in bfloat16, which rounds other numbers."""
    if not module.training or module.p == 0:
        return x
    noise = torch.empty([x.shape[0]] + [1] * (x.ndim - 1), dtype=torch.float32, device=x.device)
    return x * noise.bernoulli_(1 - module.p).div_(1 - module.p)


def of_torchvision(name, **options):
    def make():
        import torchvision
        net = getattr(torchvision.models, name)(num_classes=10, **options)
        for module in net.modules():
            if isinstance(module, torchvision.ops.StochasticDepth):
                module.forward = functools.partial(drop_rows, module)
        return Case(net, [reals("x", 4, 3, 64, 64)], integers("y", 10, 4), seed=SEED, lr=.01)
    ZOO[f"torchvision_{name}"] = make


for tv in ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny"):
    of_torchvision(tv)
of_torchvision("vit_b_16", image_size=64)
