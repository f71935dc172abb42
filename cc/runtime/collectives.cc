#include "cc/runtime/collectives.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "absl/strings/str_cat.h"
#include "cc/abi/xla/array_type_switch.h"
#include "cc/abi/xla/collective_event.h"
#include "cc/abi/xla/collectives_wait.h"
#include "cc/base/compute_pool.h"
#include "cc/base/fault_points.h"
#include "cc/base/run_scope.h"
#include "cc/profile/recorder.h"
#include "tsl/profiler/lib/traceme.h"
#include "xla/backends/cpu/collectives/cpu_collectives.h"
#include "xla/core/collectives/communicator.h"
#include "xla/primitive_util.h"
#include "xla/service/collective_ops_utils.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using stream_executor::DeviceAddressBase;
using xla::PrimitiveType;
using xla::RankId;
using xla::ReductionKind;
using Participants = absl::Span<const CollectiveParticipant>;

// The number of elements reduced at a time. The partial result stays in the L1 cache, and because
// it is copied out only afterwards, a participant may use one buffer for both directions.
constexpr size_t kReductionBlock = 1024;

// The type to compute in. Integers wrap around, as on a TPU. C++ guarantees this for unsigned types
// at least as large as int.
template <typename T>
auto Wrapping() {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return std::common_type_t<std::make_unsigned_t<T>, unsigned>();
  } else {
    return T();
  }
}

// Adds with vector instructions, which gcc's -O2 does not generate for such a loop. Either way,
// each sum is one rounded addition.
template <typename T>
void Add(const T* input, size_t count, T* accumulator) {
  if constexpr (std::is_floating_point_v<T>) {
    using Values = Eigen::Array<T, Eigen::Dynamic, 1>;
    Eigen::Map<Values>(accumulator, count) += Eigen::Map<const Values>(input, count);
  } else {
    using Value = decltype(Wrapping<T>());
    for (size_t i = 0; i < count; ++i) {
      accumulator[i] = static_cast<T>(Value(accumulator[i]) + Value(input[i]));
    }
  }
}

template <typename T>
void Multiply(const T* input, size_t count, T* accumulator) {
  using Value = decltype(Wrapping<T>());
  for (size_t i = 0; i < count; ++i) {
    accumulator[i] = static_cast<T>(Value(accumulator[i]) * Value(input[i]));
  }
}

template <typename T>
void Combine(ReductionKind kind, const T* input, size_t count, T* accumulator) {
  switch (kind) {
    case ReductionKind::SUM:
      // As in XLA, sums and products of predicates are "or" and "and".
      if constexpr (std::is_same_v<T, bool>) {
        for (size_t i = 0; i < count; ++i) accumulator[i] = accumulator[i] || input[i];
      } else {
        Add(input, count, accumulator);
      }
      return;
    case ReductionKind::PRODUCT:
      if constexpr (std::is_same_v<T, bool>) {
        for (size_t i = 0; i < count; ++i) accumulator[i] = accumulator[i] && input[i];
      } else {
        Multiply(input, count, accumulator);
      }
      return;
    case ReductionKind::MIN:
      // WithNativeType rejects complex numbers, which have no order.
      if constexpr (!xla::is_complex_v<T>) {
        for (size_t i = 0; i < count; ++i) accumulator[i] = std::min<T>(accumulator[i], input[i]);
      }
      return;
    case ReductionKind::MAX:
      if constexpr (!xla::is_complex_v<T>) {
        for (size_t i = 0; i < count; ++i) accumulator[i] = std::max<T>(accumulator[i], input[i]);
      }
      return;
  }
}

// Reduces elements [offset, offset + count) of all values and passes the results to `emit`.
template <typename T, typename Emit>
void Reduce(ReductionKind kind, absl::Span<const void* const> values, size_t offset, size_t count,
            const Emit& emit) {
  alignas(64) T block[kReductionBlock];
  for (size_t done = 0; done < count; done += kReductionBlock) {
    const size_t size = std::min(kReductionBlock, count - done);
    const size_t at = offset + done;
    std::memcpy(static_cast<void*>(block), static_cast<const T*>(values[0]) + at, size * sizeof(T));
    for (size_t i = 1; i < values.size(); ++i) {
      Combine<T>(kind, static_cast<const T*>(values[i]) + at, size, block);
    }
    emit(block, at, size);
  }
}

// Who sends to whom, if not all to all.
struct Route {
  std::vector<Rank> targets;
  std::vector<Rank> sources;
};

Rank ToRank(RankId rank) { return Rank(static_cast<int>(rank.value())); }

// What a participant sends, which takes part.
const void* SentBy(Rank rank, Participants participants) {
  const auto sender = std::lower_bound(
      participants.begin(), participants.end(), rank,
      [](const auto& participant, Rank other) { return participant.rank < other; });
  return sender->send[0];
}

