// Tables that copies of a program share, and labels of two parts.
#include "sim/engine/shared_table.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "sim/engine/program.h"

namespace trainyard::testing {
namespace {

TEST_CASE("a table's copies do not see it change") {
  engine::SharedTable<int> one = {1, 2, 3};
  const engine::SharedTable<int> copy = one;
  CHECK(copy.data() == one.data());
  one.edit().push_back(4);
  CHECK(copy.rows() == std::vector<int>{1, 2, 3});
  CHECK(one.rows() == std::vector<int>{1, 2, 3, 4});
  CHECK(one != copy);
  const int* const own = one.data();
  one.edit()[0] = 5;
  CHECK(one.data() == own);
  const engine::SharedTable<int> empty;
  CHECK(empty.empty());
  CHECK(empty == engine::SharedTable<int>(std::vector<int>()));
}

TEST_CASE("programs with equal code are the same, whether they share it or not") {
  engine::Program one;
  one.blocks.edit().push_back({{{.subject = 1}}});
  engine::Program shared = one, written;
  written.blocks.edit().push_back({{{.subject = 1}}});
  CHECK(engine::same_code(one, shared));
  CHECK(engine::same_code(one, written));
  written.blocks.edit()[0].ops[0].waits = 1;
  CHECK_FALSE(engine::same_code(one, written));
  CHECK(engine::same_code(one, shared));
}

TEST_CASE("a label is where it is and what it is there") {
  engine::Labels labels = {"optimizer"};
  labels.where = {"layer 1"};
  labels.what.edit().push_back(": gemm");
  labels.parts.edit().push_back({0, 1});
  labels.parts.edit().push_back({0, engine::Labels::kNothing});
  CHECK(labels.all() == std::vector<std::string>{"optimizer", "layer 1: gemm", "layer 1"});
  engine::Labels moved = labels;
  moved.where = {"layer 2"};
  CHECK(moved[1] == "layer 2: gemm");
  CHECK(moved != labels);
  moved.where = labels.where;
  CHECK(moved == labels);
}

}  // namespace
}  // namespace trainyard::testing
