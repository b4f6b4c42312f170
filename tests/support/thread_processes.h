// Processes that are threads of one test, so that a test sees what several processes do.
//
//   run_processes(2, [](int process, const Group& group) {
//     const auto communicator = make_communicator({.devices = {torch::kCPU}, .process_group = group});
//     ...  // collect here and assert afterwards: Catch2's assertions are not thread-safe
//   });
//
// Channels work in memory. A collective happens when the last process posts it; a sum is taken in the order
// of processes. There is no timeout: only vanish(), abort() and the destruction of a channel end a wait.
// Peers do not notice an aborted channel, as if the process still ran; a destroyed one ends their waits with
// a PeerError, as if the process had left. What breaks a channel's rules, or differs between processes, is a
// std::logic_error.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/threads/barrier.h>
#include <lockstep/support/error.h>

namespace lockstep::testing {

using Group = std::shared_ptr<ProcessGroup>;

// One ProcessGroup per process; for one process a null, as from join_process_group(). Use each from a thread
// of its own.
std::vector<Group> thread_process_groups(int count);

// From now on the process of this group is gone: every wait of every process, now and later, ends with a
// PeerError that names it. What the process still does has no effect on the others. Thread-safe.
void vanish(ProcessGroup& group);

// Returns when the process of this group has posted so many collectives, on all of its channels together.
// Thread-safe.
void await_posts(ProcessGroup& group, int count);

// Runs task(process, its group) in one thread per process, and returns when all have ended. A process
// whose task throws vanishes. Rethrows the first error.
void run_processes(int count, const std::function<void(int, const Group&)>& task);

// As run_processes(); returns the results of task(process, its group) by process.
template <class Task>
auto by_process(int count, const Task& task) {
  std::vector<std::invoke_result_t<const Task&, int, const Group&>> results(static_cast<size_t>(count));
  run_processes(count, [&](int process, const Group& group) {
    results[static_cast<size_t>(process)] = task(process, group);
  });
  return results;
}

// The number of replicas of each process.
using Layout = std::vector<int>;

inline int world_of(const Layout& layout) { return std::accumulate(layout.begin(), layout.end(), 0); }
inline int processes_of(const Layout& layout) { return static_cast<int>(layout.size()); }
inline std::string text_of(const Layout& layout) { return fmt::format("{}", fmt::join(layout, " + ")); }

namespace detail {

// The collective that one process has posted.
struct ThreadPost {
  std::string what = {};  // must be alike in all processes
  int root = -1;          // process whose tensor a broadcast gives to all
  torch::Tensor tensor = {};
  torch::Tensor out = {};  // of an all_gather or all_to_all
  bool deals = false;      // an all_to_all
  DealtSizes sizes = {};   // of it
  std::promise<void> done = {};
};

// The state that the processes share.
class ThreadWorld {
 public:
  explicit ThreadWorld(int processes)
      : barrier_(processes), texts_(static_cast<size_t>(processes)), posted_(texts_.size()) {}

  std::vector<std::string> gather(int process, const std::string& own) {
    texts_[static_cast<size_t>(process)] = own;
    barrier_.arrive_and_wait();
    auto all = texts_;
    barrier_.arrive_and_wait();  // no process writes its next text while another one still reads
    return all;
  }

  std::future<void> post(int number, int process, ThreadPost own) {
    const std::lock_guard lock(mutex_);
    auto done = own.done.get_future();
    auto& line = line_of(number);
    const auto i = static_cast<size_t>(process);
    if (line.errors[i]) {
      own.done.set_exception(line.errors[i]);
      return done;
    }
    line.posts[i].push_back(std::move(own));
    ++posted_[i];
    changed_.notify_all();
    const bool complete =
        std::none_of(line.posts.begin(), line.posts.end(), [](const auto& posts) { return posts.empty(); });
    if (complete) run_next(line);
    return done;
  }

  void await_posts(int process, int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return posted_[static_cast<size_t>(process)] >= count; });
  }

  // Ends the waits of one process on one channel.
  void abort(int number, int process, const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    end(line_of(number), static_cast<size_t>(process), error);
  }

  void close(int number, int process) {
    const auto error = std::make_exception_ptr(PeerError(fmt::format("process {} left a channel", process)));
    const std::lock_guard lock(mutex_);
    end_all(line_of(number), error);
  }

  void vanish(int process) {
    const auto error = std::make_exception_ptr(PeerError(fmt::format("process {} is gone", process)));
    barrier_.abort(error);
    const std::lock_guard lock(mutex_);
    if (!gone_) gone_ = error;
    for (auto& entry : lines_) end_all(entry.second, error);
  }