std::vector<const void*> Sent(Participants participants) {
  std::vector<const void*> sent;
  for (const CollectiveParticipant& participant : participants) {
    if (!participant.send.empty()) sent.push_back(participant.send[0]);
  }
  return sent;
}

ReductionKind ToReductionKind(Combination::Kind kind) {
  switch (kind) {
    case Combination::kProduct:
      return ReductionKind::PRODUCT;
    case Combination::kMin:
      return ReductionKind::MIN;
    case Combination::kMax:
      return ReductionKind::MAX;
    default:
      return ReductionKind::SUM;
  }
}

// Calls `body` with a value of the native type of `dtype`.
template <typename Body>
absl::Status WithNativeType(PrimitiveType dtype, ReductionKind kind, const Body& body) {
  const bool ordered = kind == ReductionKind::MIN || kind == ReductionKind::MAX;
  if (!xla::primitive_util::IsArrayType(dtype) ||
      (ordered && xla::primitive_util::IsComplexType(dtype)) ||
      xla::primitive_util::IsSubByteNonPredType(dtype)) {
    return absl::UnimplementedError(
        absl::StrCat("Cores cannot reduce values of type ",
                     xla::primitive_util::LowercasePrimitiveTypeName(dtype),
                     " with this operation; cast to float32 or int32 before the collective."));
  }
  return ArrayTypeSwitch(
      [&](auto type) -> absl::Status {
        using T = xla::primitive_util::NativeTypeOf<type>;
        body(T());
        return absl::OkStatus();
      },
      dtype);
}

// Reduces elements [offset, offset + count) of all values into the same position in `result`.
absl::Status ReduceInto(PrimitiveType dtype, ReductionKind kind,
                        const std::vector<const void*>& values, size_t offset, size_t count,
                        void* result) {
  return WithNativeType(dtype, kind, [&](auto zero) {
    using T = decltype(zero);
    Reduce<T>(kind, values, offset, count, [&](const T* block, size_t at, size_t size) {
      std::memcpy(static_cast<void*>(static_cast<T*>(result) + at), block, size * sizeof(T));
    });
  });
}

// How to reduce, and how many elements each participant sends.
struct Reduction {
  ReductionKind kind;
  size_t elements;
};

// One participant's side. XLA creates one for each rank and calls it on the thread that runs the
// participant's program, which continues with whatever does not need the result. The participant
// that arrives last runs the operation on its thread, without a lock, and reads and writes the
// buffers of all. No participant continues before its future is set.
class AsyncCommunicator : public Communicator {
 public:
  AsyncCommunicator(CollectiveTable* table, ComputePool* compute_pool, ProfileRecorder* recorder,
                    Rank rank, int size)
      : table_(*table),
        compute_pool_(*compute_pool),
        recorder_(recorder),
        rank_(rank),
        size_(size) {}

  CollectiveEvent AllReduce(DeviceAddressBase send, DeviceAddressBase recv, PrimitiveType dtype,
                            size_t count, ReductionKind kind, const Executor& executor) override {
    return Meet(
        "all-reduce", dtype, count, {send}, {recv}, std::nullopt, executor,
        [=](Participants all) {
          return WithNativeType(dtype, kind, [&](auto zero) {
            using T = decltype(zero);
            Reduce<T>(kind, Sent(all), 0, count, [&](const T* block, size_t at, size_t size) {
              for (const CollectiveParticipant& participant : all) {
                if (participant.recv.empty()) continue;
                std::memcpy(static_cast<void*>(static_cast<T*>(participant.recv[0]) + at), block,
                            size * sizeof(T));
              }
            });
          });
        },
        Reduction{kind, count});
  }

  CollectiveEvent ReduceScatter(DeviceAddressBase send, DeviceAddressBase recv, PrimitiveType dtype,
                                size_t count, ReductionKind kind,
                                const Executor& executor) override {
    return Meet(
        "reduce-scatter", dtype, count, {send}, {recv}, std::nullopt, executor,
        [=](Participants all) {
          return WithNativeType(dtype, kind, [&](auto zero) {
            using T = decltype(zero);
            for (const CollectiveParticipant& target : all) {
              if (target.recv.empty()) continue;
              const size_t start = target.rank.value() * count;
              Reduce<T>(kind, Sent(all), start, count, [&](const T* block, size_t at, size_t size) {
                std::memcpy(static_cast<void*>(static_cast<T*>(target.recv[0]) + (at - start)),
                            block, size * sizeof(T));
              });
            }
          });
        },
        Reduction{kind, count * size_});
  }

