// The words of an error to handlers that know it, and to those that know std::exception alone.
#include <lockstep/tests/catch.h>

#include <stdexcept>
#include <string>

#include <lockstep/support/error.h>
#include <lockstep/support/words_of.h>

using namespace lockstep;

TEST_CASE("what() of an error has its hint, message() has not") {
  const auto what = [](const auto& error) {
    try {
      throw error;
    } catch (const std::exception& caught) {
      return std::string(caught.what());
    }
  };
  const UsageError with("2 shares for 3 replicas", "give one share per replica");
  CHECK(with.message() == "2 shares for 3 replicas");
  CHECK(with.hint() == "give one share per replica");
  CHECK(what(with) == "2 shares for 3 replicas\nhint: give one share per replica");
  const PeerError without("lost");
  CHECK(without.message() == "lost");
  CHECK(what(without) == "lost");
  CHECK(what(OutOfSyncError("they differ", "stop")) == "they differ\nhint: stop");
  CHECK(what(Error(ExitCode::kData, "damaged", "repair it")) == "damaged\nhint: repair it");
}

TEST_CASE("words_of() an exception are one sentence, without hint and backtrace") {
  CHECK(words_of(DataError("damaged", "repair it")) == "damaged");
  CHECK(words_of(std::runtime_error("plain")) == "plain");
  CHECK(words_of(c10::Error({__func__, __FILE__, __LINE__}, "by torch")) == "by torch");
}
