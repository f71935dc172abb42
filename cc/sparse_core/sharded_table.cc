#include "cc/sparse_core/sharded_table.h"

#include "absl/base/casts.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "cc/sparse_core/csr.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

CsrView ViewOf(const SparseCoreShape& shape, absl::Span<const int32_t> words) {
  CsrView view;
  view.row_pointers = words.subspan(0, shape.row_pointers);
  view.samples = words.subspan(shape.row_pointers, shape.ids);
  view.rows = words.subspan(shape.row_pointers + shape.ids, shape.ids);
  const absl::Span<const int32_t> gains =
      words.subspan(shape.row_pointers + 2 * int64_t{shape.ids}, shape.ids);
  // The program has cast them to words, so as to exchange a single array.
  view.gains = absl::MakeConstSpan(reinterpret_cast<const float*>(gains.data()), gains.size());
  view.minibatches = words.back();
  return view;
}

absl::Status OfChip(const SparseCoreShape& shape, int chip, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("Op ", shape.op, ", ids of table '", shape.table,
                                                  "' from core ", chip, ": ", status.message()));
}

}  // namespace

absl::Status ShardIds::ForEach(
    absl::FunctionRef<void(int64_t row, int64_t sample, float gain)> visit) const {
  CsrShape csr;
  csr.cores_per_chip = shape_.cores_per_chip;
  csr.num_cores = int64_t{shape_.chips} * shape_.cores_per_chip;
  csr.num_samples = shape_.samples / shape_.cores_per_chip;
  csr.num_rows = shape_.rows / shape_.cores_per_chip;
  csr.max_ids = shape_.max_ids;
  const int64_t first = int64_t{chip_} * shape_.cores_per_chip;
  for (int chip = 0; chip < shape_.chips; ++chip) {
    const CsrView view = ViewOf(shape_, packed_.subspan(chip * shape_.words(), shape_.words()));
    const int64_t first_sample = int64_t{chip} * shape_.samples;
    TF_RETURN_IF_ERROR(
        OfChip(shape_, chip,
               ForEachId(view, csr, first, first + shape_.cores_per_chip, [&](const CsrId& id) {
                 visit((id.core_of_row - first) * csr.num_rows + id.row,
                       first_sample + id.core_of_sample * csr.num_samples + id.sample, id.gain);
               })));
  }
  return absl::OkStatus();
}

absl::Status AddRows(const SparseCoreShape& shape, const ShardIds& ids, const float* table,
                     const QuantizeFn* quantize, float* activations) {
  const int64_t width = shape.width;
  return ids.ForEach([&](int64_t row, int64_t sample, float gain) {
    const float* const from = table + row * width;
    float* const to = activations + sample * width;
    if (quantize == nullptr) {
      for (int64_t i = 0; i < width; ++i) to[i] += gain * from[i];
    } else {
      for (int64_t i = 0; i < width; ++i) to[i] += gain * (*quantize)(from[i]);
    }
  });
}

absl::StatusOr<RowGradients> SumGradients(const SparseCoreShape& shape, const ShardIds& ids,
                                          const float* gradients) {
  const int64_t width = shape.width;
  RowGradients result;
  absl::flat_hash_map<int64_t, int64_t> places;
  TF_RETURN_IF_ERROR(ids.ForEach([&](int64_t row, int64_t sample, float gain) {
    const auto [place, added] = places.try_emplace(row, static_cast<int64_t>(result.rows.size()));
    if (added) {
      result.rows.push_back(static_cast<int32_t>(row));
      result.sums.resize(result.sums.size() + width, 0.0f);
    }
    const float* const from = gradients + sample * width;
    float* const to = result.sums.data() + place->second * width;
    for (int64_t i = 0; i < width; ++i) to[i] += gain * from[i];
  }));
  return result;
}

}  // namespace tf_tpu_ext