  CollectiveEvent AllGather(DeviceAddressBase send, DeviceAddressBase recv, PrimitiveType dtype,
                            size_t count, const Executor& executor) override {
    const size_t bytes = count * xla::primitive_util::ByteWidth(dtype);
    return Meet("all-gather", dtype, count, {send}, {recv}, std::nullopt, executor,
                [=](Participants all) {
                  for (const CollectiveParticipant& target : all) {
                    if (target.recv.empty()) continue;
                    for (const CollectiveParticipant& source : all) {
                      Copy(static_cast<char*>(target.recv[0]) + source.rank.value() * bytes,
                           source.send[0], bytes);
                    }
                  }
                  return absl::OkStatus();
                });
  }

  CollectiveEvent CollectivePermute(DeviceAddressBase send, DeviceAddressBase recv,
                                    PrimitiveType dtype, size_t count,
                                    std::optional<RankId> source_rank,
                                    absl::Span<const RankId> target_ranks,
                                    const Executor& executor) override {
    const size_t bytes = count * xla::primitive_util::ByteWidth(dtype);
    Route route;
    for (RankId target : target_ranks) route.targets.push_back(ToRank(target));
    if (source_rank.has_value()) route.sources.push_back(ToRank(*source_rank));
    return Meet("collective-permute", dtype, count, {send}, {recv}, std::move(route), executor,
                [=](Participants all) {
                  for (const CollectiveParticipant& target : all) {
                    if (target.recv.empty()) continue;
                    if (!target.sources->empty()) {
                      Copy(target.recv[0], SentBy(target.sources->front(), all), bytes);
                    } else {
                      std::memset(target.recv[0], 0, bytes);
                    }
                  }
                  return absl::OkStatus();
                });
  }

  CollectiveEvent AllToAll(CollectiveBuffers send, CollectiveBuffers recv, PrimitiveType dtype,
                           size_t count, const Executor& executor) override {
    const size_t bytes = count * xla::primitive_util::ByteWidth(dtype);
    return Meet(
        "all-to-all", dtype, count, send, recv, std::nullopt, executor, [=](Participants all) {
          for (const CollectiveParticipant& target : all) {
            if (target.recv.empty()) continue;
            for (const CollectiveParticipant& source : all) {
              Copy(target.recv[source.rank.value()], source.send[target.rank.value()], bytes);
            }
          }
          return absl::OkStatus();
        });
  }

  CollectiveEvent Broadcast(DeviceAddressBase send, DeviceAddressBase recv, PrimitiveType dtype,
                            size_t count, RankId root, const Executor& executor) override {
    const size_t bytes = count * xla::primitive_util::ByteWidth(dtype);
    Route route;
    route.sources = {ToRank(root)};
    for (int rank = 0; rank < size_ && rank_ == ToRank(root); ++rank) {
      route.targets.push_back(Rank(rank));
    }
    return Meet("broadcast", dtype, count, {send}, {recv}, std::move(route), executor,
                [=](Participants all) {
                  for (const CollectiveParticipant& target : all) {
                    if (target.recv.empty()) continue;
                    Copy(target.recv[0], SentBy(ToRank(root), all), bytes);
                  }
                  return absl::OkStatus();
                });
  }

  CollectiveEvent Send(DeviceAddressBase, PrimitiveType, size_t, RankId, const Executor&) override {
    return FailedEvent(Unsupported("send"));
  }
  CollectiveEvent Recv(DeviceAddressBase, PrimitiveType, size_t, RankId, const Executor&) override {
    return FailedEvent(Unsupported("receive"));
  }

  absl::StatusOr<size_t> NumRanks() const override { return size_; }
  absl::StatusOr<size_t> CurrentRank() override { return rank_.value(); }
  std::string ToString() const override {
    return absl::StrCat("virtual TPU communicator, rank ", rank_, " of ", size_);
  }

 private:
  static absl::Status Unsupported(const char* what) {
    return absl::UnimplementedError(
        absl::StrCat("Virtual TPU cores have no point-to-point ", what,
                     "; use collective_permute (tf.raw_ops.CollectivePermute)."));
  }

