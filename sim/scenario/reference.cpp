#include "sim/scenario/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/scenario/reference_examples.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

using json::FieldRow;

namespace {

constexpr std::string_view kHead = R"(# Every key of a scenario

`trainyard schema --markdown` writes this page from the tables that read scenarios. A scenario is
one JSON object; `//` comments are allowed, unknown keys are errors, keys that begin with `x-` are
notes of your own. `version`, `name` and `training.global_batch` must be said, a network under
`model` (a preset, a Hugging Face `config.json`, or its fields), a machine under `cluster` (a
preset, or its fields), and of transformers `training.sequence_length`. What is left out of
`cluster.nodes`, `training.micro_batch`, `training.precision.compute` and
`training.optimizer.type` is decided as practice does, and every output names it as assumed.

`trainyard new --model llama3-8b --gpus 8xh100 > my.json` writes a scenario to start from,
`trainyard check my.json` says every mistake with its cure, and `trainyard explain my.json` shows
every value and where it comes from.

Values with a dimension are texts with their unit. Small `b` is bits, capital `B` bytes; `K`, `M`,
`G`, `T` are powers of 1000, `Ki`, `Mi`, `Gi`, `Ti` powers of 1024.

| | units | for example |
|---|---|---|
| size | `B` with any of these | `"25MiB"`, `"80GB"` |
| time | `ps`, `ns`, `us`, `ms`, `s`, `min`, `h`, `d` | `"1.5us"` |
| bandwidth, per direction | `B/s`, `bps`, `bit/s` with any of these | `"25GB/s"`, `"200Gbps"` |
| rate | `FLOP/s` with any of these | `"312TFLOP/s"` |
| power | `W`, `kW` | `"700W"` |

A key is written here as `--set` takes it: `training.micro_batch=4`. `0` stands for any place of a
list.
)";

struct Page {
  std::string_view pointer, file;
};
// The innermost of these that a key is, or stands in, names its page.
constexpr std::array<Page, 45> kPages = {{
    {"", "file-formats.md"},
    {"/references", "validation.md"},
    {"/search", "search.md"},
    {"/model", "networks.md"},
    {"/model/moe", "context-and-experts.md"},
    {"/model/latent_attention", "networks.md"},
    {"/model/tables", "recommenders.md"},
    {"/model/blocks", "layers.md"},
    {"/model/layers/0", "layers.md"},
    {"/cluster", "topologies.md"},
    {"/cluster/calibration", "calibration.md"},
    {"/cluster/calibration_of_other_gpu", "calibration.md"},
    {"/cluster/node/gpu", "cost-gemm.md"},
    {"/cluster/node/gpu/power", "guide/monitor.md"},
    {"/cluster/node/gpu/cooling", "guide/monitor.md"},
    {"/cluster/node/host", "offload.md"},
    {"/software", "software.md"},
    {"/training", "results.md"},
    {"/training/precision", "memory.md"},
    {"/training/optimizer", "memory.md"},
    {"/training/recompute", "memory.md"},
    {"/training/fused_attention", "cost-attention.md"},
    {"/training/execution", "cost-memory-bound.md"},
    {"/training/loss", "cost-memory-bound.md"},
    {"/training/softmax", "cost-memory-bound.md"},
    {"/training/embedding_optimizer", "recommenders.md"},
    {"/training/memory", "memory.md"},
    {"/training/finetune", "guide/fine-tuning.md"},
    {"/training/offload", "offload.md"},
    {"/training/input_pipeline", "guide/input-pipeline.md"},
    {"/parallelism", "data-parallel.md"},
    {"/parallelism/tp", "tensor-parallel.md"},
    {"/parallelism/sequence_parallel", "tensor-parallel.md"},
    {"/parallelism/tensor_parallel", "tensor-parallel.md"},
    {"/parallelism/pp", "schedules.md"},
    {"/parallelism/pipeline", "schedules.md"},
    {"/parallelism/cp", "context-and-experts.md"},
    {"/parallelism/context_parallel", "context-and-experts.md"},
    {"/parallelism/ep", "context-and-experts.md"},
    {"/parallelism/etp", "context-and-experts.md"},
    {"/parallelism/expert_parallel", "context-and-experts.md"},
    {"/parallelism/embedding_parallel", "recommenders.md"},
    {"/collectives", "collectives.md"},
    {"/simulation", "results.md"},
    {"/cost", "guide/cloud-or-own.md"},
}};

// Families of networks with a page of their own.
constexpr std::array<Page, 2> kKindPages = {
    {{"recommender", "recommenders.md"}, {"layers", "layers.md"}}};

std::string dotted(std::string_view pointer) {
  std::string text(pointer.substr(pointer.empty() ? 0 : 1));
  std::replace(text.begin(), text.end(), '/', '.');
  return text;
}

std::string link(const std::string& page) {
  return fmt::format("[{}]({})", page.substr(0, page.find('.')), page);
}

std::string code(const std::string& text) {
  return text.empty() ? "" : fmt::format("`{}`", text);
}

// The sentence "Default: ..." of a row's text, which stands in a column of its own.
constexpr std::string_view kDefault = "Default: ";

