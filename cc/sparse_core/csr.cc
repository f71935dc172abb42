#include "cc/sparse_core/csr.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

constexpr int64_t kPadding = 8;
// What a TPU's buffers contain where there is no id.
constexpr int32_t kPadValue = std::numeric_limits<int32_t>::max();

absl::Status CheckCore(const CoreIds& core, const CsrOptions& options) {
  TF_RETURN_IF_ERROR(CheckLengths(core.ids));
  const int64_t expected = options.num_cores * options.buckets + 1;
  if (static_cast<int64_t>(core.starts.size()) != expected) {
    return absl::InvalidArgumentError(absl::StrCat("The id_counts of table '", options.table,
                                                   "' have ", core.starts.size(),
                                                   " numbers; expected ", expected, "."));
  }
  int32_t before = 0;
  for (int32_t start : core.starts) {
    if (start < before || start > static_cast<int64_t>(core.ids.size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "The id_counts of table '", options.table, "' have ", start, " after ", before,
          "; expected ascending numbers up to the ", core.ids.size(), " ids."));
    }
    before = start;
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(const CsrOptions& options, int64_t cores_per_chip,
                       const CsrBuffers& buffers) {
  if (options.max_ids % kPadding != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_ids_per_chip_per_sample times the samples of a chip is ", options.max_ids,
                     " for table '", options.table, "'; expected a multiple of ", kPadding, "."));
  }
  const int64_t minibatches = static_cast<int64_t>(options.splits.size()) + 1;
  if (minibatches > options.max_minibatches) {
    return absl::InvalidArgumentError(
        absl::StrCat("The splits of table '", options.table, "' make ", minibatches,
                     " minibatches; expected at most the max_minibatches_per_sc, ",
                     options.max_minibatches, ". Raise that, or make the batch smaller."));
  }
  const int64_t max_ids = options.max_ids;
  const auto has_room = [max_ids](const auto& buffer) {
    return static_cast<int64_t>(buffer.size()) == max_ids;
  };
  if (static_cast<int64_t>(buffers.row_pointers.size()) != RowPointersOf(options, cores_per_chip) ||
      !has_room(buffers.samples) || !has_room(buffers.rows) || !has_room(buffers.gains)) {
    return absl::InternalError("The buffers of a SparseCore are of another size.");
  }
  return absl::OkStatus();
}

absl::Status Damaged(const char* what, int64_t got, int64_t first, int64_t last) {
  return absl::InvalidArgumentError(
      absl::StrCat("The SparseCore buffers have the ", what, " ", got, "; expected one from ",
                   first, " to ", last,
                   ". They must come from an op that packs ids for as many cores and samples, with "
                   "ids within the table's vocabulary_size."));
}

bool Within(int64_t value, int64_t first, int64_t last) { return first <= value && value <= last; }

}  // namespace

int64_t RoundUpToPadding(int64_t value) { return (value + kPadding - 1) / kPadding * kPadding; }

int64_t RowPointersOf(const CsrOptions& options, int64_t cores_per_chip) {
  return cores_per_chip * options.max_minibatches * RoundUpToPadding(options.num_cores);
}

absl::StatusOr<CsrSizes> PackCsr(absl::Span<const CoreIds> cores, const CsrOptions& options,
                                 const CsrBuffers& buffers) {
  const int64_t cores_per_chip = static_cast<int64_t>(cores.size());
  TF_RETURN_IF_ERROR(CheckRoom(options, cores_per_chip, buffers));
  std::vector<int> ends = options.splits;
  ends.push_back(options.buckets);
  std::fill(buffers.samples.begin(), buffers.samples.end(), kPadValue);
  std::fill(buffers.rows.begin(), buffers.rows.end(), kPadValue);
  std::fill(buffers.gains.begin(), buffers.gains.end(), static_cast<float>(kPadValue));
  CsrSizes sizes;
  sizes.minibatches = static_cast<int64_t>(ends.size());
  int32_t* pointer = buffers.row_pointers.data();
  int64_t at = 0;
  for (const CoreIds& core : cores) {
    TF_RETURN_IF_ERROR(CheckCore(core, options));
    int begin_bucket = 0;
    for (const int end_bucket : ends) {
      for (int64_t of_row = 0; of_row < options.num_cores; ++of_row) {
        const int32_t begin = core.starts[of_row * options.buckets + begin_bucket];
        const int64_t count = core.starts[of_row * options.buckets + end_bucket] - begin;
        const int64_t copied = std::min(count, options.max_ids - at);
        if (copied < count && !options.allow_id_dropping) {
          return absl::InvalidArgumentError(
              absl::StrCat("The ids of table '", options.table, "' don't fit the ", options.max_ids,
                           " of a chip; expected room for the ", count, " from ", at,
                           ". Raise max_ids_per_chip_per_sample, or set allow_id_dropping."));
        }
        std::copy_n(core.ids.samples.begin() + begin, copied, buffers.samples.begin() + at);
        std::copy_n(core.ids.ids.begin() + begin, copied, buffers.rows.begin() + at);
        std::copy_n(core.ids.gains.begin() + begin, copied, buffers.gains.begin() + at);
        sizes.dropped += count - copied;
        at += copied;
        *pointer++ = static_cast<int32_t>(at);
        at = RoundUpToPadding(at);
      }
      for (int64_t i = options.num_cores; i < RoundUpToPadding(options.num_cores); ++i) {
        *pointer++ = static_cast<int32_t>(at);
      }
      begin_bucket = end_bucket;
    }
  }
  sizes.ids = at;
  sizes.row_pointers = pointer - buffers.row_pointers.data();
  std::fill(pointer, buffers.row_pointers.data() + buffers.row_pointers.size(),
            static_cast<int32_t>(at));
  return sizes;
}

absl::Status ForEachId(const CsrView& csr, const CsrShape& shape, int64_t first, int64_t last,
                       absl::FunctionRef<void(const CsrId&)> visit) {
  const int64_t stride = RoundUpToPadding(shape.num_cores);
  const int64_t room = static_cast<int64_t>(csr.row_pointers.size()) / stride;
  const int64_t ids = static_cast<int64_t>(csr.rows.size());
  if (!Within(csr.minibatches, 1, room / shape.cores_per_chip)) {
    return Damaged("number of minibatches", csr.minibatches, 1, room / shape.cores_per_chip);
  }
  int64_t begin = 0;
  for (int64_t core = 0; core < shape.cores_per_chip; ++core) {
    for (int64_t minibatch = 0; minibatch < csr.minibatches; ++minibatch) {
      const int32_t* const ends =
          csr.row_pointers.data() + (core * csr.minibatches + minibatch) * stride;
      for (int64_t of_row = 0; of_row < shape.num_cores; ++of_row) {
        const int64_t end = ends[of_row];
        if (!Within(end, begin, ids)) return Damaged("row pointer", end, begin, ids);
        if (shape.max_ids > 0 && end - begin > shape.max_ids) {
          return Damaged("number of ids", end - begin, 0, shape.max_ids);
        }
        for (int64_t i = begin; of_row >= first && of_row < last && i < end; ++i) {
          if (!Within(csr.samples[i], 0, shape.num_samples - 1)) {
            return Damaged("sample", csr.samples[i], 0, shape.num_samples - 1);
          }
          if (!Within(csr.rows[i], 0, shape.num_rows - 1)) {
            return Damaged("row", csr.rows[i], 0, shape.num_rows - 1);
          }
          visit({core, of_row, csr.samples[i], csr.rows[i], csr.gains[i]});
        }
        begin = std::min(RoundUpToPadding(end), ids);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
