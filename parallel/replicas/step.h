// A step of Replicas (parallel/replicas.h), as one replica sees it.
#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/over_replicas.h>
#include <lockstep/parallel/replicas/batch_rows.h>
#include <lockstep/support/types.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// Named sums over all replicas, in the order in which their names came.
class NamedSums {
 public:
  NamedSums(int64_t rows, std::vector<std::pair<std::string, double>> sums)
      : rows_(rows), sums_(std::move(sums)) {}

  int64_t rows() const { return rows_; }  // of all batches that the sums are of
  // Throws UsageError, with the names that there are, for another one.
  double operator[](std::string_view name) const;
  double mean(std::string_view name) const { return (*this)[name] / static_cast<double>(rows_); }
  const std::vector<std::pair<std::string, double>>& all() const& { return sums_; }
  std::vector<std::pair<std::string, double>> all() && { return std::move(sums_); }

 private:
  int64_t rows_ = 0;
  std::vector<std::pair<std::string, double>> sums_;
};

// An object of type Thing, its holder (torch::nn::Linear), or a pointer to it.
template <class M, class Thing>
concept HolderOf = std::is_convertible_v<M&, Thing&> || requires(M& holder) {
  { *holder } -> std::convertible_to<Thing&>;
};

template <class Thing, HolderOf<Thing> M>
Thing& held(M& holder) {
  if constexpr (std::is_convertible_v<M&, Thing&>) {
    return holder;
  } else {
    return *holder;
  }
}

template <HolderOf<torch::nn::Module> M>
torch::nn::Module& module_of(M& module) {
  return held<torch::nn::Module>(module);
}

// A module that Replicas::attach() was given, of one replica.
struct SyncedModule {
  // Throws UsageError, which begins with the place, if the replica's T has another module there by now.
  void require_present(const std::string& place) const;

  std::string name;
  std::string type;                                // "NetImpl"
  std::function<torch::nn::Module&()> of_replica;  // the one that T has there now
  torch::nn::Module* module = nullptr;             // the one that attach() saw
  std::shared_ptr<torch::nn::Module> held = {};    // the same; null if no shared_ptr has it
  bool takes_zeros = false;                        // UnusedParameters::kZero
  std::unique_ptr<GradientSync> sync = {};
};

// Use it in the replica's thread, until the step's function returns.
class Step {
 public:
  struct Numbers {
    int64_t step = 0;  // from 0
    int64_t rows = 0;  // of the whole batch
    RowRange own = {};
    bool evaluates = false;  // after so many steps
  };

  // All three outlive it. sums: () double on the endpoint's device each.
  Step(Numbers numbers, Endpoint& endpoint, std::vector<SyncedModule>& modules,
       std::vector<NamedTensor>& sums)
      : numbers_(numbers), endpoint_(endpoint), modules_(modules), sums_(sums) {}
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  int64_t number() const { return numbers_.step; }
  // Rows of the whole batch, over all replicas: divide the sum of the own rows' losses by it.
  int64_t rows() const { return numbers_.rows; }
  RowRange own() const { return numbers_.own; }  // the rows of this replica in the batch; may be none
  int rank() const { return endpoint_.rank(); }
  int world_size() const { return endpoint_.world_size(); }
  torch::Device device() const { return endpoint_.device(); }
  bool is_first() const { return lockstep::is_first(endpoint_); }

  // For collectives of your own, such as sum_over_replicas(value, step) and broadcast_buffers(*net, step),
  // before a backward pass or after its wait(). Throws UsageError in between: a replica that has called
  // backward() has posted its sums by then, one without rows posts them in wait(), so the orders would
  // differ.
  operator Endpoint&();

  // Call it after the backward pass that has reached the module: afterwards every .grad is the sum over all
  // replicas. A replica with 0 rows calls it, too; it need not call backward(), and then counts as zeros,
  // whatever its .grad holds. Throws as GradientSync::wait() does, such as without a backward pass;
  // UsageError for a module that is not attached, or by now another one than attach() has seen, and if
  // backward has also reached another attached module, which has not been waited for: replicas would post its
  // sums in different orders. A step that ends without it after a backward pass is a UsageError, too.
  template <class M>
  void wait(M& module) {
    wait_for(find(module_of(module)));
  }
  void wait();  // for the only module. Throws UsageError if there are more, or none

  // Its GradientSync, such as for no_sync(): of two backward passes that reach the module the first one runs
  // within step.sync(own.net).no_sync().
  template <class M>
  GradientSync& sync(M& module) {
    return *find(module_of(module)).sync;
  }

  // While one lives, the module's parameters require no gradients: another module's loss runs through it, as
  // a generator's does through the discriminator. Let it end before the module's next forward pass that
  // trains.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(const Params& trained);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Params paused_;  // those that required a gradient
  };
  template <class M>
  Pause pause(M& module) {
    return Pause(sync(module).parameters());
  }

  // Adds the sum of the tensor's elements to the sum of this name, which take_sums() or evaluate() returns.
  // Detaches it; a GPU is not waited for. Elements are added in double; those of a Bool tensor count as 0 and
  // 1. A replica that adds nothing counts as 0. Throws UsageError for complex numbers and no tensor.
  void add(std::string_view name, const torch::Tensor& value);
  void add(std::string_view name, double value);

  // Called by lockstep before the step's function, and when it has returned.
  void require_modules();
  void require_waited();
  std::string place() const;  // "rank 0 (cpu): in step 3", for errors

 private:
  SyncedModule& find(const torch::nn::Module& module);
  void wait_for(SyncedModule& waited);
  [[noreturn]] void fail_unreached(const SyncedModule& waited);
  [[noreturn]] void fail(const std::string& what, const std::string& hint);

  const Numbers numbers_;
  Endpoint& endpoint_;
  std::vector<SyncedModule>& modules_;
  std::vector<NamedTensor>& sums_;
};

}  // namespace lockstep
