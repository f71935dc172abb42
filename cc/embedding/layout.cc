#include "cc/embedding/layout.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::tpu::TPUEmbeddingConfiguration;

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("The TPU embedding configuration ", what));
}

absl::Status AddTables(const TPUEmbeddingConfiguration& config, EmbeddingLayout* layout) {
  if (config.table_descriptor().empty()) {
    return Invalid("has no tables. Describe at least one.");
  }
  absl::flat_hash_set<std::string> names;
  for (const auto& described : config.table_descriptor()) {
    EmbeddingLayout::Table table;
    table.name = described.name();
    table.rows = described.vocabulary_size();
    table.dim = described.dimension();
    if (table.name.empty() || !names.insert(table.name).second) {
      return Invalid(absl::StrCat("names table ", layout->tables.size(), " '", table.name,
                                  "'. Give every table a name of its own."));
    }
    if (table.rows <= 0 || table.dim <= 0) {
      return Invalid(absl::StrCat("gives table '", table.name, "' ", table.rows, " rows of ",
                                  table.dim, " values; both must be positive."));
    }
    if (!config.feature_descriptor().empty()) {
      if (described.num_features() != 0) {
        return Invalid(absl::StrCat("describes features and gives table '", table.name,
                                    "' num_features=", described.num_features(),
                                    ". Leave num_features out."));
      }
    } else {
      table.batch_size = config.batch_size_per_tensor_core();
      table.num_features = described.num_features();
      if (table.batch_size <= 0 || table.num_features <= 0) {
        return Invalid(absl::StrCat("describes no features, and has batch_size_per_tensor_core=",
                                    table.batch_size, " and num_features=", table.num_features,
                                    " for table '", table.name, "'; both must be positive."));
      }
    }
    layout->tables.push_back(std::move(table));
  }
  return absl::OkStatus();
}

absl::Status AddFeatures(const TPUEmbeddingConfiguration& config, EmbeddingLayout* layout) {
  if (config.batch_size_per_tensor_core() != 0) {
    return Invalid(absl::StrCat("describes features and has batch_size_per_tensor_core=",
                                config.batch_size_per_tensor_core(), ". Leave that out."));
  }
  std::vector<bool> used(layout->tables.size(), false);
  for (const auto& feature : config.feature_descriptor()) {
    EmbeddingLayout::Output output;
    output.name = feature.name().empty() ? absl::StrCat("feature ", layout->outputs.size())
                                         : absl::StrCat("feature ", layout->outputs.size(), " ('",
                                                        feature.name(), "')");
    output.table = feature.table_id();
    if (output.table < 0 || output.table >= static_cast<int>(layout->tables.size())) {
      return Invalid(absl::StrCat("takes ", output.name, " from table ", output.table,
                                  "; there are ", layout->tables.size(),
                                  " tables, numbered from zero."));
    }
    used[output.table] = true;
    output.rows = 1;
    for (int64_t size : feature.input_shape()) {
      if (size <= 0) {
        return Invalid(absl::StrCat("gives ", output.name, " a dimension of ", size,
                                    "; all must be positive."));
      }
      output.shape.push_back(size);
      output.rows *= size;
    }
    if (output.shape.empty()) {
      return Invalid(absl::StrCat("gives ", output.name, " no input_shape. Give its batch size."));
    }
    layout->outputs.push_back(std::move(output));
  }
  for (size_t table = 0; table < used.size(); ++table) {
    if (used[table]) continue;
    return Invalid(absl::StrCat("has no feature for table '", layout->tables[table].name,
                                "'. Describe one or leave out the table."));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EmbeddingLayout> EmbeddingLayout::Create(const TPUEmbeddingConfiguration& config) {
  EmbeddingLayout layout;
  TF_RETURN_IF_ERROR(AddTables(config, &layout));
  layout.by_feature = !config.feature_descriptor().empty();
  // A configuration either describes its features, each with a shape of its own, or only gives the
  // number of features of each table, which then share one tensor.
  if (layout.by_feature) {
    TF_RETURN_IF_ERROR(AddFeatures(config, &layout));
  } else {
    for (size_t i = 0; i < layout.tables.size(); ++i) {
      const Table& table = layout.tables[i];
      const int64_t rows = int64_t{table.batch_size} * table.num_features;
      layout.outputs.push_back(
          {absl::StrCat("table '", table.name, "'"), static_cast<int>(i), {rows}, rows});
    }
  }
  layout.mode = config.mode();
  if (layout.mode == TPUEmbeddingConfiguration::UNSPECIFIED) {
    return Invalid("has no mode. Set it to INFERENCE, TRAINING or BACKWARD_PASS_ONLY.");
  }
  layout.num_cores = config.num_tensor_cores();
  if (layout.num_cores <= 0) {
    return Invalid(absl::StrCat("has num_tensor_cores=", layout.num_cores,
                                "; give the number of cores that take part."));
  }
  layout.pipelined = config.pipeline_execution_with_tensor_core();
  layout.sharding = config.sharding_strategy();
  if (config.spmd_sharding().enabled()) {
    layout.cores_per_replica = config.spmd_sharding().num_cores_per_replica();
    if (layout.cores_per_replica <= 0) {
      return Invalid(absl::StrCat("enables SPMD with num_cores_per_replica=",
                                  layout.cores_per_replica, "; it must be positive."));
    }
  }
  return layout;
}

absl::StatusOr<int> EmbeddingLayout::FindTable(const std::string& name, int64_t number) const {
  if (name.empty() == (number < 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Either table_name or table_id must name the embedding table; got table_name='", name,
        "' and table_id=", number, "."));
  }
  if (number >= 0 && number < static_cast<int64_t>(tables.size())) return static_cast<int>(number);
  std::string known;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (!name.empty() && tables[i].name == name) return static_cast<int>(i);
    absl::StrAppend(&known, i == 0 ? "'" : ", '", tables[i].name, "'");
  }
  return absl::NotFoundError(absl::StrCat("There is no embedding table ",
                                          name.empty() ? absl::StrCat(number) : name,
                                          "; the TPU was configured with ", known, "."));
}

absl::StatusOr<std::vector<int64_t>> EmbeddingLayout::RowsOfShard(int table, int64_t shard,
                                                                  int64_t num_shards) const {
  if (num_shards <= 0 || shard < 0 || shard >= num_shards) {
    return absl::InvalidArgumentError(absl::StrCat("Shard ", shard, " of ", num_shards,
                                                   " of an embedding table does not exist."));
  }
  // If the rows don't divide evenly, the first shards have one row more.
  const int64_t total = tables[table].rows;
  const int64_t count = total / num_shards + (shard < total % num_shards ? 1 : 0);
  std::vector<int64_t> rows(count);
  const bool by_modulus = sharding == TPUEmbeddingConfiguration::MOD;
  const int64_t first =
      by_modulus ? shard : shard * (total / num_shards) + std::min(shard, total % num_shards);
  for (int64_t i = 0; i < count; ++i) rows[i] = first + i * (by_modulus ? num_shards : 1);
  return rows;
}

}  // namespace tf_tpu_ext
