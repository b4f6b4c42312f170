// Rows that are read ahead within bounds: dataset_rows() with most_ahead.
#include <lockstep/tests/catch.h>

#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <semaphore>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/dataset_rows.h>
#include <lockstep/data/rows_ahead.h>
#include <lockstep/tests/data/noisy_rows.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Numbers = std::vector<int64_t>;

const BatchSpec kNoisySpec = {{.name = "noise", .row_shape = {3}},
                              {.name = "row", .dtype = torch::kInt64, .role = Role::kTarget}};

void ask_for(const BatchSource& source, const Numbers& rows) {
  Batch batch(std::make_shared<const BatchSpec>(source.spec()));
  const auto numbers = torch::tensor(rows, torch::kInt64);
  source.gather(numbers, /*epoch=*/0, batch);
  CHECK(batch.target().equal(numbers));
}

std::shared_ptr<const BatchSource> bounded(const NoisyRows& rows, int workers, int64_t most_ahead,
                                           Notice notice = {}) {
  return dataset_rows(
      rows, {.spec = kNoisySpec, .workers = workers, .most_ahead = most_ahead, .notice = std::move(notice)})(
      torch::kCPU);
}

}  // namespace

TEST_CASE("workers read so many rows ahead and no more, and batches come all the same") {
  for (const int workers : {1, 3}) {
    INFO(workers << " workers");
    std::latch two(2);
    std::atomic<int> reads = 0;
    const NoisyRows rows(8, [&](size_t) {
      if (reads++ < 2) two.count_down();
    });
    const auto source = bounded(rows, workers, 2);
    source->will_need(Numbers{0, 1, 2, 3}, 0);
    source->will_need(Numbers{4, 5, 6, 7}, 0);
    two.wait();
    ask_for(*source, {6, 7});  // has no room, and needs none
    CHECK(rows.asked->count() <= 4);
    ask_for(*source, {3, 2, 1, 0});
    ask_for(*source, {4, 5});
    CHECK(rows.asked->count() == 8);
  }
}

TEST_CASE("a row is begun when there is room, or a batch asks for it, and by one thread") {
  std::stop_source stop;
  stop.request_stop();  // nobody waits: what has no room is refused
  RowsAhead ahead(2);
  const auto told = ahead.tell(Numbers{4, 0, 2, -1, 9}, 0, 9);
  REQUIRE(told.size() == 3);
  CHECK(ahead.begin_ahead(*told[0], stop.get_token()));
  CHECK_FALSE(ahead.begin(*told[0]));
  CHECK(ahead.begin_ahead(*told[1], stop.get_token()));
  CHECK_FALSE(ahead.begin_ahead(*told[2], stop.get_token()));
  PendingRows unread;
  CHECK(ahead.take(Numbers{4}, 0, unread).front() == told[0]);  // gives its room
  CHECK(unread.empty());
  CHECK(ahead.begin_ahead(*told[2], stop.get_token()));
  const auto more = ahead.tell(Numbers{5, 6}, 0, 9);
  CHECK_FALSE(ahead.begin_ahead(*more[0], stop.get_token()));
  CHECK(ahead.take(Numbers{5}, 0, unread).front() == more[0]);
  CHECK(ahead.begin_ahead(*more[0], stop.get_token()));  // without room
  CHECK_FALSE(ahead.begin_ahead(*more[1], stop.get_token()));
  CHECK(ahead.tell(Numbers{}, 1, 9).empty());
  CHECK(ahead.tell(Numbers{}, 2, 9).empty());  // forgets epoch 0
  CHECK(ahead.tell(Numbers{6}, 0, 9).front() != more[1]);
}

TEST_CASE("rows that nobody was told of come with a bound, too, and a source may end with a full queue") {
  for (const int workers : {1, 3}) {
    std::latch full(1);
    std::atomic<bool> first = true;
    const auto source = bounded(NoisyRows(8,
                                          [&](size_t) {
                                            if (first.exchange(false)) full.count_down();
                                          }),
                                workers, 1);
    ask_for(*source, {7, 6, 5, 4, 3});
    source->will_need(Numbers{0, 1, 2, 3, 4, 5}, 0);
    full.wait();
    ask_for(*source, {7});
  }
}

TEST_CASE("rows that no batch asks for give their room to others") {
  std::latch seventh(1);
  std::atomic<bool> first = true;
  const auto source = bounded(NoisyRows(8,
                                        [&](size_t row) {
                                          if (row == 7 && first.exchange(false)) seventh.count_down();
                                        }),
                              1, 2);
  source->will_need(Numbers{0, 1}, 0);
  for (int i = 0; i < 70; ++i) {
    source->will_need(Numbers{2}, 0);
    ask_for(*source, {2});
  }
  source->will_need(Numbers{7}, 0);
  seventh.wait();
  ask_for(*source, {7, 0, 1});
}

TEST_CASE("readers that do not keep up are told of once, and those that do are not") {
  std::vector<std::string> notices;
  const auto note = [&](const std::string& text) { notices.push_back(text); };
  std::counting_semaphore<> begun(0);
  const NoisyRows rows(200, [&](size_t) { begun.release(); });
  {
    const auto source = bounded(rows, 1, 0, note);
    source->will_need(Numbers{0}, 0);
    begun.acquire();
    for (int64_t row = 0; row < 100; ++row) {
      source->will_need(Numbers{row + 1}, 0);
      begun.acquire();  // the one worker has read the row before
      ask_for(*source, {row});
    }
  }
  CHECK(notices.empty());
  const auto source = bounded(rows, 1, 1, note);
  for (int batch = 0; batch < 31; ++batch) {
    source->will_need(Numbers{2, 3}, 0);  // there is room for one
    ask_for(*source, {2, 3});
  }
  CHECK(notices.empty());
  for (int batch = 0; batch < 99; ++batch) {
    source->will_need(Numbers{2, 3}, 0);
    ask_for(*source, {2, 3});
  }
  REQUIRE(notices.size() == 1);
  CHECK(notices.front() ==
        "1 reading thread does not keep up: half of the last batches waited for their rows");
}

TEST_CASE("a bound below 0 is refused") {
  CHECK(refusal_of([] { dataset_rows(NoisyRows(4), {.most_ahead = -1}); }) == "most_ahead is -1");
}
