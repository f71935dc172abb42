// Makes XLA call the builders of YNNPACK graphs one at a time.
//
// XLA builds the graph of a fusion once for each concurrent run. The builder appends the fusion's
// constants to a vector of its own, which concurrent calls would corrupt. XLA has no lock there,
// and the only way to add one is through a private member. XLA has these fusions from 2.21 on.
#ifndef TF_TPU_EXT_CC_ABI_XLA_YNN_BUILDERS_H_
#define TF_TPU_EXT_CC_ABI_XLA_YNN_BUILDERS_H_

#include "cc/abi/xla/minor.h"
#include "xla/backends/cpu/runtime/thunk.h"

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/synchronization/mutex.h"
#include "xla/backends/cpu/runtime/ynnpack/ynn_fusion_thunk.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#endif

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21

namespace ynn_builders_internal {

using xla::cpu::YnnFusionThunk;

YnnFusionThunk::Builder& BuilderOf(YnnFusionThunk& thunk);
YnnFusionThunk::CapturingBuilder& CapturingBuilderOf(YnnFusionThunk& thunk);

// An explicit instantiation may name private members.
template <auto kBuilder, auto kCapturingBuilder>
struct Members {
  friend YnnFusionThunk::Builder& BuilderOf(YnnFusionThunk& thunk) { return thunk.*kBuilder; }
  friend YnnFusionThunk::CapturingBuilder& CapturingBuilderOf(YnnFusionThunk& thunk) {
    return thunk.*kCapturingBuilder;
  }
};
template struct Members<&YnnFusionThunk::builder_, &YnnFusionThunk::capturing_builder_>;

template <typename... Arguments>
void Serialize(absl::AnyInvocable<absl::StatusOr<xla::cpu::YnnSubgraph>(Arguments...)>& builder) {
  if (builder == nullptr) return;
  builder = [mutex = std::make_unique<absl::Mutex>(),
             builder = std::move(builder)](Arguments... arguments) mutable {
    absl::MutexLock lock(mutex.get());
    return builder(arguments...);
  };
}

inline bool HasConstants(const xla::HloInstruction* instruction) {
  if (instruction == nullptr || instruction->opcode() != xla::HloOpcode::kFusion) return false;
  return absl::c_any_of(instruction->fused_instructions_computation()->instructions(),
                        [](const xla::HloInstruction* fused) {
                          return fused->opcode() == xla::HloOpcode::kConstant;
                        });
}

}  // namespace ynn_builders_internal

// Must be called before the first run.
inline void SerializeYnnBuilders(const xla::cpu::ThunkSequence& thunks) {
  thunks.ForEach([&](const xla::cpu::Thunk& thunk) {
    if (thunk.kind() != xla::cpu::Thunk::Kind::kYnnFusion) return;
    auto& fusion =
        const_cast<xla::cpu::YnnFusionThunk&>(static_cast<const xla::cpu::YnnFusionThunk&>(thunk));
    if (!ynn_builders_internal::HasConstants(fusion.hlo())) return;
    ynn_builders_internal::Serialize(ynn_builders_internal::BuilderOf(fusion));
    ynn_builders_internal::Serialize(ynn_builders_internal::CapturingBuilderOf(fusion));
  });
}

#else

inline void SerializeYnnBuilders(const xla::cpu::ThunkSequence&) {}

#endif

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_YNN_BUILDERS_H_
