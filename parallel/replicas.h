// Your own training loop on several replicas, in one process or several.
//
//   struct Learner {  // one per replica: modules, optimizers, whatever a step needs
//     torch::nn::Linear net{3, 1};
//     torch::optim::Adam adam{net->parameters(), .05};
//   };
//
//   Replicas<Learner> replicas({.devices = devices, .process_group = group});
//   replicas.attach(&Learner::net);            // the same weights for all, and their gradients are summed
//   for (const Batch& batch : batches) {     // or a tensor, a pair, numbers of rows, ...
//     replicas.step(batch, [](Learner& own, const Batch& rows, Step& step) {  // on each replica, its rows
//       own.adam.zero_grad();
//       const auto loss = (own.net(rows.input()) - rows.target()).square().sum();
//       (loss / step.rows()).backward();       // divided by the rows of all
//       step.wait(own.net);                    // every .grad is now that of the whole batch
//       own.adam.step();
//       step.add("loss", loss);
//     });
//   }
//   const double loss = replicas.take_sums().mean("loss");  // in every process; is_first() says which prints
//
// ReplicaWorkers, make_communicator() and GradientSync, of which it is made, can be used alone.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/parallel/replicas/batch_rows.h>
#include <lockstep/parallel/replicas/replica_loop.h>
#include <lockstep/parallel/replicas/step.h>

namespace lockstep {

// The argument of attach() and keep(): a member of T, or a function of T&, that gives a reference to a Thing,
// its holder, or a pointer to it.
template <class Member, class T, class Thing>
concept PartOf = std::is_lvalue_reference_v<std::invoke_result_t<const Member&, T&>> &&
    HolderOf<std::remove_reference_t<std::invoke_result_t<const Member&, T&>>, Thing>;

// The function of step() and evaluate(): it takes T&, the replica's rows of a Batch (batch_rows.h) as a value
// or a constant reference, and Step&.
template <class Function, class T, class Batch>
concept StepFunction =
    std::is_invocable_v<Function&, T&,
                        decltype(batch_shard(std::declval<const Batch&>(), 0, 0, torch::Device(torch::kCPU))),
                        Step&>;

// Holds one T per replica of this process. It is built, used and destroyed in that replica's thread, on its
// device and stream. Not thread-safe: one thread drives it, which calls leave_cores_to_replicas()
// (main_thread.h) first. With options.process_group the replicas of all processes train together, and every
// process makes the same calls in the same order, except const functions.
//
// Functions that it is given run on all replicas at the same time: what they share must be constant or
// thread-safe. They call const functions of the object alone: it waits for them, so any other call is a
// UsageError. An error on one replica ends the call on all of them and is thrown once: errors of lockstep as
// they are, others as FailedError that names the rank and the step, with the exception nested. Other
// processes get a PeerError when this one leaves; ProcessGroup::explain() tells them why. Afterwards the
// object can only be destroyed.
template <class T>
class Replicas {
 public:
  // factory: T(Endpoint&). It is called for one replica after the other, as build_replicas() does: each call
  // draws the same numbers from torch's default generator, which afterwards is as after one call. So it makes
  // no collectives. Throws UsageError when options differ between processes and for a wrong split, what
  // ReplicaWorkers and make_communicator() throw, and the factory's error.
  template <class Factory>
  requires std::is_invocable_v<Factory&, Endpoint&> Replicas(ReplicasOptions options, Factory factory)
      : loop_(std::move(options)), own_(count(loop_)) {
    try {
      loop_.build([&](int local, Endpoint& endpoint) { own_[at(local)].reset(new T(factory(endpoint))); });
    } catch (...) {
      end();
      throw;
    }
  }
  explicit Replicas(ReplicasOptions options) requires std::default_initializable<T>
      : Replicas(std::move(options), [](Endpoint&) { return T(); }) {}
  ~Replicas() { end(); }
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  // Moves a module to the replica's device, gives it rank 0's weights, and sums its gradients from now on
  // (GradientSync::attach()). member: &T::net, or a function of T& that returns a reference: to a module, its
  // holder or a pointer to it. It stays the same module as long as T lives: another one in its place is a
  // UsageError in the next step, evaluation, state() or load(). name: that of its weights in checkpoints,
  // "name.weight"; a module that is the only one needs none. Throws as GradientSync::attach() does, and
  // UsageError for a name that is taken ("a" and "a.b" may be the same, too), and for a parameter or buffer
  // that several T share.
  template <class Member>
  void attach(const std::string& name, Member member, const GradientSyncOptions& options = {}) {
    constexpr bool kFits = PartOf<Member, T, torch::nn::Module>;
    static_assert(kFits,
                  "attach() takes &T::member, or a function of T& that returns a reference (-> auto&) to a "
                  "module, to its holder or to a pointer to it: what it returns by value would not live on");
    if constexpr (kFits) {
      loop_.attach(
          name, [=, this](int local) -> torch::nn::Module& { return module_of(part(member, local)); },
          options);
    }
  }
  template <class Member>
  requires std::invocable<Member&, T&>
  void attach(Member member, const GradientSyncOptions& options = {}) { attach("", member, options); }

