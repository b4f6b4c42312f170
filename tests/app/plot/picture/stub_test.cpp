// A build without cairo.
#include <lockstep/tests/catch.h>

#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/support/error.h>

using namespace lockstep;

TEST_CASE("without cairo nothing is drawn, and the error says what to install") {
  for (const auto format : {plot::PictureFormat::kSvg, plot::PictureFormat::kPng}) {
    try {
      plot::draw({}, format);
      FAIL("it drew");
    } catch (const Error& error) {
      CHECK(error.exit_code() == ExitCode::kFailed);
      CHECK(error.message() == "this lockstep was built without cairo: it cannot draw");
      CHECK(error.hint() == "apt-get install libcairo2-dev, then build again");
    }
  }
}
