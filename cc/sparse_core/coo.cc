#include "cc/sparse_core/coo.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// What a gain contributes to the sum that, after Factor, divides its sample's gains.
float Share(Combiner combiner, float gain) {
  return combiner == Combiner::kMean ? gain : gain * gain;
}

float Factor(Combiner combiner, float sum) {
  if (sum == 0.0f) return 0.0f;
  return combiner == Combiner::kMean ? 1.0f / sum : 1.0f / std::sqrt(sum);
}

absl::Status CheckSample(int64_t sample, int64_t before, int64_t num_samples) {
  if (sample < 0 || sample >= num_samples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "The indices of the sparse feature name sample ", sample, "; expected samples from 0 to ",
        num_samples - 1, ". Give the feature an output_shape for as many samples as a batch has."));
  }
  if (sample < before) {
    return absl::InvalidArgumentError(
        absl::StrCat("The indices of the sparse feature name sample ", sample, " after sample ",
                     before, "; expected ascending order. Use tf.sparse.reorder."));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> SamplesOfSparse(const FeatureIds& feature,
                                                     int64_t num_samples) {
  const int64_t count = static_cast<int64_t>(feature.ids.size());
  if (feature.index_size != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("The sparse feature has indices of ", feature.index_size,
                     " numbers; expected 2, the sample and the position. Use tf.sparse.reshape."));
  }
  if (static_cast<int64_t>(feature.indices.size()) != 2 * count) {
    return absl::InvalidArgumentError(absl::StrCat("The sparse feature has ",
                                                   feature.indices.size() / 2, " indices for ",
                                                   count, " ids; expected as many."));
  }
  std::vector<int32_t> samples(count);
  int32_t before = 0;
  for (int64_t i = 0; i < count; ++i) {
    samples[i] = feature.indices[2 * i];
    TF_RETURN_IF_ERROR(CheckSample(samples[i], before, num_samples));
    before = samples[i];
  }
  return samples;
}

absl::StatusOr<std::vector<int32_t>> SamplesOfRagged(const FeatureIds& feature,
                                                     int64_t num_samples) {
  const absl::Span<const int32_t> splits = feature.indices;
  const int64_t count = static_cast<int64_t>(feature.ids.size());
  if (static_cast<int64_t>(splits.size()) != num_samples + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "The ragged feature has ", splits.size(), " row splits; expected ", num_samples + 1,
        ", one more than samples. Give the feature an output_shape for as many samples as a "
        "batch has."));
  }
  if (splits.front() != 0 || splits.back() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("The ragged feature has row splits from ", splits.front(), " to ",
                     splits.back(), "; expected them from 0 to its ", count, " ids."));
  }
  std::vector<int32_t> samples;
  samples.reserve(count);
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    const int32_t end = splits[sample + 1];
    if (end < splits[sample] || end > count) {
      return absl::InvalidArgumentError(
          absl::StrCat("The ragged feature has the row splits ", splits[sample], " and ", end,
                       " beside each other; expected ascending ones."));
    }
    samples.resize(end, static_cast<int32_t>(sample));
  }
  return samples;
}

absl::StatusOr<std::vector<int32_t>> SamplesOf(const FeatureIds& feature, int64_t num_samples) {
  if (feature.kind == FeatureIds::Kind::kSparse) return SamplesOfSparse(feature, num_samples);
  if (feature.kind == FeatureIds::Kind::kRagged) return SamplesOfRagged(feature, num_samples);
  const int64_t count = static_cast<int64_t>(feature.ids.size());
  if (count != 0 && count != num_samples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "The dense feature has ", count, " ids; expected ", num_samples, ", one for each sample."));
  }
  std::vector<int32_t> samples(count);
  for (int64_t i = 0; i < count; ++i) samples[i] = static_cast<int32_t>(i);
  return samples;
}

}  // namespace

