#include "cc/transfer/transfer_stats.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/tensor_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

ClusterRecord Record(const std::string& name) {
  ClusterRecord record;
  record.cluster = absl::StrCat("cluster of ", name);
  record.counted_as = name;
  return record;
}

std::vector<std::string> NamesOf(const TransferStats& stats) {
  std::vector<std::string> names;
  for (const ClusterRecord& record : stats.RecordedClusters()) names.push_back(record.counted_as);
  return names;
}

TEST(TotalBytesTest, CountsAllTensors) {
  EXPECT_EQ(TotalBytes({}), 0);
  EXPECT_EQ(TotalBytes({MakeVector<float>({1, 2, 3}), MakeScalar<int64_t>(1),
                        tensorflow::Tensor(tensorflow::DT_FLOAT, {0, 5})}),
            3 * 4 + 8);
}

TEST(TransferStatsTest, CountersOfANameAreTheSame) {
  TransferStats stats;
  EXPECT_EQ(stats.FindCounters(Record("a")), nullptr);
  const std::shared_ptr<ClusterCounters> counters = stats.CountersOf("a");
  EXPECT_EQ(counters->calls, 0);
  EXPECT_EQ(stats.CountersOf("a"), counters);
  EXPECT_EQ(stats.FindCounters(Record("a")), counters);
  EXPECT_NE(stats.CountersOf("b"), counters);
}

TEST(TransferStatsTest, ClustersAreRecordedOnceAndInTheirOrder) {
  TransferStats stats;
  for (const char* name : {"b", "a", "b", "c", "a"}) stats.RecordCluster(Record(name));
  EXPECT_EQ(NamesOf(stats), (std::vector<std::string>{"b", "a", "c"}));
}

TEST(TransferStatsTest, AnyDifferenceMakesAnotherCluster) {
  TransferStats stats;
  stats.RecordCluster(Record("a"));
  ClusterRecord moved = Record("a");
  moved.source = "train.py:7";
  ClusterRecord kept = Record("a");
  kept.not_folded_because = "it has a queue";
  ClusterRecord renamed = Record("a");
  renamed.cluster = "another";
  for (const ClusterRecord& record : {moved, kept, renamed}) stats.RecordCluster(record);
  EXPECT_EQ(stats.RecordedClusters().size(), 4);
  EXPECT_EQ(stats.RecordedClusters()[1].source, "train.py:7");
  EXPECT_EQ(stats.RecordedClusters()[2].not_folded_because, "it has a queue");
}

TEST(TransferStatsTest, TheOldestAreForgottenWithTheirCounters) {
  TransferStats stats;
  stats.CountersOf("0")->calls = 5;
  // Whatever still counts keeps the counters alive.
  const std::shared_ptr<ClusterCounters> first = stats.CountersOf("0");
  for (size_t i = 0; i < TransferStats::kMaxRecords; ++i)
    stats.RecordCluster(Record(absl::StrCat(i)));
  EXPECT_EQ(stats.FindCounters(Record("0")), first);
  stats.RecordCluster(Record("one more"));
  EXPECT_EQ(stats.FindCounters(Record("0")), nullptr);
  EXPECT_EQ(first->calls, 5);
  const std::vector<std::string> names = NamesOf(stats);
  EXPECT_EQ(names.size(), TransferStats::kMaxRecords);
  EXPECT_EQ(names.front(), "1");
  EXPECT_EQ(names.back(), "one more");
  // A program that comes back is recorded again.
  stats.RecordCluster(Record("0"));
  EXPECT_EQ(NamesOf(stats).back(), "0");
}

TEST(TransferStatsTest, ThreadsCountTogether) {
  TransferStats stats;
  constexpr int kThreads = 4, kCalls = 1000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < kCalls; ++call) {
        ++stats.CountersOf("shared")->calls;
        stats.RecordCluster(Record(absl::StrCat(call)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stats.CountersOf("shared")->calls, kThreads * kCalls);
  EXPECT_EQ(stats.RecordedClusters().size(), kCalls);
}

}  // namespace
}  // namespace tf_tpu_ext
