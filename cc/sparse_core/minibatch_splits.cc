#include "cc/sparse_core/minibatch_splits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// Counts the ids of one pair of SparseCores before each bucket.
struct Counts {
  explicit Counts(int buckets) : ids(buckets + 1, 0), unique_ids(buckets + 1, 0) {}

  void AddUp() {
    for (size_t i = 1; i < ids.size(); ++i) {
      ids[i] += ids[i - 1];
      unique_ids[i] += unique_ids[i - 1];
    }
  }

  bool Fit(int begin, int end, const MinibatchLimits& limits) const {
    return ids[end] - ids[begin] <= limits.ids &&
           unique_ids[end] - unique_ids[begin] <= limits.unique_ids;
  }

  std::vector<int32_t> ids;
  std::vector<int32_t> unique_ids;
};

// Halves the range of buckets until each part fits. Existing `splits` are kept.
int64_t Halve(const Counts& counts, const MinibatchLimits& limits, int levels, int64_t splits) {
  for (int level = 0; level < levels; ++level) {
    const int size = 1 << (levels - level);
    for (int section = 0; section < (1 << level); ++section) {
      const int parent_bit = level == 0 ? 0 : (1 << (level - 1)) - 1 + section / 2;
      if (level > 0 && ((splits >> parent_bit) & 1) == 0) continue;
      if (counts.Fit(section * size, (section + 1) * size, limits)) continue;
      splits |= int64_t{1} << ((1 << level) - 1 + section);
    }
  }
  return splits;
}

// Keeps the splits that are needed if each part takes as many buckets as fit.
absl::StatusOr<int64_t> MergeParts(const Counts& counts, const MinibatchLimits& limits, int levels,
                                   int64_t splits) {
  TF_ASSIGN_OR_RETURN(std::vector<int> ends, ToBuckets(splits, levels));
  ends.push_back(1 << levels);
  std::vector<int> kept;
  int begin = 0, before = 0;
  for (const int end : ends) {
    if (!counts.Fit(begin, end, limits)) {
      kept.push_back(before);
      begin = before;
    }
    before = end;
  }
  return ToSplits(kept, levels);
}

absl::Status TooMany(const MinibatchOptions& options, int64_t core, const Counts& counts,
                     int bucket) {
  return absl::InvalidArgumentError(absl::StrCat(
      "A bucket of table '", options.table, "' has ", counts.ids[bucket + 1] - counts.ids[bucket],
      " ids, ", counts.unique_ids[bucket + 1] - counts.unique_ids[bucket],
      " of them different, of SparseCore ", core, "; expected at most ", options.limits.ids,
      ", and ", options.limits.unique_ids, " different ones. Make the batch smaller."));
}

absl::Status CheckOptions(const MinibatchOptions& options) {
  if (options.num_samples % options.cores_per_chip == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "The sample_count of table '", options.table, "' is ", options.num_samples,
      "; expected a multiple of the ", options.cores_per_chip, " SparseCores of a chip."));
}

}  // namespace

absl::StatusOr<std::vector<int>> ToBuckets(int64_t splits, int levels) {
  const int num_splits = (1 << levels) - 1;
  if (splits < 0 || (num_splits < 63 && (splits >> num_splits) != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("The splits of minibatches are ", splits,
                                                   "; expected a number of ", num_splits,
                                                   " bits, one for each split between buckets."));
  }
  std::vector<int> buckets;
  for (int level = 0; level < levels; ++level) {
    const int half = 1 << (levels - 1 - level);
    for (int section = 0; section < (1 << level); ++section) {
      if ((splits >> ((1 << level) - 1 + section)) & 1) {
        buckets.push_back((2 * section + 1) * half);
      }
    }
  }
  std::sort(buckets.begin(), buckets.end());
  return buckets;
}

int64_t ToSplits(absl::Span<const int> buckets, int levels) {
  int64_t splits = 0;
  for (int bucket : buckets) {
    int level = levels - 1;
    while (bucket > 0 && bucket % 2 == 0) {
      --level;
      bucket /= 2;
    }
    splits |= int64_t{1} << ((1 << level) - 1 + bucket / 2);
  }
  return splits;
}

absl::StatusOr<MinibatchPlan> PlanMinibatches(const CooView& ids, const MinibatchOptions& options) {
  TF_RETURN_IF_ERROR(CheckOptions(options));
  TF_RETURN_IF_ERROR(CheckLengths(ids));
  const int num_buckets = 1 << options.levels;
  const int64_t rows_of_bucket = (options.num_rows + num_buckets - 1) / num_buckets;
  const int64_t samples_of_core = options.num_samples / options.cores_per_chip;
  MinibatchPlan plan;
  plan.starts.reserve(options.cores_per_chip * options.num_cores * num_buckets + 1);
  plan.starts.push_back(0);
  int64_t tried = 0;
  size_t begin = 0;
  for (int64_t core = 0; core < options.cores_per_chip; ++core) {
    size_t end = begin;
    for (; end < ids.size() && ids.samples[end] < (core + 1) * samples_of_core; ++end) {
      const int32_t sample = ids.samples[end], id = ids.ids[end];
      if (sample < core * samples_of_core || id < 0 || id >= options.num_rows) {
        return absl::InvalidArgumentError(absl::StrCat(
            "The ids of table '", options.table, "' have row ", id, " for sample ", sample,
            " among those of SparseCore ", core, "; expected rows from 0 to ", options.num_rows - 1,
            ", and samples in ascending order from 0 to ", options.num_samples - 1, "."));
      }
    }
    const std::vector<UniqueId> sorted =
        SortAndMerge({ids.samples.subspan(begin, end - begin), ids.ids.subspan(begin, end - begin),
                      ids.gains.subspan(begin, end - begin)});
    begin = end;
    std::vector<std::vector<UniqueId>> by_core(options.num_cores);
    for (const UniqueId& id : sorted) by_core[id.id % options.num_cores].push_back(id);
    for (int64_t of_row = 0; of_row < options.num_cores; ++of_row) {
      Counts counts(num_buckets);
      for (const UniqueId& id : by_core[of_row]) {
        const int64_t bucket = id.id / rows_of_bucket;
        ++counts.ids[bucket + 1];
        if (id.first_of_id) ++counts.unique_ids[bucket + 1];
        plan.ids.Add(static_cast<int32_t>(id.sample % samples_of_core),
                     static_cast<int32_t>(id.id / options.num_cores), id.gain);
      }
      const int32_t offset = plan.starts.back();
      counts.AddUp();
      for (int bucket = 0; bucket < num_buckets; ++bucket) {
        if (!counts.Fit(bucket, bucket + 1, options.limits)) {
          return TooMany(options, of_row, counts, bucket);
        }
        plan.starts.push_back(offset + counts.ids[bucket + 1]);
      }
      plan.max_ids = std::max(plan.max_ids, counts.ids.back());
      plan.max_unique_ids = std::max(plan.max_unique_ids, counts.unique_ids.back());
      tried = Halve(counts, options.limits, options.levels, tried);
      TF_ASSIGN_OR_RETURN(const int64_t needed,
                          MergeParts(counts, options.limits, options.levels, tried));
      plan.splits |= needed;
    }
  }
  if (begin != ids.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("The ids of table '", options.table, "' have sample ", ids.samples[begin],
                     "; expected samples from 0 to ", options.num_samples - 1, "."));
  }
  return plan;
}

}  // namespace tf_tpu_ext