bool IsPowerOfTwo(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

absl::StatusOr<Combiner> ParseCombiner(absl::string_view name) {
  if (name == "sum") return Combiner::kSum;
  if (name == "mean") return Combiner::kMean;
  if (name == "sqrtn" || absl::StartsWith(name, "custom")) return Combiner::kSqrtN;
  return absl::InvalidArgumentError(
      absl::StrCat("The combiner is '", name, "'; expected 'sum', 'mean', 'sqrtn' or 'custom'."));
}

absl::StatusOr<Coo> ToCoo(const FeatureIds& feature, int64_t num_samples, Combiner combiner) {
  const size_t count = feature.ids.size();
  if (feature.weights.size() != 1 && feature.weights.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("The feature has ", feature.weights.size(),
                                                   " weights for ", count,
                                                   " ids; expected one for each, or one for all."));
  }
  TF_ASSIGN_OR_RETURN(const std::vector<int32_t> samples, SamplesOf(feature, num_samples));
  const bool rescale = combiner != Combiner::kSum;
  std::vector<float> sums(rescale ? num_samples : 0, 0.0f);
  Coo coo;
  for (size_t i = 0; i < count; ++i) {
    const int32_t id = feature.ids[i];
    if (id < 0) {
      return absl::InvalidArgumentError(absl::StrCat("The feature has the id ", id, " in sample ",
                                                     samples[i], "; expected ids from 0."));
    }
    const float weight = feature.weights[feature.weights.size() == 1 ? 0 : i];
    if (rescale) sums[samples[i]] += Share(combiner, weight);
    const bool repeated =
        coo.size() > 0 && coo.samples.back() == samples[i] && coo.ids.back() == id;
    if (repeated) {
      coo.gains.back() += weight;
    } else {
      coo.Add(samples[i], id, weight);
    }
  }
  if (rescale) {
    for (float& sum : sums) sum = Factor(combiner, sum);
    for (size_t i = 0; i < coo.size(); ++i) coo.gains[i] *= sums[coo.samples[i]];
  }
  return coo;
}

absl::Status CheckStackPlace(const StackPlace& place) {
  if (!IsPowerOfTwo(place.all_cores)) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_sc_shards is ", place.all_cores, "; expected a power of two."));
  }
  for (int64_t samples : {place.num_samples, place.stacked_samples, place.sample_offset}) {
    if (samples % place.cores_per_chip == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "A feature of ", place.num_samples, " samples at ", place.sample_offset, " of ",
        place.stacked_samples, " can't be divided over the ", place.cores_per_chip,
        " SparseCores of a chip; expected multiples of that. Change the batch size of a core."));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Coo>> SplitByCore(const Coo& coo, const StackPlace& place) {
  TF_RETURN_IF_ERROR(CheckStackPlace(place));
  const int64_t samples_of_core = place.num_samples / place.cores_per_chip;
  const int64_t stacked_of_core = place.stacked_samples / place.cores_per_chip;
  const int64_t offset_in_core = place.sample_offset / place.cores_per_chip;
  const int64_t mask = place.all_cores - 1;
  std::vector<Coo> cores(place.cores_per_chip);
  for (size_t i = 0; i < coo.size(); ++i) {
    const int64_t core = coo.samples[i] / samples_of_core;
    const int64_t sample =
        core * stacked_of_core + offset_in_core + coo.samples[i] % samples_of_core;
    const int64_t id = coo.ids[i];
    // Rows are distributed round-robin over the SparseCores. The rotation shifts the first one.
    const int64_t row = ((id + place.rotation) & mask) + (id & ~mask) + place.row_offset;
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    if (row > kMax || sample > kMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("Id ", id, " is row ", row, " of the stacked tables, for sample ", sample,
                       "; expected numbers up to ", kMax, ". Use a smaller table."));
    }
    cores[core].Add(static_cast<int32_t>(sample), static_cast<int32_t>(row), coo.gains[i]);
  }
  return cores;
}

}  // namespace tf_tpu_ext
