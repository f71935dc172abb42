#include "cc/embedding/batch.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using Kind = FeatureValues::Kind;

absl::Status Invalid(absl::string_view feature, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("The embedding batch can't be looked up: ", feature, " ", what));
}

// Where a feature's values go.
struct Target {
  std::string name;
  int output = 0;
  // Shape of the feature's rows, [samples...] or [samples..., sequence length].
  std::vector<int64_t> shape;
  int64_t rows = 0;
  // Whether the last dimension is a sequence, beyond whose length values are cut off.
  bool sequence = false;
  // Row r of the feature is row offset + (r / width) * stride + r % width of the output.
  int64_t offset = 0;
  int64_t width = 1;
  int64_t stride = 1;

  int64_t RowOfOutput(int64_t row) const { return offset + row / width * stride + row % width; }
};

Target WholeOutput(const EmbeddingLayout& layout, int output) {
  const EmbeddingLayout::Output& described = layout.outputs[output];
  Target target;
  target.name = described.name;
  target.output = output;
  target.shape = described.shape;
  target.rows = described.rows;
  target.sequence = described.shape.size() > 1;
  return target;
}

constexpr int64_t kCutOff = -1;

// Finds the feature's row of each id, or kCutOff.
absl::Status FindRowsOfSparse(const FeatureValues& feature, const Target& target,
                              std::vector<int64_t>* rows) {
  const int rank = feature.rank;
  const int dimensions = static_cast<int>(target.shape.size());
  const bool flat = rank <= 2 && (rank == 1 || dimensions > 1);
  if (rank < 1 || feature.indices.size() != feature.ids.size() * rank) {
    return Invalid(
        target.name,
        absl::StrCat("has ", feature.indices.size(), " numbers in its sample indices for ",
                     feature.ids.size(), " ids; give ", rank, " for each id."));
  }
  if (!flat && rank != dimensions + 1) {
    return Invalid(target.name, absl::StrCat("has sample indices of rank ", rank,
                                             "; its activations have the sizes [",
                                             absl::StrJoin(target.shape, ", "), "], so give ",
                                             dimensions + 1, " numbers for each id."));
  }
  for (size_t k = 0; k < feature.ids.size(); ++k) {
    const int64_t* index = &feature.indices[k * rank];
    int64_t row = 0;
    for (int d = 0; d < (flat ? 1 : dimensions); ++d) {
      const int64_t size = flat ? target.rows : target.shape[d];
      const bool longer = index[d] >= size && target.sequence && !flat && d == dimensions - 1;
      if (longer) {
        row = kCutOff;
        break;
      }
      if (index[d] < 0 || index[d] >= size) {
        return Invalid(target.name,
                       absl::StrCat("has the sample index ", index[d], " in dimension ", d,
                                    ", where its activations "
                                    "have ",
                                    size,
                                    " places. The shapes of a step's "
                                    "batch are those of the configuration."));
      }
      row = row * size + index[d];
    }
    rows->push_back(row);
  }
  return absl::OkStatus();
}