  // Lets checkpoints hold an optimizer of torch::optim (its learning rates and its state, not its other
  // options), a ShardedOptimizer (sharded_optimizer.h), whose state has the same form, or a tensor that each
  // replica has for itself, such as the state of a recurrent network. member: as for attach(); an optimizer
  // may also be held by a pointer. name: as for attach(). A tensor may be
  // undefined. Throws UsageError for a name that is taken, for an optimizer whose state is unknown
  // (torch::optim's SGD, Adam, AdamW, RMSprop and Adagrad are known), and in every process when these keep
  // different things.
  template <class Member>
  void keep(const std::string& name, Member member) {
    constexpr bool kTensor = std::is_same_v<std::invoke_result_t<const Member&, T&>, torch::Tensor&>;
    constexpr bool kSharded = PartOf<Member, T, ShardedOptimizer>;
    constexpr bool kFits = kTensor || kSharded || PartOf<Member, T, torch::optim::Optimizer>;
    static_assert(kFits,
                  "keep() takes &T::member, or a function of T& that returns a reference (-> auto&) to an "
                  "optimizer of torch::optim, to a ShardedOptimizer, to a pointer to one of them, or to a "
                  "torch::Tensor");
    if constexpr (kTensor) {
      loop_.keep(name, ReplicaLoop::OfReplica<torch::Tensor&>(
                           [=, this](int local) -> torch::Tensor& { return part(member, local); }));
    } else if constexpr (kSharded) {
      loop_.keep(name, ReplicaLoop::OfReplica<ShardedOptimizer&>([=, this](int local) -> ShardedOptimizer& {
                   return held<ShardedOptimizer>(part(member, local));
                 }));
    } else if constexpr (kFits) {
      loop_.keep(name, ReplicaLoop::OfReplica<torch::optim::Optimizer&>(
                           [=, this](int local) -> torch::optim::Optimizer& {
                             return held<torch::optim::Optimizer>(part(member, local));
                           }));
    }
  }
  template <class Member>
  requires std::invocable<Member&, T&>
  void keep(Member member) { keep("", member); }

  // One step: calls function(T&, shard, Step&), which is a StepFunction, on each replica with its rows of the
  // batch, which is whatever has rows (batch_rows.h); shard_sizes() says how many, and it may be none.
  // Torch's operations on CPU tensors draw from numbers of (seed, step, rank) meanwhile. Every process gives
  // the whole batch; what it does not need for its own replicas need not be loaded if the batch is numbers of
  // rows. Throws UsageError for no rows, on several replicas if no module is attached (each would train
  // alone), and in every process when these have different steps, rows, row numbers or int64 tensors on the
  // host, such as labels and token ids. (On GPUs the next take_sums(), evaluate(), state() or load() throws
  // that, or one of the next 256 steps: a step does not wait for the one before it.) Where one process trains
  // and another evaluates, which makes other collectives, one may get its PeerError instead.
  template <class Batch, class Function>
  void step(const Batch& batch, Function&& function) {
    loop_.step(deal(batch, function));
  }

  // The same without gradients, and with the attached modules in evaluation mode; counts as no step. A
  // function that calls torch::autograd::grad() enables them itself (torch::AutoGradMode). Returns
  // what Step::add() has added: each row counts once, for any number of replicas. The same in every process.
  template <class Batch, class Function>
  NamedSums evaluate(const Batch& batch, Function&& function) {
    return loop_.evaluate(deal(batch, function));
  }

