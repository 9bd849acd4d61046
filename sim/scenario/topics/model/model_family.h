// What a scenario says under /model, by families of networks: one row a family, its fields and its
// network written where the family is described.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/families/network.h"
#include "sim/json/fields.h"
#include "sim/json/value.h"

namespace trainyard::scenario {

struct Findings;

// The fields of one family, as read.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;
  // All but those that every family has; see visit_image_input.
  virtual void visit(json::Fields& f) = 0;
  // Requires: the fields were read without an error, from `model`.
  virtual models::Network assemble(const json::Value& model, Findings& findings) const = 0;
  // Fills in what the network has that no field said, for `explain`.
  virtual void fill_from(const models::Network&) {}
};

struct ModelFamilyRow {
  std::string_view name;  // of /model/kind: models::Family::name
  std::unique_ptr<ModelFamily> (*make)();
};

// All families that fields describe; the first is what a /model without a kind is.
std::span<const ModelFamilyRow> model_families();

struct ImageInput {
  std::vector<std::int64_t> image_size;  // channels, height, width
};
void visit_fields(json::Fields& f, ImageInput& s);

// The field "input". Whether there is one.
bool visit_image_input(json::Fields& f, ImageInput& input);

struct ModelSection {
  ModelSection();
  std::size_t family = 0;                              // into model_families()
  std::vector<std::unique_ptr<ModelFamily>> families;  // by row
};
void visit_fields(json::Fields& f, ModelSection& s);

// The network; `document` is what the section was read from.
models::Network assemble_network(const ModelSection& section, const json::Value& document,
                                 Findings& findings);

}  // namespace trainyard::scenario
