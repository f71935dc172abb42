#include "cc/sparse_core/sorted_ids.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

absl::Status CheckLimit(const SortOptions& options, int64_t core, const char* what, int64_t got,
                        int64_t limit, const char* setting) {
  if (limit == 0 || got <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("SparseCore ", core, " gets ", got, " ", what, " of table '", options.table,
                   "' from one SparseCore's samples; expected at most ", limit, ". Raise ", setting,
                   " of SparseCoreEmbeddingConfig, or make the batch smaller."));
}

}  // namespace

absl::Status CheckLengths(const CooView& view) {
  if (view.samples.size() == view.ids.size() && view.gains.size() == view.ids.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("The ids have ", view.samples.size(), " row_ids, ", view.ids.size(),
                   " col_ids and ", view.gains.size(), " gains; expected as many of each."));
}

std::vector<UniqueId> SortAndMerge(const CooView& view) {
  // Packs the id into the high bits and the position into the low bits. Sorting integers is several
  // times as fast as sorting records, and keeps equal ids in order.
  std::vector<uint64_t> order(view.size());
  for (size_t i = 0; i < view.size(); ++i) {
    order[i] = (static_cast<uint64_t>(static_cast<uint32_t>(view.ids[i])) << 32) | i;
  }
  std::sort(order.begin(), order.end());
  std::vector<UniqueId> merged;
  merged.reserve(view.size());
  for (const uint64_t item : order) {
    const auto position = static_cast<uint32_t>(item);
    const UniqueId next{view.samples[position], view.ids[position], view.gains[position],
                        merged.empty() || merged.back().id != view.ids[position]};
    if (!next.first_of_id && merged.back().sample == next.sample) {
      merged.back().gain += next.gain;
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

std::vector<Coo> MergeFeatures(const std::vector<CooView>& features,
                               absl::Span<const int32_t> row_offsets) {
  std::map<int32_t, Coo> tables;
  for (size_t f = 0; f < features.size(); ++f) {
    const CooView& feature = features[f];
    Coo& table = tables[row_offsets[f]];
    table.samples.insert(table.samples.end(), feature.samples.begin(), feature.samples.end());
    table.ids.insert(table.ids.end(), feature.ids.begin(), feature.ids.end());
    table.gains.insert(table.gains.end(), feature.gains.begin(), feature.gains.end());
  }
  std::vector<Coo> merged;
  merged.reserve(tables.size());
  for (auto& [offset, table] : tables) merged.push_back(std::move(table));
  return merged;
}

absl::StatusOr<SortedIds> SortByCore(const std::vector<Coo>& features, const SortOptions& options) {
  const int64_t num_cores = options.num_cores;
  std::vector<int32_t> counts(num_cores, 0), unique_counts(num_cores, 0);
  std::vector<std::vector<UniqueId>> sorted;
  for (const Coo& feature : features) {
    sorted.push_back(SortAndMerge({feature.samples, feature.ids, feature.gains}));
    for (const UniqueId& id : sorted.back()) {
      if (id.id < 0 || id.id >= options.num_rows || id.sample < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "The ids of table '", options.table, "' have row ", id.id, " for sample ", id.sample,
            "; expected rows from 0 to ", options.num_rows - 1,
            ", and samples from 0. Check the ids, or raise the table's vocabulary_size."));
      }
      const int64_t core = id.id % num_cores;
      ++counts[core];
      if (id.first_of_id) ++unique_counts[core];
    }
  }
  SortedIds result;
  result.starts.assign(num_cores + 1, 0);
  for (int64_t core = 0; core < num_cores; ++core) {
    TF_RETURN_IF_ERROR(
        CheckLimit(options, core, "ids", counts[core], options.max_ids, "max_ids_per_table"));
    TF_RETURN_IF_ERROR(CheckLimit(options, core, "different ids", unique_counts[core],
                                  options.max_unique_ids, "max_unique_ids_per_table"));
    result.starts[core + 1] = result.starts[core] + counts[core];
    result.max_ids = std::max(result.max_ids, counts[core]);
    result.max_unique_ids = std::max(result.max_unique_ids, unique_counts[core]);
  }
  std::vector<int32_t> ends(result.starts.begin(), result.starts.end() - 1);
  const size_t total = result.starts.back();
  result.ids.samples.resize(total);
  result.ids.ids.resize(total);
  result.ids.gains.resize(total);
  for (const std::vector<UniqueId>& feature : sorted) {
    for (const UniqueId& id : feature) {
      const int32_t at = ends[id.id % num_cores]++;
      result.ids.samples[at] = static_cast<int32_t>(id.sample % options.num_samples);
      result.ids.ids[at] = static_cast<int32_t>(id.id / num_cores);
      result.ids.gains[at] = id.gain;
    }
  }
  return result;
}

}  // namespace tf_tpu_ext