 private:
  struct Line {                                  // one channel
    std::vector<std::vector<ThreadPost>> posts;  // by process: those that some process has not posted yet
    std::vector<std::exception_ptr> errors;      // by process: ends its waits
  };

  Line& line_of(int number) {
    const auto found = lines_.find(number);
    if (found != lines_.end()) return found->second;
    Line line{std::vector<std::vector<ThreadPost>>(texts_.size()),
              std::vector<std::exception_ptr>(texts_.size(), gone_)};
    return lines_.emplace(number, std::move(line)).first->second;
  }

  static void end(Line& line, size_t process, const std::exception_ptr& error) {
    auto& first = line.errors[process];
    if (!first) first = error;
    for (auto& post : line.posts[process]) post.done.set_exception(first);
    line.posts[process].clear();
  }

  static void end_all(Line& line, const std::exception_ptr& error) {
    for (size_t process = 0; process < line.errors.size(); ++process) end(line, process, error);
  }

  static void run_next(Line& line) {
    std::vector<ThreadPost> posts;
    for (auto& queue : line.posts) {
      posts.push_back(std::move(queue.front()));
      queue.erase(queue.begin());
    }
    try {
      run(posts);
      for (auto& post : posts) post.done.set_value();
    } catch (...) {
      for (auto& post : posts) post.done.set_exception(std::current_exception());
    }
  }

  static void run(const std::vector<ThreadPost>& posts) {
    const torch::NoGradGuard no_grad;
    const auto& first = posts.front();
    for (const auto& post : posts) {
      if (post.what != first.what) {
        throw std::logic_error("processes disagree: " + first.what + " and " + post.what);
      }
    }
    if (first.root >= 0) {
      const auto from = posts[static_cast<size_t>(first.root)].tensor.clone();
      for (const auto& post : posts) post.tensor.copy_(from);
    } else if (first.out.defined()) {
      for (size_t to = 0; to < posts.size(); ++to) {
        for (size_t from = 0; from < posts.size(); ++from) {
          const auto& given = posts[from].tensor;
          if (!first.sizes.sent.empty()) {
            part(posts[to].out, posts[to].sizes.received, from)
                .copy_(part(given, posts[from].sizes.sent, to));
            continue;
          }
          posts[to].out[static_cast<int64_t>(from)].copy_(first.deals ? given[static_cast<int64_t>(to)]
                                                                      : given);
        }
      }
    } else {
      const auto sum = first.tensor.clone();
      for (size_t i = 1; i < posts.size(); ++i) sum.add_(posts[i].tensor);
      for (const auto& post : posts) post.tensor.copy_(sum);
    }
  }

  static torch::Tensor part(const torch::Tensor& tensor, const std::vector<int64_t>& sizes, size_t number) {
    const auto first = sizes.begin(), own = first + static_cast<std::ptrdiff_t>(number);
    return tensor.view({-1}).narrow(0, std::accumulate(first, own, int64_t{0}), *own);
  }

  Barrier barrier_;
  std::vector<std::string> texts_;  // of gather(), by process
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> posted_;    // number of posts, by process
  std::map<int, Line> lines_;  // channels by number, in the order in which they were opened
  std::exception_ptr gone_;    // for channels that are opened after a process has vanished
};

class ThreadChannel : public Channel {
 public:
  ThreadChannel(std::shared_ptr<ThreadWorld> world, int processes, int process, int number)
      : world_(std::move(world)), processes_(processes), process_(process), number_(number) {}
  ~ThreadChannel() override { world_->close(number_, process_); }