std::string about_of(const FieldRow& row) {
  const std::size_t at = row.about.find(kDefault);
  std::string text = row.about.substr(0, at);
  while (text.ends_with(' '))
    text.pop_back();
  std::replace(text.begin(), text.end(), '|', '/');
  return text;
}

std::string default_of(const FieldRow& row) {
  if (row.required) return "required";
  if (!row.otherwise.empty()) return code(row.otherwise);
  const std::size_t at = row.about.find(kDefault);
  if (at == std::string::npos) return "";
  std::string text = row.about.substr(at + kDefault.size());
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// Rows of one object, or of one kind of it.
struct Table {
  std::string section, kind, page;
  std::vector<FieldRow> rows;
};

Table& table_of(std::vector<Table>& tables, const FieldRow& row) {
  for (Table& table : tables)
    if (table.section == row.section && table.kind == row.kind) return table;
  Table& table = tables.emplace_back();
  table.section = row.section;
  table.kind = row.kind;
  FieldRow any = row;
  any.key = "*";
  table.page = page_of(any);
  return table;
}

std::vector<Table> tables_of(const std::vector<FieldRow>& rows) {
  std::vector<Table> tables;
  for (const FieldRow& row : rows) {
    Table& table = table_of(tables, row);
    const bool is_there = std::any_of(table.rows.begin(), table.rows.end(), [&](const FieldRow& r) {
      return r.key == row.key;  // an object that several kinds have
    });
    if (!is_there) table.rows.push_back(row);
  }
  return tables;
}

// The kinds of one object side by side, where the first of them stands.
std::vector<Table> in_sections(const std::vector<Table>& tables) {
  std::vector<Table> sorted;
  std::vector<std::string> done;
  for (const Table& table : tables) {
    if (std::find(done.begin(), done.end(), table.section) != done.end()) continue;
    done.push_back(table.section);
    for (const Table& other : tables)
      if (other.section == table.section) sorted.push_back(other);
  }
  return sorted;
}

std::string text_of(const Table& table, bool choice) {
  std::string text = "| key | value | default | example | |\n|---|---|---|---|---|\n";
  for (const FieldRow& row : table.rows) {
    if (choice && row.key == "kind") continue;
    const std::string page = page_of(row);
    text += fmt::format("| `{}` | {} | {} | {} | {}{} |\n", row.key, row.value, default_of(row),
                        code(row.example), about_of(row),
                        page == table.page ? "" : fmt::format(" ({})", link(page)));
  }
  return text;
}

std::string title_of(const Table& table) {
  return table.section.empty() ? "The scenario" : fmt::format("`{}`", dotted(table.section));
}

std::string section_text(const std::vector<Table>& tables, std::size_t& at) {
  const Table& table = tables[at];
  const std::string text = text_of(table, !table.kind.empty());
  std::string kinds = code(table.kind);
  while (at + 1 < tables.size() && !table.kind.empty() && tables[at + 1].section == table.section &&
         text_of(tables[at + 1], true) == text)
    kinds += ", " + code(tables[++at].kind);
  for (std::size_t before = 0; before < at; ++before)
    if (table.kind.empty() && text_of(tables[before], false) == text)
      return fmt::format("\n## {}\n\nThe keys of {}.\n", title_of(table), title_of(tables[before]));
  const std::string kind = kinds.empty() ? "" : fmt::format(", `kind` {}", kinds);
  return fmt::format("\n## {}{}\n\nExplained in {}.\n\n{}", title_of(table), kind, link(table.page),
                     text);
}

}  // namespace

std::vector<FieldRow> reference_rows() {
  std::vector<FieldRow> rows = json::rows_of([](json::Fields& f) {
    ScenarioSections sections;
    visit_fields(f, sections);
  });
  for (FieldRow& row : rows) {
    std::string_view better = find_example(row.kind + ":" + row.pointer());
    if (better.empty()) better = find_example(row.pointer());
    const bool is_list_of_objects = row.object && row.value.starts_with("list");
    if (!better.empty() && !is_list_of_objects) row.example = better;
    if (row.example.empty()) row.example = row.otherwise;
  }
  std::erase_if(rows, [](const FieldRow& row) {
    return row.section.starts_with("/cluster/other_nodes/0/node") ||
           row.section.starts_with("/cluster/node/other_gpus/0/gpu");
  });
  return rows;
}

std::string page_of(const FieldRow& row) {
  for (const Page& page : kKindPages)
    if (row.section == "/model" && row.kind == page.pointer) return std::string(page.file);
  const std::string pointer = row.pointer();
  const Page* best = kPages.data();
  for (const Page& page : kPages)
    if ((pointer + "/").starts_with(std::string(page.pointer) + "/") &&
        page.pointer.size() > best->pointer.size())
      best = &page;
  return std::string(best->file);
}

std::string reference_page() {
  const std::vector<Table> tables = in_sections(tables_of(reference_rows()));
  std::string text(kHead);
  for (std::size_t at = 0; at < tables.size(); ++at)
    text += section_text(tables, at);
  return text;
}

}  // namespace trainyard::scenario
