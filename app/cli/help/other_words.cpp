#include <lockstep/app/cli/help/other_words.h>

#include <CLI/CLI.hpp>

#include <algorithm>

#include <lockstep/support/split_text.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

constexpr std::string_view kTrainCommand = "train";

constexpr OtherWords kOtherWords[] = {
    {"--gpus --gpu --num-gpus --ngpus --n-gpus --gpu-id --gpu-ids --device-ids --cuda --use-cuda --no-cuda "
     "--accelerator",
     "--devices names them: cuda for one replica per GPU, cuda:0,cuda:1 for two of them, cpu for none"},
    {"--amp --use-amp --fp16 --half --bf16 --mixed-precision --autocast --dtype",
     "--precision bf16 or fp16 computes the layers in it, with weights and sums in fp32"},
    {"--num-workers --data-workers --pin-memory --prefetch-factor",
     "--workers N decodes image files, other data stay on each device. --threads is how many compute"},
    {"--lr-scheduler --lr-schedule --scheduler --lr-policy",
     "--schedule constant, cosine, step, onecycle, exponential or plateau is how the learning rate changes"},
    {"--lr-decay --lr-gamma --decay-rate --lr-factor",
     "--gamma is the factor of --schedule exponential or plateau"},
    {"--learning-rate --base-lr --initial-lr", "--lr is the learning rate"},
    {"--wd --weight-decay-rate --l2", "--weight-decay is the decay"},
    {"--clip-grad --grad-clip --clip-grad-norm --max-grad-norm --gradient-clip-val",
     "--clip-norm bounds the norm of the gradients"},
    {"--bs --per-device-batch-size --per-device-train-batch-size --train-batch-size --micro-batch-size",
     "--batch-size counts the images of all replicas together"},
    {"--grad-accum --gradient-accumulation-steps --accumulate-grad-batches --accum-iter",
     "--accumulate is the number of micro-batches"},
    {"--max-epochs --num-epochs --n-epochs --num-train-epochs", "--epochs is their number"},
    {"--max-steps --max-iter --max-iters --num-steps", "--limit-steps ends the run after so many steps"},
    {"--arch --network --net", "--model NAME is the network"},
    {"--data-dir --data-path --data-root --dataset", "--data DIR has the images; 'synthetic' makes them"},
    {"--sync-bn --sync-batchnorm --syncbn", "--bn sync takes the statistics of the whole batch"},
    {"--bucket-cap-mb", "--bucket-mb is the largest bucket"},
    {"--backend --dist-backend", "--allreduce nccl or gloo is how gradients are summed"},
    {"--dist-url --init-method --master-addr --master-port",
     "--master HOST:PORT is where processes meet, with --rank and --world-size; launchers set all three"},
    {"--local-rank", "--rank, --world-size and --master place a process; launchers set all three"},
    {"--nproc --nprocs --nproc-per-node --num-processes --ddp --distributed",
     "--devices cpux2 or cuda:0,cuda:1 starts two replicas; 'lockstep launch' starts several processes"},
    {"--nproc --nprocs --nproc-per-node --num-processes --np", "--processes N, or -n N, is how many to start",
     "launch"},
    {"--early-stop --early-stopping",
     "--patience N ends a run after N epochs without a better validation of the rows of --validation-share",
     kTrainCommand},
    {"--tensorboard --tb --log-dir --logdir",
     "--output DIR keeps TensorBoard's events there, with metrics and plots", kTrainCommand},
    {"--wandb --mlflow --comet --use-wandb",
     "--metrics FILE writes each step and epoch as JSON lines; --output DIR keeps TensorBoard's events, too",
     kTrainCommand},
    {"--checkpoint-dir --ckpt --ckpt-dir --save-dir --output-dir --out-dir --run-dir",
     "--output DIR keeps the checkpoints of a run, with metrics, plots and log", kTrainCommand},
    {"--save-freq --save-interval --save-every --checkpoint-interval --checkpoint-freq",
     "--checkpoint-every N, Ns (seconds) or Nepochs is how often", kTrainCommand},
    {"--export --save-model --onnx", "--save FILE writes the weights as safetensors", kTrainCommand},
    {"--load --load-checkpoint --checkpoint --ckpt-path --restart --resume-from --resume-from-checkpoint "
     "--continue",
     "--resume DIR goes on from a run's newest checkpoint, --resume auto from the newest run's",
     kTrainCommand},
    {"--pretrained --init-weights --finetune",
     "a run begins with new weights, or goes on: --resume DIR. 'lockstep eval --weights' evaluates saved "
     "ones",
     kTrainCommand},
    {"--eval-only --evaluate --test-only --eval --test --validate --val",
     "'lockstep eval' with the folder of a run tests it without training, 'lockstep eval --weights' a file"},
    {"--profile --profiler", "--trace FILE writes a timeline of each replica", kTrainCommand},
    {"--log-interval --print-freq --log-freq --log-steps", "--log-every N prints a line every N steps",
     kTrainCommand},

    {"test evaluate validate inference infer", "'lockstep eval' evaluates weights or a checkpoint"},
    {"export save convert",
     "'lockstep checkpoint export' writes a checkpoint's weights, 'lockstep train --save' those of a run"},
    {"run start fit", "'lockstep train' trains"},
    {"resume continue", "'lockstep train --resume' goes on from a run's newest checkpoint"},
    {"torchrun mpirun spawn distributed", "'lockstep launch' starts several processes"},
    {"benchmark profile", "'lockstep bench' measures, and 'lockstep train --trace' writes a timeline"},
    {"tune search grid hpo", "'lockstep sweep' trains over a grid"},
    {"tensorboard visualize",
     "'lockstep plot' draws metrics; TensorBoard reads the folder of 'lockstep train --output'"},
    {"download fetch",
     "'lockstep data verify' says which files of the data set are missing, and what installs them"},
    {"models list ls",
     "'lockstep recipes' lists what trains, and 'lockstep checkpoint ls' a run's checkpoints"},
    {"info env gpus", "'lockstep devices' lists the hardware and the versions"},
    {"check diagnose", "'lockstep doctor' checks this machine"},
};

bool is_flag_character(char c) { return (c >= 'a' && c <= 'z') || c == '-'; }

}  // namespace

std::span<const OtherWords> other_words() { return kOtherWords; }

std::vector<std::string> flags_named_in(std::string_view hint) {
  std::vector<std::string> flags;
  bool quoted = false;
  for (size_t i = 0; i < hint.size(); ++i) {
    if (hint[i] == '\'')
      quoted = !quoted && (i == 0 || hint[i - 1] == ' ');  // an apostrophe follows a letter
    if (quoted || !hint.substr(i).starts_with("--")) continue;
    const auto end =
        std::find_if_not(hint.begin() + static_cast<std::ptrdiff_t>(i), hint.end(), is_flag_character);
    flags.emplace_back(hint.begin() + static_cast<std::ptrdiff_t>(i), end);
    i += flags.back().size() - 1;
  }
  return flags;
}

std::string_view other_words_hint(std::string_view word, const CLI::App& command) {
  const auto typed = word.starts_with("--") ? "--" + normalized(word) : std::string(word);
  for (const auto& [words, hint, only] : kOtherWords) {
    if (!only.empty() && command.get_name() != only) continue;
    const auto all = split_text(words, ' ');
    if (std::find(all.begin(), all.end(), typed) == all.end()) continue;
    const auto named = flags_named_in(hint);
    const auto has = [&](const std::string& flag) { return command.get_option_no_throw(flag) != nullptr; };
    if (std::all_of(named.begin(), named.end(), has)) return hint;
  }
  return {};
}

}  // namespace lockstep
