#include <lockstep/parallel/collectives/gloo/posted_collectives.h>
#include <lockstep/tests/catch.h>

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

}  // namespace

TEST_CASE("each collective ends by itself, and a second end does nothing") {
  PostedCollectives posted;
  CHECK(posted.idle());
  auto first = posted.begin(0);
  auto second = posted.begin(1);
  CHECK_FALSE(posted.idle());
  posted.finish(1);
  posted.finish(1);
  posted.finish(7);
  CHECK(is_ready(second));
  CHECK_FALSE(is_ready(first));
  posted.finish(0);
  CHECK(posted.idle());
  CHECK_FALSE(posted.failed());
  first.get();
  second.get();
}

TEST_CASE("an error ends all collectives under way and all later ones; the first error stays") {
  PostedCollectives posted;
  auto finished = posted.begin(0);
  auto first = posted.begin(1);
  auto second = posted.begin(2);
  posted.finish(0);
  posted.fail(peer_error("the first"));
  posted.fail(peer_error("the second"));
  auto later = posted.begin(3);
  posted.finish(1);  // Gloo's thread comes late
  CHECK(posted.failed());
  CHECK_FALSE(posted.idle());
  finished.get();
  CHECK(peer_error_of(first) == "the first");
  CHECK(peer_error_of(second) == "the first");
  CHECK(peer_error_of(later) == "the first");
}