absl::Status FindRowsOfRagged(const FeatureValues& feature, const Target& target,
                              std::vector<int64_t>* rows) {
  const std::vector<int64_t>& splits = feature.indices;
  const int64_t samples = static_cast<int64_t>(splits.size()) - 1;
  const int64_t length = target.sequence ? target.shape.back() : 1;
  const bool by_position = samples != target.rows;
  if (samples < 0 || (by_position && samples * length != target.rows)) {
    return Invalid(target.name,
                   absl::StrCat("has ", samples, " ragged rows; its activations have the sizes [",
                                absl::StrJoin(target.shape, ", "), "]."));
  }
  if (splits.front() != 0 || splits.back() != static_cast<int64_t>(feature.ids.size())) {
    return Invalid(target.name, absl::StrCat("has row splits from ", splits.front(), " to ",
                                             splits.back(), " for ", feature.ids.size(), " ids."));
  }
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t size = splits[sample + 1] - splits[sample];
    if (size < 0) return Invalid(target.name, "has row splits that descend.");
    for (int64_t position = 0; position < size; ++position) {
      if (!by_position) {
        rows->push_back(sample);
      } else {
        rows->push_back(position < length ? sample * length + position : kCutOff);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status FindRows(const FeatureValues& feature, const Target& target,
                      std::vector<int64_t>* rows) {
  rows->reserve(feature.ids.size());
  switch (feature.kind) {
    case Kind::kSparse:
      return FindRowsOfSparse(feature, target, rows);
    case Kind::kRagged:
      return FindRowsOfRagged(feature, target, rows);
    case Kind::kDense:
      if (static_cast<int64_t>(feature.ids.size()) != target.rows) {
        return Invalid(target.name,
                       absl::StrCat("has ", feature.ids.size(),
                                    " ids as a dense tensor, one for each row; its activations "
                                    "have the sizes [",
                                    absl::StrJoin(target.shape, ", "), "]."));
      }
      for (int64_t row = 0; row < target.rows; ++row) rows->push_back(row);
      return absl::OkStatus();
  }
  return absl::InternalError("An embedding feature is of no kind.");
}

// Adds the values to the output's lookups, with their weights as gains.
absl::Status Add(const FeatureValues& feature, const Target& target,
                 const EmbeddingLayout::Table& table, EmbeddingBatch::Lookups* lookups) {
  if (!feature.weights.empty() && feature.weights.size() != feature.ids.size()) {
    return Invalid(target.name,
                   absl::StrCat("has ", feature.weights.size(), " weights for ", feature.ids.size(),
                                " ids. Give one for each id or "
                                "none at all."));
  }
  std::vector<int64_t> rows;
  TF_RETURN_IF_ERROR(FindRows(feature, target, &rows));
  for (size_t k = 0; k < rows.size(); ++k) {
    const int64_t id = feature.ids[k];
    if (id < 0 || id >= table.rows) {
      return Invalid(target.name, absl::StrCat("has the id ", id, "; table '", table.name,
                                               "' has the rows 0 to ", table.rows - 1, "."));
    }
    if (rows[k] == kCutOff) continue;
    lookups->rows.push_back(target.RowOfOutput(rows[k]));
    lookups->ids.push_back(id);
    lookups->gains.push_back(feature.weights.empty() ? 1.0f : feature.weights[k]);
  }
  return absl::OkStatus();
}

// Turns weights into gains.
absl::Status Combine(const std::string& combiner, int64_t num_rows,
                     EmbeddingBatch::Lookups* lookups) {
  if (combiner == "sum") return absl::OkStatus();
  const bool mean = combiner == "mean";
  if (!mean && combiner != "sqrtn") {
    return absl::InvalidArgumentError(absl::StrCat("The embedding combiner is '", combiner,
                                                   "'; it must be 'sum', 'mean' or 'sqrtn'."));
  }
  std::vector<float> totals(num_rows, 0.0f);
  for (size_t k = 0; k < lookups->rows.size(); ++k) {
    const float weight = lookups->gains[k];
    totals[lookups->rows[k]] += mean ? weight : weight * weight;
  }
  for (size_t k = 0; k < lookups->rows.size(); ++k) {
    const float total = totals[lookups->rows[k]];
    const float divisor = mean ? total : std::sqrt(total);
    lookups->gains[k] = divisor == 0 ? 0.0f : lookups->gains[k] / divisor;
  }
  return absl::OkStatus();
}

absl::StatusOr<EmbeddingBatch> MakeBatch(const EmbeddingLayout& layout,
                                         absl::Span<const FeatureValues> features,
                                         absl::Span<const Target> targets,
                                         absl::Span<const std::string> combiners) {
  if (!combiners.empty() && combiners.size() != layout.tables.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("The embedding batch has ", combiners.size(), " combiners for ",
                     layout.tables.size(), " tables. Give one for each table or none at all."));
  }
  EmbeddingBatch batch;
  batch.outputs.resize(layout.outputs.size());
  for (size_t i = 0; i < features.size(); ++i) {
    const int output = targets[i].output;
    TF_RETURN_IF_ERROR(Add(features[i], targets[i], layout.tables[layout.outputs[output].table],
                           &batch.outputs[output]));
  }
  if (combiners.empty()) return batch;
  for (size_t output = 0; output < batch.outputs.size(); ++output) {
    TF_RETURN_IF_ERROR(Combine(combiners[layout.outputs[output].table], layout.outputs[output].rows,
                               &batch.outputs[output]));
  }
  return batch;
}

absl::Status WrongCount(size_t got, size_t expected, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("The embedding batch has ", got,
                                                 " features; the configuration has ", expected, " ",
                                                 what, ". Enqueue one for each, in its order."));
}

}  // namespace

