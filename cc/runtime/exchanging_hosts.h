// For tests of how hosts meet: a pod, and operations of the tests.
#ifndef TF_TPU_EXT_CC_RUNTIME_EXCHANGING_HOSTS_H_
#define TF_TPU_EXT_CC_RUNTIME_EXCHANGING_HOSTS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cc/runtime/host_exchange.h"
#include "cc/runtime/pod_of_tables.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {

class HostExchangeTest : public PodOfTables {
 protected:
  using All = absl::Span<const CollectiveParticipant>;

  // A participant's memory, and the status it receives.
  struct Player {
    std::vector<float> send;
    std::vector<float> recv;
    std::optional<absl::Status> told;
  };

  static CollectiveKey KeyOf(const std::vector<int>& cores, RunId run = kRun) {
    return {run, /*op_id=*/1, /*cross_module=*/false, ByNumber<Rank, Core>(ToNumbers<Core>(cores))};
  }

  // Arrives on the rank's own host.
  void Arrive(const CollectiveKey& key, int rank, const std::string& name, Player* player,
              const CollectiveOperation& operation) {
    CollectiveParticipant participant;
    participant.rank = Rank(rank);
    participant.elements = static_cast<int64_t>(player->send.size());
    participant.send = {player->send.data()};
    participant.send_bytes = static_cast<int64_t>(player->send.size() * sizeof(float));
    participant.recv = {player->recv.data()};
    participant.done = [player](absl::Status told) {
      EXPECT_FALSE(player->told.has_value()) << "told twice";
      player->told = std::move(told);
    };
    TableOf(key.cores[Rank(rank)])
        .Arrive(key, key.cores.size(), name, std::move(participant), operation);
  }

  // Each participant receives what each rank sends, `count` elements.
  static CollectiveOperation Gather(size_t count) {
    return [count](All all) {
      for (const CollectiveParticipant& target : all) {
        if (target.recv.empty()) continue;
        for (const CollectiveParticipant& source : all) {
          std::memcpy(static_cast<float*>(target.recv[0]) + source.rank.value() * count,
                      source.send[0], count * sizeof(float));
        }
      }
      return absl::OkStatus();
    };
  }

  // Each participant receives the sum of one value per rank. The counters may be null.
  static CollectiveOperation Sum(std::atomic<int>* combined = nullptr,
                                 std::atomic<int>* senders = nullptr) {
    CollectiveOperation sum = [senders](All all) {
      std::optional<float> result;
      for (const CollectiveParticipant& source : all) {
        if (source.send.empty()) continue;
        const float value = *static_cast<const float*>(source.send[0]);
        result = result.has_value() ? *result + value : value;
        if (senders != nullptr) ++*senders;
      }
      for (const CollectiveParticipant& target : all) {
        if (!target.recv.empty()) *static_cast<float*>(target.recv[0]) = *result;
      }
      return absl::OkStatus();
    };
    sum.combine = [combined](const std::vector<const void*>& sent, int64_t elements, void* result) {
      EXPECT_EQ(elements, 1);
      if (combined != nullptr) ++*combined;
      float value = *static_cast<const float*>(sent[0]);
      for (size_t i = 1; i < sent.size(); ++i) value += *static_cast<const float*>(sent[i]);
      std::memcpy(result, &value, sizeof(value));
      return absl::OkStatus();
    };
    sum.combined_elements = 1;
    return sum;
  }

  // The same for many values, using only `combine`. `before` is called first.
  static CollectiveOperation SumOfMany(std::function<absl::Status(int64_t elements)> before =
                                           [](int64_t) { return absl::OkStatus(); }) {
    CollectiveOperation sum = Never();
    sum.combine = [before = std::move(before)](const std::vector<const void*>& sent,
                                               int64_t elements, void* result) {
      const absl::Status status = before(elements);
      float* const sums = static_cast<float*>(result);
      std::fill_n(sums, elements, 0.0f);
      for (const void* each : sent) {
        for (int64_t i = 0; i < elements; ++i) sums[i] += static_cast<const float*>(each)[i];
      }
      return status;
    };
    sum.combined_elements = kElementsInParts;
    return sum;
  }

  static CollectiveOperation Never() {
    return [](All) -> absl::Status {
      ADD_FAILURE() << "the operation ran";
      return absl::OkStatus();
    };
  }
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_EXCHANGING_HOSTS_H_
