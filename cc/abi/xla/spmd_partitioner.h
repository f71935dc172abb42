#ifndef TF_TPU_EXT_CC_ABI_XLA_SPMD_PARTITIONER_H_
#define TF_TPU_EXT_CC_ABI_XLA_SPMD_PARTITIONER_H_

// XLA's header of this name, in a form that g++ accepts too. Include it before anything that
// includes XLA's.

#include <cstdint>
#include <initializer_list>

#include "absl/types/span.h"
#include "xla/hlo/ir/tile_assignment.h"

namespace xla::hlo_sharding_util {

// The class that the header's own code constructs. For a list of two sizes, g++ finds two
// constructors of xla::TileAssignment, one of them private.
class TileAssignment : public xla::TileAssignment {
 public:
  using xla::TileAssignment::TileAssignment;
  // NOLINTNEXTLINE(google-explicit-constructor): the header converts, too.
  TileAssignment(const xla::TileAssignment& other) : xla::TileAssignment(other) {}
  explicit TileAssignment(std::initializer_list<int64_t> sizes)
      : xla::TileAssignment(absl::MakeConstSpan(sizes.begin(), sizes.size())) {}
  TileAssignment(std::initializer_list<int64_t> sizes, absl::Span<const int64_t> reshaped,
                 absl::Span<const int> permutation)
      : xla::TileAssignment(absl::MakeConstSpan(sizes.begin(), sizes.size()), reshaped,
                            permutation) {}
};

}  // namespace xla::hlo_sharding_util

#include "xla/service/spmd/spmd_partitioner.h"  // IWYU pragma: export

#endif  // TF_TPU_EXT_CC_ABI_XLA_SPMD_PARTITIONER_H_