  // Returns what Step::add() has added in the steps since the last call, over the whole world, in the order
  // of ranks. The same in every process. Waits for the devices.
  NamedSums take_sums() { return loop_.take_sums(); }

  // Calls function(T&, Endpoint&) on each replica: for what is no step.
  template <class Function>
  void run(Function&& function) {
    loop_.run([&](int local, Endpoint& endpoint) { function(*own_[at(local)], endpoint); });
  }

  // Returns all that the next step depends on, in the form of Trainer::state(): weights and buffers of the
  // attached modules, what keep() was called with, the number of steps, and torch's generators. Complete in
  // the process of rank 0. data/train_checkpoint.h keeps it in files. An epoch is the caller's: steps taken /
  // steps per epoch. Throws UsageError for an optimizer with parameters of no attached module.
  // memory: for the copies of weights and optimizers, as in Trainer::state().
  TrainState state(const TensorAllocator& memory = heap_memory()) { return loop_.state(memory); }

  // Goes on from process 0's state; the argument of other processes is ignored: so that all do the same, let
  // process 0 alone look whether there is a checkpoint, and give load() state() if there is none. Sums not
  // yet taken are dropped. Tensors are written in place, optimizers get new states. Weights and optimizers
  // travel one tensor at a time, and one parameter's state is there at a time beside what the replicas keep;
  // buffers and kept tensors of all replicas travel at once. With another number of replicas than the state's
  // all get rank 0's buffers and generators. After an error on the way, such as a process that ends, weights
  // and optimizers have some of the state: load it again. Throws WeightsError in every process,
  // and changes nothing, if the state is of other modules, optimizers or kept tensors, or of kept tensors of
  // another number of replicas; and where a kept tensor is defined, but has another shape or dtype.
  void load(const TrainState& state) { loop_.load(state); }

  // Compares the parameters of the attached modules of all replicas, bit by bit, those on devices of one type
  // with each other. Costs a pass over them, and on a GPU a copy to the host. Throws OutOfSyncError in every
  // process if they differ.
  void check_sync() { loop_.check_sync(); }

  void barrier() { loop_.barrier(); }                  // returns when all processes have called it
  bool is_first() const { return first_rank() == 0; }  // of this process: it prints and saves for all
  int world_size() const { return loop_.world_size(); }
  int local_size() const { return loop_.local_size(); }
  int first_rank() const { return loop_.first_rank(); }  // of this process's replicas
  int64_t steps_taken() const { return loop_.steps_taken(); }

 private:
  static size_t at(int local) { return static_cast<size_t>(local); }
  static size_t count(const ReplicaLoop& loop) { return at(loop.local_size()); }

  template <class Member>
  decltype(auto) part(const Member& member, int local) {
    return std::invoke(member, *own_[at(local)]);
  }

  // Refers to both: they outlive the call that it is for.
  template <class Batch, class Function>
  ReplicaLoop::Dealt deal(const Batch& batch, Function& function) {
    static_assert(
        BatchWithRows<Batch>,
        "a batch is a number of rows, int64_t numbers of rows, tensors (also in a pair, tuple, vector, "
        "lockstep::Batch or torch::data::Example), or a type with rows() and shard(): batch_rows.h");
    if constexpr (!BatchWithRows<Batch>) {
      return {};
    } else if constexpr (!StepFunction<Function, T, Batch>) {
      static_assert(
          StepFunction<Function, T, Batch>,
          "the function of step() and evaluate() takes (T&, shard, Step&): take the shard by value or "
          "by const reference (const auto&)");
      return {};
    } else {
      const bool alone = world_size() == local_size();
      return {.rows = batch_rows(batch),
              .digest = alone ? 0 : batch_digest(batch),
              .task = [&batch, &function, this](int local, Step& step) {
                const auto own = step.own();
                function(*own_[at(local)], batch_shard(batch, own.begin, own.rows, step.device()), step);
              }};
    }
  }

  void end() noexcept {
    loop_.end([this](int local) { own_[at(local)].reset(); });
  }

  ReplicaLoop loop_;
  std::vector<std::unique_ptr<T>> own_;  // by local replica
};

}  // namespace lockstep
