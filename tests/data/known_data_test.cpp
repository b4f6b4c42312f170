#include <lockstep/tests/catch.h>

#include <lockstep/data/known_data.h>

using namespace lockstep;

TEST_CASE("each data set with a name has the rows that were asked for, in the shape that it says") {
  for (const auto& known : known_data()) {
    INFO(known.name);
    CHECK(known.train_rows > 0);
    CHECK(known.test_rows > 0);
    const auto data = known.make(/*seed=*/1, /*train_rows=*/30, /*test_rows=*/20);
    CHECK(data.name == known.name);
    CHECK(data.train.rows == 30);
    CHECK(data.test.rows == 20);
    for (const auto* rows : {&data.train, &data.test}) {
      const auto source = rows->sources(torch::kCPU);
      REQUIRE(source->size() == rows->rows);
      Batch batch(std::make_shared<const BatchSpec>(source->spec()));
      source->gather(torch::arange(5), /*epoch=*/0, batch);
      CHECK((source->spec() == data.spec));
      CHECK(batch.input()[0].sizes().vec() == data.spec.at(0).row_shape);
      CHECK(batch.target().min().item<int64_t>() >= 0);
      CHECK(batch.target().max().item<int64_t>() < class_count(data));
    }
  }
}

TEST_CASE("the hash of a data set's first rows is that of a data set with these rows alone") {
  const auto* known = find_known_data("synthetic");
  REQUIRE(known != nullptr);
  const auto many = known->make(1, 30, 20), few = known->make(1, 7, 4);
  CHECK(many.train.hash_of_first(7) == few.train.hash_of_first(7));
  CHECK(many.test.hash_of_first(4) == few.test.hash_of_first(4));
  CHECK(many.train.hash_of_first(7) != many.train.hash_of_first(8));
  CHECK(many.train.hash_of_first(7) != known->make(2, 7, 4).train.hash_of_first(7));
}
