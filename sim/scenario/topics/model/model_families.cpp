// The families of networks that a scenario can describe, and /model as a whole.
#include <array>

#include "models/layers/layer_table.h"
#include "models/recommender/recommender.h"
#include "models/transformer/networks.h"
#include "sim/scenario/sources.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/model/model_family.h"

namespace trainyard::scenario {

// Each stands with the fields of its family.
std::unique_ptr<ModelFamily> transformer_family();
std::unique_ptr<ModelFamily> encoder_family();
std::unique_ptr<ModelFamily> encoder_decoder_family();
std::unique_ptr<ModelFamily> vision_transformer_family();
std::unique_ptr<ModelFamily> recommender_family();
std::unique_ptr<ModelFamily> layers_family();

std::span<const ModelFamilyRow> model_families() {
  static const std::array<ModelFamilyRow, 6> rows = {
      {{models::family<models::Transformer>().name, transformer_family},
       {models::family<models::Encoder>().name, encoder_family},
       {models::family<models::EncoderDecoder>().name, encoder_decoder_family},
       {models::family<models::VisionTransformer>().name, vision_transformer_family},
       {models::family<models::Recommender>().name, recommender_family},
       {models::family<models::LayerNetwork>().name, layers_family}}};
  return rows;
}

namespace {

// What networks of all families may say.
void visit_common(json::Fields& f) {
  f.source({.key = "preset",
            .need = json::optional,
            .about = "A file of configs/models.",
            .known = shipped_models});
  f.source({.key = "hf_config",
            .need = json::optional,
            .about = "Path of a Hugging Face config.json, relative to this file."});
  f.accepted("description", "For people.");
  f.accepted("source", "Where the numbers come from.");
}

}  // namespace

ModelSection::ModelSection() {
  for (const ModelFamilyRow& row : model_families())
    families.push_back(row.make());
}

void visit_fields(json::Fields& f, ImageInput& s) {
  f.list("image_size", s.image_size, json::required, json::between(1, 65536),
         "Channels, height, width.");
  if (!s.image_size.empty() && s.image_size.size() != 3)
    f.problem("image_size", "expected three numbers: channels, height, width");
}

bool visit_image_input(json::Fields& f, ImageInput& input) {
  return f.section("input", input, json::optional, "What a network of images sees.");
}

void visit_fields(json::Fields& f, ModelSection& s) {
  std::vector<std::string_view> names;
  for (const ModelFamilyRow& row : model_families())
    names.push_back(row.name);
  f.alternatives({"kind", json::optional, json::anything,
                  "Family of the network; transformer is a decoder alone, of the GPT or Llama "
                  "kind."},
                 names, s.family, [&s](json::Fields& fields) {
                   visit_common(fields);
                   s.families[s.family]->visit(fields);
                 });
}

models::Network assemble_network(const ModelSection& section, const json::Value& document,
                                 Findings& findings) {
  return section.families[section.family]->assemble(*document.find("model"), findings);
}

}  // namespace trainyard::scenario
