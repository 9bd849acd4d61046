#include "calibrate/probe/suites/gemm_shapes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

using namespace trainyard::probe;

namespace {

constexpr Type kTypes[] = {Type::fp32, Type::tf32, Type::fp16, Type::bf16, Type::fp8};

auto key(const GemmShape& s) {
  return std::make_tuple(s.m, s.n, s.k, s.batch, s.layout);
}

}  // namespace

TEST_CASE("no shape is measured twice, and every one fits into the memory that is given") {
  GemmLimits limits;
  limits.input_bytes = std::size_t{256} << 20;
  limits.output_bytes = std::size_t{64} << 20;
  limits.flops = 1e12;
  for (const Type type : kTypes) {
    CAPTURE(type_name(type));
    const std::vector<GemmShape> shapes = gemm_shapes(type, 1000, limits);
    CHECK(shapes.size() >= 500);
    std::set<decltype(key(shapes.front()))> known;
    for (const GemmShape& s : shapes) {
      CHECK(known.insert(key(s)).second);
      CHECK(std::min({s.m, s.n, s.k, s.batch}) >= 1);
      CHECK(std::max({s.m, s.n, s.k}) <= 65536);
      const double bytes = static_cast<double>(type_bytes(type));
      const double batch = static_cast<double>(s.batch);
      CHECK(batch * static_cast<double>(s.m * s.k + s.k * s.n) * bytes <= 256.0 * 1048576);
      CHECK(batch * static_cast<double>(s.m * s.n) * std::max(bytes, 2.0) <= 64.0 * 1048576);
      CHECK(2 * batch * static_cast<double>(s.m) * static_cast<double>(s.n * s.k) <= 1e12);
    }
  }
}

TEST_CASE("a shorter list is the beginning of a longer one") {
  for (const Type type : kTypes) {
    const std::vector<GemmShape> all = gemm_shapes(type, 700);
    const std::vector<GemmShape> few = gemm_shapes(type, 90);
    REQUIRE(few.size() == 90);
    for (std::size_t i = 0; i < few.size(); ++i)
      CHECK(key(few[i]) == key(all[i]));
  }
}

TEST_CASE("the first eight shapes are the corners, the first 64 a grid of three sizes each") {
  for (const Type type : {Type::bf16, Type::fp16, Type::fp8}) {
    const std::vector<GemmShape> shapes = gemm_shapes(type, 64);
    std::set<std::tuple<int, int, int>> corners, grid;
    const auto level = [](std::int64_t size) { return size <= 128 ? 0 : (size >= 8192 ? 2 : 1); };
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const GemmShape& s = shapes[i];
      const auto place = std::make_tuple(level(s.m), level(s.n), level(s.k));
      grid.insert(place);
      if (i < 8 && level(s.m) != 1 && level(s.n) != 1 && level(s.k) != 1) corners.insert(place);
    }
    CHECK(corners.size() == 8);
    CHECK(grid.size() == 27);
  }
}

TEST_CASE("every octave of m, n and k is visited by the first 400 shapes") {
  const std::vector<GemmShape> shapes = gemm_shapes(Type::bf16, 400);
  for (const auto size : {&GemmShape::m, &GemmShape::n, &GemmShape::k}) {
    std::map<int, int> octaves;
    for (const GemmShape& shape : shapes)
      ++octaves[static_cast<int>(std::log2(static_cast<double>(shape.*size)))];
    for (int octave = 6; octave <= 14; ++octave) {
      CAPTURE(octave);
      CHECK(octaves[octave] >= 4);
    }
  }
}

TEST_CASE("real layers, batches, skinny and uneven products all have their share") {
  const std::vector<GemmShape> shapes = gemm_shapes(Type::bf16, 1500);
  REQUIRE(shapes.size() == 1500);
  int batched = 0, skinny = 0, uneven = 0;
  std::map<Layout, int> layouts;
  std::map<std::int64_t, int> hidden;
  for (const GemmShape& s : shapes) {
    batched += s.batch > 1;
    skinny += std::min(s.m, s.n) < 64;
    uneven += s.batch == 1 && (s.n % 8 != 0 || s.k % 8 != 0);
    ++layouts[s.layout];
    ++hidden[s.n];
    ++hidden[s.k];
  }
  CHECK(batched >= 60);
  CHECK(skinny >= 60);
  CHECK(uneven >= 40);
  CHECK(uneven < 150);
  for (const std::int64_t size : {768, 1024, 1600, 2560, 4096, 5120, 8192, 12288, 16384}) {
    CAPTURE(size);
    CHECK(hidden[size] >= 15);
  }
  for (const Layout layout : {Layout::tn, Layout::nn, Layout::nt})
    CHECK(layouts[layout] > 300);
}

TEST_CASE("all sizes of fp8 are multiples of 16, and its layout is TN") {
  for (const GemmShape& s : gemm_shapes(Type::fp8, 900)) {
    CHECK(s.m % 16 + s.n % 16 + s.k % 16 == 0);
    CHECK(s.layout == Layout::tn);
    CHECK(s.batch == 1);
  }
}