absl::StatusOr<EmbeddingBatch> BatchOfOutputs(const EmbeddingLayout& layout,
                                              absl::Span<const FeatureValues> features,
                                              absl::Span<const std::string> combiners) {
  if (features.size() != layout.outputs.size()) {
    return WrongCount(features.size(), layout.outputs.size(),
                      layout.by_feature ? "features" : "tables");
  }
  std::vector<Target> targets;
  for (size_t i = 0; i < features.size(); ++i) {
    targets.push_back(WholeOutput(layout, static_cast<int>(i)));
  }
  return MakeBatch(layout, features, targets, combiners);
}

absl::StatusOr<EmbeddingBatch> BatchOfTableFeatures(const EmbeddingLayout& layout,
                                                    absl::Span<const FeatureValues> features,
                                                    absl::Span<const int> table_ids,
                                                    absl::Span<const int> max_sequence_lengths,
                                                    absl::Span<const std::string> combiners) {
  if (table_ids.size() != features.size() ||
      (!max_sequence_lengths.empty() && max_sequence_lengths.size() != features.size())) {
    return absl::InvalidArgumentError(absl::StrCat("The embedding batch has ", features.size(),
                                                   " features, ", table_ids.size(),
                                                   " table_ids and ", max_sequence_lengths.size(),
                                                   " max_sequence_lengths; the numbers must "
                                                   "be equal."));
  }
  if (layout.by_feature && features.size() != layout.outputs.size()) {
    return WrongCount(features.size(), layout.outputs.size(), "features");
  }
  std::vector<FeatureValues> values(features.begin(), features.end());
  std::vector<Target> targets;
  std::vector<int64_t> used(layout.tables.size(), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    const int table = table_ids[i];
    if (table < 0 || table >= static_cast<int>(layout.tables.size())) {
      return Invalid(absl::StrCat("feature ", i),
                     absl::StrCat("has the table_id ", table, "; there are ", layout.tables.size(),
                                  " tables, numbered from zero."));
    }
    const int64_t length = max_sequence_lengths.empty() ? 0 : max_sequence_lengths[i];
    FeatureValues& feature = values[i];
    // The position becomes a dimension of the activations, and no ids are combined.
    if (length > 0 && feature.kind == Kind::kSparse && feature.rank == 2) {
      std::vector<int64_t> indices;
      for (size_t k = 0; k + 1 < feature.indices.size(); k += 2) {
        indices.insert(indices.end(), {feature.indices[k], feature.indices[k + 1], 0});
      }
      feature.indices = std::move(indices);
      feature.rank = 3;
    }
    if (layout.by_feature) {
      targets.push_back(WholeOutput(layout, static_cast<int>(i)));
      continue;
    }
    const EmbeddingLayout::Table& described = layout.tables[table];
    Target target;
    target.name = absl::StrCat("feature ", i, " (of table '", described.name, "')");
    target.output = table;
    target.sequence = length > 0;
    target.width = target.sequence ? length : 1;
    target.shape = {described.batch_size};
    if (target.sequence) target.shape.push_back(length);
    target.rows = described.batch_size * target.width;
    target.offset = used[table];
    target.stride = described.num_features;
    used[table] += target.width;
    targets.push_back(std::move(target));
  }
  for (size_t table = 0; !layout.by_feature && table < used.size(); ++table) {
    const EmbeddingLayout::Table& described = layout.tables[table];
    if (used[table] == described.num_features) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "The embedding batch has ", used[table], " features for table '", described.name,
        "', counting sequences by their length; the configuration has num_features=",
        described.num_features, "."));
  }
  return MakeBatch(layout, values, targets, combiners);
}

}  // namespace tf_tpu_ext
