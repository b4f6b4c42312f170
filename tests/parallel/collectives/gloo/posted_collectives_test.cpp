#include <lockstep/parallel/collectives/gloo/posted_collectives.h>
#include <lockstep/tests/catch.h>
#include <optional>

#include <lockstep/tests/parallel/collectives/gloo/joined.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

bool is_ready(const std::future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::string peer_error_of(std::future<void>& future) {
  return message_of<PeerError>([&] { future.get(); });
}

std::exception_ptr peer_error(const std::string& what) { return std::make_exception_ptr(PeerError(what)); }

PostedCollective allreduce(uint64_t number) {
  return {.number = number, .name = "allreduce", .elements = 25'600, .type = "float32"};
}

// The number of the awaited collective; nullopt: none.
std::optional<uint64_t> awaited_number(const PostedCollectives& posted) {
  const auto awaited = posted.awaited();
  return awaited ? std::optional(awaited->collective.number) : std::nullopt;
}

}  // namespace

TEST_CASE("each collective ends by itself, and a second end does nothing") {
  PostedCollectives posted;
  CHECK(posted.idle());
  auto first = posted.begin(allreduce(0));
  auto second = posted.begin(allreduce(1));
  CHECK_FALSE(posted.idle());
  posted.finish(1);
  posted.finish(1);
  posted.finish(7);
  CHECK(is_ready(second));
  CHECK_FALSE(is_ready(first));
  posted.finish(0);
  CHECK(posted.idle());
  CHECK_FALSE(posted.failed());
  CHECK_FALSE(posted.lost_any());
  first.get();
  second.get();
}

TEST_CASE("an error ends all collectives under way and all later ones; the first error stays") {
  PostedCollectives posted;
  auto finished = posted.begin(allreduce(0));
  auto first = posted.begin(allreduce(1));
  auto second = posted.begin(allreduce(2));
  posted.finish(0);
  posted.fail(peer_error("the first"));
  posted.fail(peer_error("the second"));
  auto later = posted.begin(allreduce(3));
  posted.finish(1);  // Gloo's thread comes late
  CHECK(posted.failed());
  CHECK(posted.lost_any());
  CHECK_FALSE(posted.idle());
  finished.get();
  CHECK(peer_error_of(first) == "the first");
  CHECK(peer_error_of(second) == "the first");
  CHECK(peer_error_of(later) == "the first");
}

TEST_CASE("a foreseen error ends nothing by itself, and takes the place of the one that does") {
  PostedCollectives posted;
  auto first = posted.begin(allreduce(0));
  auto second = posted.begin(allreduce(1));
  posted.preset_error(peer_error("calls differ"));
  posted.preset_error(peer_error("the second"));
  posted.finish(0);
  first.get();
  auto third = posted.begin(allreduce(2));
  CHECK_FALSE(posted.failed());
  CHECK_FALSE(is_ready(second));
  CHECK(awaited_number(posted) == 1);
  posted.fail(peer_error("Connection closed by peer"));
  CHECK(peer_error_of(second) == "calls differ");
  CHECK(peer_error_of(third) == "calls differ");

  PostedCollectives failed;
  auto lost = failed.begin(allreduce(0));
  failed.fail(peer_error("Connection closed by peer"));
  failed.preset_error(peer_error("too late"));
  auto later = failed.begin(allreduce(1));
  CHECK(peer_error_of(lost) == "Connection closed by peer");
  CHECK(peer_error_of(later) == "Connection closed by peer");
}

TEST_CASE("an error while nothing is under way ends no collective, until one begins") {
  PostedCollectives posted;
  auto finished = posted.begin(allreduce(0));
  posted.finish(0);
  posted.fail(peer_error("closed"));
  CHECK(posted.failed());
  CHECK_FALSE(posted.lost_any());
  auto later = posted.begin(allreduce(1));
  CHECK(posted.lost_any());
  CHECK(peer_error_of(later) == "closed");
}

TEST_CASE("the oldest collective under way is awaited, and stays so after an error") {
  PostedCollectives posted;
  CHECK_FALSE(awaited_number(posted));
  posted.begin(allreduce(4));
  posted.begin(allreduce(5));
  CHECK(awaited_number(posted) == 4);
  posted.finish(4);
  CHECK(awaited_number(posted) == 5);
  CHECK_FALSE(posted.awaited()->failed);
  posted.begin(allreduce(6));
  posted.fail(peer_error("lost"));
  const auto failed = posted.awaited();
  CHECK(failed->collective.number == 5);
  CHECK(failed->failed);
  posted.fail(peer_error("again"));
  CHECK(posted.awaited()->end == failed->end);

  PostedCollectives idle;
  idle.fail(peer_error("lost"));
  CHECK_FALSE(idle.awaited());
}

TEST_CASE("a collective is named with its number, its root, its elements and their type") {
  CHECK(text_of(allreduce(17)) == "allreduce 17 of 25,600 float32");
  const PostedCollective broadcast{
      .number = 0, .name = "broadcast", .root = 2, .elements = 1, .type = "int64"};
  CHECK(text_of(broadcast) == "broadcast 0 from process 2 of 1 int64");
}