  static void Copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }

  CollectiveEvent Meet(const char* name, PrimitiveType dtype, size_t count,
                       absl::Span<const DeviceAddressBase> send,
                       absl::Span<const DeviceAddressBase> recv, std::optional<Route> route,
                       const Executor& executor,
                       std::function<absl::Status(Participants)> operation,
                       std::optional<Reduction> reduction = std::nullopt) {
    absl::StatusOr<const xla::cpu::CpuCollectives::Executor*> cpu_executor =
        xla::cpu::CpuCollectives::TryCast(&executor);
    if (!cpu_executor.ok()) return FailedEvent(cpu_executor.status());
    if (absl::Status fault = FaultAt(FaultPoint::kCollective); !fault.ok()) {
      return FailedEvent(std::move(fault));
    }
    const xla::RendezvousKey& rendezvous = (*cpu_executor)->rendezvous_key();
    CollectiveKey key;
    key.run_id = RunId(rendezvous.run_id.ToInt());
    key.cross_module = rendezvous.collective_op_kind == xla::RendezvousKey::kCrossModule;
    // Otherwise, the ID is specific to the module, and replicas may run different modules.
    if (key.cross_module) key.op_id = rendezvous.op_id;
    for (const auto& device : rendezvous.global_devices) {
      key.cores.Add(Core(static_cast<int>(device.value())));
    }

    const CollectivePromise promise;
    CollectiveParticipant participant;
    participant.rank = rank_;
    participant.elements = static_cast<int64_t>(count);
    participant.element_type = dtype;
    if (route.has_value()) {
      participant.targets = std::move(route->targets);
      participant.sources = std::move(route->sources);
    }
    for (const DeviceAddressBase& buffer : send) participant.send.push_back(buffer.opaque());
    participant.send_bytes =
        static_cast<int64_t>(reduction.has_value() ? reduction->elements : count) *
        xla::primitive_util::ByteWidth(dtype);
    for (const DeviceAddressBase& buffer : recv) {
      participant.recv.push_back(const_cast<void*>(buffer.opaque()));
    }
    const Core core = key.cores[participant.rank];
    // XLA continues the program before it returns from this.
    const auto end = [promise, run_id = key.run_id, core](absl::Status status) {
      const RunScope scope(run_id, core);
      promise.Set(std::move(status));
    };
    ProfiledWait profiled(recorder_, name, key.run_id, core);
    if (RecordedWait* wait = profiled.wait()) {
      wait->meeting = absl::StrCat(name, " ", key.DebugString());
      wait->bytes = participant.send_bytes;
      participant.done = [end, profiled](absl::Status status) mutable {
        profiled.End();
        end(std::move(status));
      };
    } else {
      participant.done = end;
    }
    CollectiveOperation traced = [name, operation = std::move(operation)](Participants all) {
      tsl::profiler::TraceMe trace([&] { return absl::StrCat("TPU ", name); });
      return operation(all);
    };
    if (reduction.has_value()) {
      traced.combine = [=](const std::vector<const void*>& sent, int64_t elements, void* result) {
        return ReduceInto(dtype, reduction->kind, sent, 0, elements, result);
      };
      traced.combined_elements = static_cast<int64_t>(reduction->elements);
    }
    table_.Arrive(key, rendezvous.num_local_participants, name, std::move(participant), traced);
    return EventOf(promise);
  }

  CollectiveEvent EventOf(const CollectivePromise& promise) {
    if constexpr (kCollectivesWait) {
      std::optional<CollectiveEvent> event;
      compute_pool_.Wait([&] { event = promise.TakeEvent(); });
      return *std::move(event);
    } else {
      return promise.TakeEvent();
    }
  }

  CollectiveTable& table_;
  ComputePool& compute_pool_;
  ProfileRecorder* const recorder_;
  const Rank rank_;
  const int size_;
};

class AsyncCollectives : public xla::cpu::CpuCollectives {
 public:
  AsyncCollectives(CollectiveTable* table, ComputePool* compute_pool, ProfileRecorder* recorder)
      : table_(*table), compute_pool_(*compute_pool), recorder_(recorder) {}

  absl::StatusOr<std::vector<std::unique_ptr<xla::Communicator>>> CreateCommunicators(
      const xla::CliqueKey& clique_key, const std::optional<xla::CliqueIds>& /*clique_ids*/,
      absl::Span<const DeviceRank> ranks, const Config& /*config*/) override {
    std::vector<std::unique_ptr<xla::Communicator>> communicators;
    for (const DeviceRank& device_rank : ranks) {
      communicators.push_back(std::make_unique<AsyncCommunicator>(
          &table_, &compute_pool_, recorder_, ToRank(device_rank.rank), clique_key.num_devices()));
    }
    return communicators;
  }

 private:
  CollectiveTable& table_;
  ComputePool& compute_pool_;
  ProfileRecorder* const recorder_;
};

}  // namespace

absl::Status CombineBuffers(const Combination& combination, const std::vector<const void*>& values,
                            int64_t offset, int64_t count, void* result) {
  TF_RETURN_IF_ERROR(FaultAt(FaultPoint::kCollective));
  return ReduceInto(combination.type, ToReductionKind(combination.kind), values, offset, count,
                    result);
}

std::unique_ptr<xla::cpu::CpuCollectives> MakeCollectives(CollectiveTable* table,
                                                          ComputePool* compute_pool,
                                                          ProfileRecorder* recorder) {
  return std::make_unique<AsyncCollectives>(table, compute_pool, recorder);
}

}  // namespace tf_tpu_ext