  std::future<void> allreduce_sum(torch::Tensor tensor) override {
    return post({.what = named("allreduce", tensor), .tensor = tensor.detach()});
  }
  std::future<void> broadcast(torch::Tensor tensor, int process) override {
    if (process < 0 || process >= processes_) throw std::logic_error("broadcast from no process");
    const auto what = named(fmt::format("broadcast from {}", process), tensor);
    return post({.what = what, .root = process, .tensor = tensor.detach()});
  }
  std::future<void> all_gather(torch::Tensor tensor, torch::Tensor out) override {
    auto shape = tensor.sizes().vec();
    shape.insert(shape.begin(), processes_);
    if (out.sizes().vec() != shape || out.scalar_type() != tensor.scalar_type()) {
      throw std::logic_error("all_gather into a wrong tensor: " + named("out", out));
    }
    return post({.what = named("all_gather", tensor), .tensor = tensor.detach(), .out = out.detach()});
  }
  std::future<void> all_to_all(torch::Tensor tensor, torch::Tensor out, DealtSizes sizes) override {
    const auto fit = [&](const std::vector<int64_t>& parts, const torch::Tensor& of) {
      return parts.size() == static_cast<size_t>(processes_) &&
             std::accumulate(parts.begin(), parts.end(), int64_t{0}) == of.numel();
    };
    if (!sizes.sent.empty()) {
      if (!fit(sizes.sent, tensor) || !fit(sizes.received, out)) {
        throw std::logic_error("all_to_all of " + named("tensor", tensor) + " into " + named("out", out));
      }
      return post({.what = fmt::format("all_to_all of {}", torch::toString(tensor.scalar_type())),
                   .tensor = tensor.detach(),
                   .out = out.detach(),
                   .deals = true,
                   .sizes = std::move(sizes)});
    }
    if (tensor.dim() == 0 || tensor.size(0) != processes_ || out.sizes() != tensor.sizes() ||
        out.scalar_type() != tensor.scalar_type() || out.is_alias_of(tensor)) {
      throw std::logic_error("all_to_all of " + named("tensor", tensor) + " into " + named("out", out));
    }
    return post(
        {.what = named("all_to_all", tensor), .tensor = tensor.detach(), .out = out.detach(), .deals = true});
  }
  void abort(std::exception_ptr error) noexcept override { world_->abort(number_, process_, error); }

 private:
  // "allreduce of 5 Float"
  static std::string named(const std::string& what, const torch::Tensor& tensor) {
    auto name = fmt::format("{} of {} {}", what, tensor.numel(), torch::toString(tensor.scalar_type()));
    if (tensor.is_cpu() && tensor.is_contiguous()) return name;
    throw std::logic_error(name + ", which is not contiguous host memory");
  }

  std::future<void> post(ThreadPost own) { return world_->post(number_, process_, std::move(own)); }

  const std::shared_ptr<ThreadWorld> world_;
  const int processes_;
  const int process_;
  const int number_;
};

class ThreadProcessGroup : public ProcessGroup {
 public:
  ThreadProcessGroup(std::shared_ptr<ThreadWorld> shared, int process, int processes)
      : shared_(std::move(shared)),
        world_({.process = process,
                .processes = processes,
                .process_on_host = process,
                .processes_on_host = processes,
                .master_host = "memory",
                .launcher = "a test"}) {}

  const World& world() const override { return world_; }

  std::vector<std::string> gather(const std::string& own) override {
    return shared_->gather(world_.process, own);
  }

  std::vector<std::unique_ptr<Channel>> make_channels(int count) override {
    const auto own = fmt::format("opens {} channels", count);
    for (const auto& other : gather(own)) {
      if (other != own) throw std::logic_error("one process " + own + ", another one says: " + other);
    }
    std::vector<std::unique_ptr<Channel>> channels;
    for (int i = 0; i < count; ++i) {
      channels.push_back(
          std::make_unique<ThreadChannel>(shared_, world_.processes, world_.process, opened_++));
    }
    return channels;
  }

  void vanish() { shared_->vanish(world_.process); }
  void await_posts(int count) { shared_->await_posts(world_.process, count); }

 private:
  const std::shared_ptr<ThreadWorld> shared_;
  const World world_;
  int opened_ = 0;
};

}  // namespace detail

inline std::vector<Group> thread_process_groups(int count) {
  if (count == 1) return {nullptr};
  const auto shared = std::make_shared<detail::ThreadWorld>(count);
  std::vector<Group> all;
  for (int process = 0; process < count; ++process) {
    all.push_back(std::make_shared<detail::ThreadProcessGroup>(shared, process, count));
  }
  return all;
}

inline void vanish(ProcessGroup& group) { dynamic_cast<detail::ThreadProcessGroup&>(group).vanish(); }

inline void await_posts(ProcessGroup& group, int count) {
  dynamic_cast<detail::ThreadProcessGroup&>(group).await_posts(count);
}

inline void run_processes(int count, const std::function<void(int, const Group&)>& task) {
  const auto world = thread_process_groups(count);
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> threads;
    for (int process = 0; process < count; ++process) {
      threads.emplace_back([&, process] {
        const auto& own = world[static_cast<size_t>(process)];
        try {
          task(process, own);
        } catch (...) {
          {
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
          }
          if (own) vanish(*own);
        }
      });
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::testing
