"""One replica of a network that trains in Python torch, with the data, precision and memory format of the flags."""
import ctypes
import hashlib
import math
import time

import torch

from twin.data import epoch_batches, load_set
from twin.lenet import LeNetTwin
from twin.own_models import OWN_MODELS, make_own_twin, own_rows
from twin.resnet18 import ResNet18Twin

EVALUATION_BLOCK = 256
PRECISIONS = ["fp32", "tf32", "bf16"]
MEMORY_FORMATS = dict(contiguous=torch.contiguous_format, channels_last=torch.channels_last)


def set_arithmetic(args):
    """Sets the process's arithmetic on GPUs: TF32 in matrix products and convolutions, as in lockstep, or in neither."""
    tf32 = args.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = args.cudnn_benchmark


def make_twin(args):
    if args.model == "lenet":
        twin = LeNetTwin(args.seed)
    elif args.model in OWN_MODELS:
        twin = make_own_twin(args.model, args.seed)
    else:
        twin = ResNet18Twin(args.seed, args.initialization, args.momentum, args.weight_decay)
    return twin.to(args.device, memory_format=MEMORY_FORMATS[args.memory_format])


def lr_at(args, step, steps_per_epoch):
    """Returns the learning rate of step 0, 1, ... of the run, as parallel/optimizer/lr_schedule.h computes it."""
    warmup = args.warmup_epochs * steps_per_epoch
    if step < warmup:
        return args.lr * (step + 1) / warmup
    if args.schedule == "constant":
        return args.lr
    return args.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (args.epochs * steps_per_epoch - warmup)))


class Training:
    """Replica `rank` of `world`; it trains on its part of each batch."""

    def __init__(self, args, rank=0, world=1):
        self.args, self.rank, self.world = args, rank, world
        self.device = torch.device(args.device)
        own = own_rows(args.model)
        if own:
            self.train = self.test = [tensor.to(self.device) for tensor in own]
        else:
            self.train = [tensor[:args.limit_train].to(self.device) for tensor in load_set(args.data, "train")]
            self.test = [tensor.to(self.device) for tensor in load_set(args.data, "t10k")]
        self.twin = make_twin(args)
        self.loss_sum_of = self.twin  # or DistributedDataParallel or torch.compile around it
        # Over the rows since the last take_loss(). A tensor: reading a number in each step would wait for the device.
        self.loss_sum, self.rows = torch.zeros((), dtype=torch.float64, device=self.device), 0

    def batches(self, epoch):
        """Returns the rows of each step of an epoch, on the device."""
        return [rows.to(self.device) for rows in epoch_batches(self.args, epoch, len(self.train[1]))]

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def arithmetic(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.args.precision == "bf16")

    def gather(self, data, rows):
        images, labels = data
        images = images.index_select(0, rows)
        if images.dtype != torch.uint8:  # of models that do not take Fashion-MNIST
            return images, labels.index_select(0, rows)
        if self.args.memory_format == "channels_last":
            # With one channel both formats have the same layout; the strides must name channels_last all the same.
            X = torch.empty(images.shape, memory_format=torch.channels_last, device=self.device).copy_(images)
        else:
            X = images.to(torch.float32)
        return X.div_(255), labels.index_select(0, rows)

    def step(self, rows, lr):
        """Takes one step. Returns the seconds of data, compute and update; on a GPU, the seconds to queue them."""
        start = time.perf_counter()
        rows = rows[len(rows) * self.rank // self.world:len(rows) * (self.rank + 1) // self.world]
        X, y = self.gather(self.train, rows)
        gathered = time.perf_counter()
        with self.arithmetic():
            loss_sum = self.loss_sum_of(X, y)
        self.twin.objective(loss_sum, len(rows)).backward()
        computed = time.perf_counter()
        self.twin.update(lr, len(rows))
        if self.device.type == "cuda":
            self.twin.zero_grad()  # to None: torch.compile's graphs own these gradients and would reuse them
        updated = time.perf_counter()
        self.loss_sum += loss_sum.detach()
        self.rows += len(rows)
        return gathered - start, computed - gathered, updated - computed

    def take_loss(self):
        """Returns (mean loss, rows) since the last call."""
        taken = self.loss_sum.item() / self.rows, self.rows
        self.loss_sum.zero_()
        self.rows = 0
        return taken

    @torch.no_grad()
    def test_accuracy(self):
        correct = 0
        self.twin.eval()
        for rows in torch.arange(len(self.test[1]), device=self.device).split(EVALUATION_BLOCK):
            X, y = self.gather(self.test, rows)
            with self.arithmetic():
                correct += (self.twin.logits(X).argmax(1) == y).sum()
        self.twin.train()
        return correct.item() / len(self.test[1])

    def weights_sha256(self):
        """Returns the hash of all weights and buffers in order of name, as lockstep computes it."""
        digest = hashlib.sha256()
        for _, tensor in sorted(self.twin.weights().items()):
            tensor = tensor.cpu().contiguous()
            digest.update(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
        return digest.hexdigest()
