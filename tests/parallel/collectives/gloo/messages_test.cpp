#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/tests/catch.h>

using namespace lockstep;

TEST_CASE("words of c10d and Gloo become one clean sentence") {
  CHECK(clean_words("[../third_party/gloo/gloo/transport/tcp/pair.cc:544] Connection closed by peer "
                    "[127.0.0.1]:40412") == "Connection closed by peer [127.0.0.1]:40412");
  CHECK(clean_words("Gloo connectFullMesh failed with [/pytorch/gloo/transport/tcp/device.h:12] timed out") ==
        "Gloo connectFullMesh failed with timed out");
  CHECK(clean_words("read: reset by [::1]:40412") == "read: reset by [::1]:40412");
  CHECK(clean_words("Connection reset by peer\nException raised from recvBytes at Utils.hpp:678 (most recent "
                    "call first):\nframe #0: c10::Error::Error + 0x1") == "Connection reset by peer");
  CHECK(clean_words("it broke Exception raised from f at x.cpp:1") == "it broke");
  CHECK(clean_words("Failed to recv, got 0 bytes. Connection was likely closed. Did the server crash?") ==
        "Failed to recv, got 0 bytes");
  CHECK(clean_words("no way to 10.0.0.1.") == "no way to 10.0.0.1");
  CHECK(clean_words("") == "unknown error");
  CHECK(clean_words("\n...") == "unknown error");
}

TEST_CASE("processes are named with their world") {
  CHECK(name_processes({2}, 4) == "process 2 of 4");
  CHECK(name_processes({2, 3}, 4) == "processes 2 and 3 of 4");
  CHECK(name_processes({0, 2, 3, 7}, 8) == "processes 0, 2, 3 and 7 of 8");
}

TEST_CASE("times are named in seconds") {
  using std::chrono::milliseconds;
  CHECK(in_seconds(milliseconds(300'000)) == "300 s");
  CHECK(in_seconds(milliseconds(1'500)) == "1.5 s");
  CHECK(in_seconds(milliseconds(1)) == "0.001 s");
}
